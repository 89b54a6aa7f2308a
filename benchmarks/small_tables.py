"""Small tables that come with scikit-learn: a fit, automatic and with fixed settings, and the
prediction of one row, beside logistic regression.
"""

from _table import Row, alone, in_turns
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from capslit import CapsuleClassifier
from capslit.capsules.settings import RBF


def rows():
    """Rows of fits to standardised tables that come with scikit-learn: with everything automatic,
    and with what was chosen then given as settings.
    """
    for load in (load_iris, load_wine, load_breast_cancer):
        X, y = load(return_X_y=True)
        X, name = (
            StandardScaler().fit_transform(X),
            f"{load.__name__.removeprefix('load_').replace('_', ' ')}, {len(X)} × {X.shape[1]}",
        )
        model = CapsuleClassifier(random_state=0).fit(X, y)
        kernel = model.kernel_features_
        settings = {
            "capsule_dim": model.capsule_dim_,
            "architecture": model.architecture_,
            "alpha": model.alpha_,
            "sharpness": model.sharpness_,
            "kernel": kernel and RBF(kernel.gamma, len(kernel.landmarks)),
        }
        for title, ours, aim in (("automatic", {}, 20), ("with fixed settings", settings, 5)):
            ours, theirs = in_turns(
                lambda: CapsuleClassifier(**ours, random_state=0).fit(X, y),
                lambda: LogisticRegression(max_iter=1000).fit(X, y),
                rounds=10,
            )
            yield Row(
                f"fit, {title}, {name}", ours / theirs, "scikit-learn's LogisticRegression", aim
            )
        logistic = LogisticRegression(max_iter=1000).fit(X, y)
        ours, theirs = in_turns(
            lambda: model.predict(X[:1]), lambda: logistic.predict(X[:1]), rounds=200, rest=0
        )
        yield Row(
            f"one row predicted, {name}", ours / theirs, "scikit-learn's LogisticRegression", 1
        )


if __name__ == "__main__":
    alone(rows)
