"""Capsule regression and its relatives: latent variables learned by EM."""
__version__ = "0.1.0"

_HOMES = {
    "CapsuleClassifier": "classifier",
    "ClassConditionalClassifier": "linear_manifolds",
    "CompositionalModel": "composition",
    "FactorialHMM": "factorial_hmm",
    "FactorialVectorQuantizer": "factorial",
    "GaussianMixture": "mixtures",
    "MixtureOfFactorAnalyzers": "linear_manifolds",
    "MixtureOfPCA": "linear_manifolds",
}
__all__ = list(_HOMES)


def __getattr__(name):  # the estimators bring scikit-learn along, so they are imported when first asked for
    if name in _HOMES:
        from importlib import import_module
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
