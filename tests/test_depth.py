"""From `fit` to the mathematics of an E-step it is not far."""

import sys

import numpy as np
import pytest
from conftest import together

from capslit import (
    CapsuleClassifier,
    CompositionalModel,
    FactorialHMM,
    FactorialVectorQuantizer,
    GaussianMixture,
    MixtureOfFactorAnalyzers,
    MixtureOfPCA,
)

X = np.random.default_rng(0).random((60, 5))
ESTIMATORS = {
    "CapsuleClassifier": lambda: CapsuleClassifier.paper(
        2, max_iter=2, n_jobs=1, random_state=0
    ).fit(X, X[:, 0] > 0.5),
    "CapsuleClassifier, one-versus-one": lambda: CapsuleClassifier.paper(
        2, architecture="ovo", max_iter=2, n_jobs=1, random_state=0
    ).fit(X, (3 * X[:, 0]).astype(int)),
    "GaussianMixture": lambda: GaussianMixture(2, max_iter=2, n_jobs=1, random_state=0).fit(X),
    "MixtureOfFactorAnalyzers": lambda: MixtureOfFactorAnalyzers(
        2, 1, max_iter=2, n_jobs=1, random_state=0
    ).fit(X),
    "MixtureOfPCA": lambda: MixtureOfPCA(2, 1, max_iter=2, n_jobs=1, random_state=0).fit(X),
    "FactorialVectorQuantizer": lambda: FactorialVectorQuantizer(
        2, 2, max_iter=2, n_jobs=1, random_state=0
    ).fit(X),
    "FactorialHMM": lambda: FactorialHMM(2, 2, max_iter=2, random_state=0).fit(X),
    "CompositionalModel": lambda: CompositionalModel(2, max_iter=2, n_jobs=1, random_state=0).fit(
        X > 0.5
    ),
}


def stack_above_e_step(fit):
    """The names of the functions of capslit on the stack when the mathematics of the last E-step
    begins, `fit` first.
    """
    found = []

    def watch(frame, event, arg):
        if event == "call" and frame.f_code.co_name in ("e_step", "_statistics_by_arrays"):
            found.clear()  # another estimator may have made the start
            while frame is not None:
                if (
                    "capslit" in frame.f_code.co_filename
                    and "/tests/" not in frame.f_code.co_filename
                ):
                    found.append(frame.f_code.co_name)
                frame = frame.f_back

    sys.setprofile(watch)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return found[::-1]


@pytest.mark.filterwarnings("ignore")
@together("name", ESTIMATORS)
def test_at_most_eight_frames_from_fit_to_the_e_step(name):
    names = stack_above_e_step(ESTIMATORS[name])
    assert names and names[-1] in ("e_step", "_statistics_by_arrays") and len(names) <= 8, names
