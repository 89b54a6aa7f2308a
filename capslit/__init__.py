"""Capsule regression and its relatives: latent variables learned by EM."""
__version__ = "0.1.0"

__all__ = ["CapsuleClassifier"]


def __getattr__(name):  # the estimator brings scikit-learn along, so it is imported when first asked for
    if name in __all__:
        from .classifier import CapsuleClassifier
        return CapsuleClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])
