"""Validation inputs that a pipeline has not transformed: the classifier warns of them, and not of
honest shifts.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from conftest import together
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PowerTransformer,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

from capslit import CapsuleClassifier
from capslit.capsules.learning import _share_elsewhere
from capslit.capsules.settings import Schedule

TABLES = {"iris": load_iris, "wine": load_wine, "cancer": load_breast_cancer, "digits": load_digits}
SCALERS = (
    StandardScaler(),
    MinMaxScaler(),
    RobustScaler(),
    MaxAbsScaler(),
    PowerTransformer(),
    QuantileTransformer(n_quantiles=50, output_distribution="normal"),
)
PLAIN = {
    "capsule_dim": 1,
    "kernel": None,
    "alpha": 1e-3,
    "sharpness": 1.0,
    "schedule": Schedule(monitor="error"),
    "max_iter": 5,
}
WORDS = r"X_val has another place or scale.*transform_input=\['X_val'\].*early_stopping=True"


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
@together("table", TABLES)
def test_what_was_not_transformed_is_seen(table):
    train, test = train_test_split(TABLES[table]().data, random_state=0)
    for scaler in SCALERS:
        transformed = scaler.fit_transform(train)
        assert _share_elsewhere(transformed, test) > 0.5, scaler
        assert _share_elsewhere(transformed, scaler.transform(test)) < 0.25, scaler


@together("table", TABLES)
def test_honest_shifts_are_not_warned_of(table):
    X, y = TABLES[table](return_X_y=True)
    X = StandardScaler().fit_transform(X)
    main = X @ np.linalg.svd(X, full_matrices=False)[2][0]
    orders = [
        np.argsort(X[:, 0]),
        np.argsort(main),
        np.argsort(-main),
        np.argsort(y == 0, kind="stable"),
        np.random.default_rng(0).permutation(len(X)),
    ]
    for order in orders:
        for held in (len(X) // 4, 5, 1):  # the last ones of that order
            assert _share_elsewhere(X[order[:-held]], X[order[-held:]]) <= 0.5, held


def test_onehot_columns_that_a_part_lacks_say_nothing():
    codes = np.sort(np.random.default_rng(0).integers(30, size=600))
    assert _share_elsewhere(np.eye(30)[codes[:400]], np.eye(30)[codes[400:]]) <= 0.5


@pytest.mark.filterwarnings("ignore:EM stopped")
def test_a_pipeline_warns_and_both_remedies_help():
    X, X_val, y, y_val = train_test_split(*load_wine(return_X_y=True), random_state=0)
    pipeline = make_pipeline(StandardScaler(), CapsuleClassifier(**PLAIN))
    with pytest.warns(UserWarning, match=WORDS):
        pipeline.fit(X, y, capsuleclassifier__X_val=X_val, capsuleclassifier__y_val=y_val)
    with pytest.warns(UserWarning, match=WORDS):
        CapsuleClassifier(**PLAIN).fit(
            sp.csr_array(pipeline[0].transform(X)), y, X_val=sp.csr_array(X_val), y_val=y_val
        )
    with warnings.catch_warnings(), sklearn.config_context(enable_metadata_routing=True):
        warnings.filterwarnings("error", "X_val")
        classifier = CapsuleClassifier(**PLAIN).set_fit_request(X_val=True, y_val=True)
        routed = Pipeline(
            [("scale", StandardScaler()), ("classify", classifier)], transform_input=["X_val"]
        ).fit(X, y, X_val=X_val, y_val=y_val)
        split_off = make_pipeline(
            StandardScaler(), CapsuleClassifier(**PLAIN, early_stopping=True, random_state=0)
        ).fit(X, y)
        scale = pipeline[0]
        by_hand = CapsuleClassifier(**PLAIN).fit(
            scale.transform(X), y, X_val=scale.transform(X_val), y_val=y_val
        )
    assert np.array_equal(routed[-1].coef_, by_hand.coef_)
    assert np.array_equal(
        routed[-1].history_["validation_error"], by_hand.history_["validation_error"]
    )
    assert min(routed.score(X_val, y_val), split_off.score(X_val, y_val)) > 0.9
