"""From `fit` to the mathematics of an E-step it is not far."""

import sys

import numpy as np
import pytest
from estimators import ESTIMATORS

from capslit import CapsuleClassifier, ClassConditionalClassifier, MixtureOfFactorAnalyzers

X = np.random.default_rng(0).random((60, 5))
FORMULAS = ("e_step", "_statistics_by_arrays")
FITS = {  # with default arguments, and the paper's protocol
    name: lambda entry=entry: type(entry.estimator)().fit(entry.X, entry.y)
    for name, entry in ESTIMATORS.items()
    if " " not in name and not name.startswith("TangentDistance")  # which learns without EM
} | {
    "paper": lambda: CapsuleClassifier.paper(2, max_iter=2, n_jobs=1).fit(X, X[:, 0] > 0.5),
    "paper, one-versus-one": lambda: CapsuleClassifier.paper(
        2, architecture="ovo", max_iter=2, n_jobs=1
    ).fit(X, (3 * X[:, 0]).astype(int)),
    # by default its Gaussians are learned without EM
    "ClassConditionalClassifier": lambda: ClassConditionalClassifier(
        MixtureOfFactorAnalyzers()
    ).fit(X, X[:, 0] > 0.5),
}


def stacks_above_e_steps(fit):
    """The names of the functions of capslit on the stack when an E-step begins, for each E-step:
    from `fit` of an estimator, or of the estimator that it learns with, to the E-step.
    """
    stacks = []

    def watch(frame, event, arg):
        if event != "call" or frame.f_code.co_name not in FORMULAS:
            return
        names = []
        while frame is not None:
            file = frame.f_code.co_filename
            if "capslit" in file and "/tests/" not in file:
                names.append(frame.f_code.co_name)
                if names[-1] == "fit" and not file.endswith("em/loop.py"):
                    break
            frame = frame.f_back
        stacks.append(names[::-1])

    sys.setprofile(watch)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return stacks


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FITS)
def test_at_most_six_frames_from_fit_to_the_formula_and_eight_in_a_search(name):
    stacks = stacks_above_e_steps(FITS[name])
    assert stacks and all(names[0] == "fit" for names in stacks)
    searched = [names for names in stacks if "choose" in names]
    learned = [names for names in stacks if "choose" not in names]
    assert bool(searched) == (name in ("CapsuleClassifier", "TableClassifier"))
    assert max(map(len, learned)) <= 6, max(learned, key=len)
    assert max(map(len, searched), default=0) <= 8, max(searched, key=len)
