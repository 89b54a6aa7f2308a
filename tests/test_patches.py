"""Features of patches against slow formulas, scikit-learn's principal components, and themselves
under other units, bytes and threads.
"""

import numpy as np
import pytest
from conftest import NO_WARNINGS
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from capslit.deeper.patches import PatchFeatures, pooling_weights

pytestmark = [
    pytest.mark.filterwarnings(*NO_WARNINGS),
    pytest.mark.filterwarnings(
        f"ignore::{ConvergenceWarning.__module__}.{ConvergenceWarning.__name__}"
    ),
]
X = load_digits().data[:120]
QUICK = {"n_components": 5, "n_patches": 2000, "max_iter": 6, "random_state": 0, "n_jobs": 1}
WAYS = [
    {},
    {"temperature": 1.0},
    {"temperature": 0},
    {"coding": "evidence"},
    {"coding": "evidence", "pooling": [2, 1]},
    {"whitening": None, "patch_size": 4, "stride": 2, "pooling": 2},
    {"n_factors": 2},
    {"image_shape": (4, 16), "pooling": 2},
    {"image_shape": (1, 64), "patch_size": 5},
]


def slowly(layer, x):
    """The features of one image, patch by patch, in double precision, by the formulas of the
    chapter.
    """
    (height, width), (h, w), step = layer.image_shape_, layer.patch_size_, layer.stride_
    image, codes, places = x.reshape(height, width) / layer.scale_, [], []
    for r in range(0, height - h + 1, step):
        for c in range(0, width - w + 1, step):
            u = image[r : r + h, c : c + w].ravel()
            v = (u - u.mean()) / np.sqrt(np.mean((u - u.mean()) ** 2) + layer.contrast_floor_)
            z = layer.whitening_ @ (v - layer.patch_mean_)
            mixture = layer.mixture_
            if layer.n_factors:
                logs = np.log(mixture.predict_proba(z[None])[0]) - np.log(mixture.weights_)
            else:
                kinds = zip(mixture.means_, mixture.covariances_)
                logs = np.array([multivariate_normal(m, s).logpdf(z) for m, s in kinds])
            if layer.coding == "evidence":
                codes.append(np.maximum(0, logs - logs.mean()))
            else:
                joint = logs + np.log(mixture.weights_)
                T = layer.temperature_
                share = np.exp((joint - joint.max()) / T) if T else (joint == joint.max()) * 1.0
                codes.append(share / share.sum())
            places.append((r // step, c // step))
    rows, columns = np.max(places, axis=0) + 1
    pooled = pooling_weights(rows, columns, layer.grids_) @ np.array(codes)
    return (np.sqrt(pooled) if layer.coding == "responsibilities" else pooled).ravel()


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_features_are_those_of_the_formulas(way):
    layer = PatchFeatures(**QUICK | way).fit(X)
    found = layer.transform(X[:3])
    assert found.shape[1] == len(layer.get_feature_names_out())
    for x, features in zip(X, found):
        np.testing.assert_allclose(features, slowly(layer, x), rtol=2e-3, atol=2e-3)


def test_outputs_are_principal_components_of_the_codes():
    layer = PatchFeatures(**QUICK, coding="evidence")
    codes = layer.fit_transform(X)
    pca = PCA(6).fit(codes)
    found, theirs = layer.set_params(n_outputs=6).fit_transform(X), pca.transform(codes)
    signs = np.sign(np.sum(found * theirs, axis=0))
    np.testing.assert_allclose(found, theirs * signs, atol=2e-3 * np.abs(theirs).max())
    variance = pca.explained_variance_ * (len(X) - 1) / len(X)
    np.testing.assert_allclose(layer.explained_variance_, variance, rtol=1e-3)


@pytest.mark.parametrize("way", WAYS[:4], ids=str)
def test_what_does_not_matter(way):
    layer = PatchFeatures(**QUICK | way)
    wanted = layer.fit_transform(X)
    one_by_one = np.concatenate([layer.transform(x[None]) for x in X[:5]])
    np.testing.assert_allclose(one_by_one, wanted[:5], atol=1e-5)
    assert np.array_equal(clone(layer).set_params(n_jobs=2).fit_transform(X), wanted)
    for other in (X.astype(np.uint8), 2.0**-40 * X):
        np.testing.assert_allclose(layer.fit_transform(other), wanted, atol=1e-6)
    layer.set_params(contrast=0)
    found, wanted = layer.fit_transform(3 * X + 8), layer.fit_transform(X)
    np.testing.assert_allclose(found, wanted, atol=0.05)


def test_em_raises_the_composite_likelihood_of_unseen_images_too():
    few, many = (
        PatchFeatures(**QUICK | {"max_iter": n, "n_components": 12}).fit(X[:80]) for n in (1, 20)
    )
    assert many.score(X[80:]) > few.score(X[80:]) + 0.1


def test_few_patches_have_few_kinds():
    auto = PatchFeatures("auto", max_iter=2, random_state=0, n_jobs=1)
    for n_patches, kinds in ((40, 4), (2000, 200), (3000, 200)):
        model = clone(auto).set_params(n_patches=n_patches).fit(X)
        chosen = clone(model).set_params(n_components=kinds).fit(X)
        assert model.n_components_ == len(model.mixture_.means_) == kinds
        assert np.array_equal(model.transform(X), chosen.transform(X))
    strip = np.random.default_rng(0).random((5, 2))  # ten patches of one pixel
    assert auto.set_params(patch_size=1).fit(strip).n_components_ == 1
