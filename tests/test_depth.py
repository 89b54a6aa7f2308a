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


def stacks_above_e_steps(fit):
    """The names of the functions of capslit on the stack when the mathematics of an E-step begins,
    `fit` first, for each E-step.
    """
    stacks = []

    def watch(frame, event, arg):
        if event == "call" and frame.f_code.co_name in ("e_step", "_statistics_by_arrays"):
            names = []
            while frame is not None:
                if (
                    "capslit" in frame.f_code.co_filename
                    and "/tests/" not in frame.f_code.co_filename
                ):
                    names.append(frame.f_code.co_name)
                frame = frame.f_back
            stacks.append(names[::-1])

    sys.setprofile(watch)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return stacks


@pytest.mark.filterwarnings("ignore")
@together("name", ESTIMATORS)
def test_at_most_eight_frames_from_fit_to_the_e_step(name):
    # the last one, for another estimator may have made the start
    names = stacks_above_e_steps(ESTIMATORS[name])[-1]
    assert names and names[-1] in ("e_step", "_statistics_by_arrays") and len(names) <= 8, names


@pytest.mark.filterwarnings("ignore")
def test_at_most_eight_frames_in_a_search():
    stacks = stacks_above_e_steps(
        lambda: CapsuleClassifier(n_jobs=1).fit(X, (3 * X[:, 0]).astype(int))
    )
    searched = [names for names in stacks if "choose" in names]
    assert searched and searched != stacks
    assert {names[-1] for names in stacks} == {"e_step", "_statistics_by_arrays"}
    assert max(map(len, stacks)) <= 8, max(stacks, key=len)
