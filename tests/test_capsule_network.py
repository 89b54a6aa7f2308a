"""The capsule network: against loops, finite differences and itself interrupted; what it is given
and what it must not touch.
"""

import json
import subprocess
import sys
import warnings
from functools import partial

import numpy as np
import pytest
from conftest import PATIENCE, together
from scipy.special import expit

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")

from capslit.routing import network as cn  # noqa: E402
from capslit.routing.procedure import corrected_procedure, inverse_temperatures  # noqa: E402
from capslit.storage import StorageError  # noqa: E402

TINY = {"features": [(3, 2, 1)], "primary": 2, "capsules": [(2, 2, 1)]}


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def tiny(seed=0, side=5, n_classes=3, **settings):
    torch.manual_seed(seed)
    return cn.CapsuleNetwork(side, n_classes, **TINY | settings)


def small_convolution(seed=0):
    torch.manual_seed(seed)
    return cn.ConvolutionalNetwork(5, 3, features=[(4, 2, 1), (3, 2, 1)])


def examples(seed=0, n=40, side=5, n_classes=3):
    "Images with a bright row that tells the class, and labels."
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    X = 0.2 * rng.random((n, side, side))
    X[np.arange(n), y] += 0.8
    return X.astype(np.float32), y


def learn(network, X=None, y=None, **settings):
    X, y = examples() if X is None else (X, y)
    return cn.learn(
        network,
        cn.growing_spread_loss,
        X,
        y,
        **{"epochs": 2, "batch_size": 10, "seed": 1} | settings,
    )


def state(network):
    return {name: leaf.numpy().copy() for name, leaf in network.state_dict().items()}


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name]), name


# The layers


@pytest.mark.parametrize("seed", range(4))
def test_windows_against_loops(seed):
    rng = np.random.default_rng(seed)
    n, h, w, types, size, stride = (
        rng.integers(1, 3),
        *rng.integers(3, 8, 2),
        rng.integers(1, 4),
        rng.integers(1, 4),
        rng.integers(1, 4),
    )
    x = rng.random((n, h, w, types, *[(), (4, 4)][seed % 2]))
    found = cn._windows(torch.from_numpy(x), int(size), int(stride)).numpy()
    rows, columns = (h - size) // stride + 1, (w - size) // stride + 1
    assert found.shape == (n, rows, columns, size**2 * types, *x.shape[4:])
    for r in range(rows):
        for c in range(columns):
            window = x[:, r * stride : r * stride + size, c * stride : c * stride + size]
            children = window.reshape(n, size**2, types, *x.shape[4:])
            assert np.array_equal(found[:, r, c], children.reshape(n, -1, *x.shape[4:]))


@pytest.mark.parametrize("batch", [(), (3,), (2, 3), (2, 0), (2, 2, 2)])
def test_votes_against_einsum(batch):
    rng = np.random.default_rng(0)
    poses, W = rng.normal(size=(*batch, 5, 4, 4)), rng.normal(size=(5, 6, 4, 4))
    found = (
        cn._cast_votes(torch.from_numpy(poses), torch.from_numpy(W)).numpy()
        if batch
        else cn._cast_votes(torch.from_numpy(poses[None]), torch.from_numpy(W)).numpy()[0]
    )
    assert np.allclose(
        found, np.einsum("...ikl,ijlm->...ijkm", poses, W).reshape(*batch, 5, 6, 16), atol=1e-12
    )


def routed_by_hand(layer, votes, activations):
    """One problem, by the procedure that the routing chapter derives: votes (n, m, 16), activations
    (n,).
    """
    n, m, _ = votes.shape
    R, beta_u = np.full((n, m), 1 / m), layer.beta_u.detach().numpy()
    beta_a = layer.beta_a.detach().numpy() / layer.last
    for lam in inverse_temperatures(layer.n_iterations, layer.final):
        parents, R = corrected_procedure(votes, activations, R, beta_u, beta_a, lam)
    return parents.poses.reshape(m, 4, 4), parents.activations


def some_capsules(seed, shape=(2, 4, 5, 3)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(*shape, 4, 4)), rng.random(shape)


def with_prices(layer):
    with torch.no_grad():
        layer.beta_u += 0.3 * torch.randn(len(layer.beta_u))
        layer.beta_a += torch.randn(len(layer.beta_a))
    return layer.double()


@pytest.mark.parametrize("seed", range(4))
def test_convolutional_capsules_against_loops(seed):
    torch.manual_seed(seed)
    size, stride = [(3, 1), (2, 2), (2, 1), (3, 2)][seed]
    layer = with_prices(
        cn._ConvolutionalCapsules(3, 4, size, stride, spread=0.5, n_iterations=1 + seed % 3)
    )
    poses, activations = some_capsules(seed)
    with torch.no_grad():
        found = layer(cn._Capsules(torch.from_numpy(poses), torch.from_numpy(activations)))
    W = layer.transformations.detach().numpy().reshape(size, size, 3, 4, 4, 4)
    n, rows, columns, types = found.activations.shape
    assert (rows, columns, types) == ((4 - size) // stride + 1, (5 - size) // stride + 1, 4)
    for i, r, c in np.ndindex(n, rows, columns):
        here = np.s_[i, r * stride : r * stride + size, c * stride : c * stride + size]
        votes = np.einsum("yxtkl,yxtjlm->yxtjkm", poses[here], W).reshape(-1, 4, 16)
        M, a = routed_by_hand(layer, votes, activations[here].ravel())
        assert np.allclose(found.poses[i, r, c].numpy(), M, atol=1e-6)
        assert np.allclose(found.activations[i, r, c].numpy(), a, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_class_capsules_against_loops(seed):
    torch.manual_seed(seed)
    layer = with_prices(cn._ClassCapsules(3, 5, spread=0.5, n_places=20))
    poses, activations = some_capsules(seed)
    with torch.no_grad():
        found = layer(cn._Capsules(torch.from_numpy(poses), torch.from_numpy(activations)))
    W = layer.transformations.detach().numpy()
    for i in range(2):
        votes = np.empty((4, 5, 3, 5, 4, 4))
        for row, column, t, j in np.ndindex(4, 5, 3, 5):
            V = poses[i, row, column, t] @ W[t, j]
            V[0, 3] += (row + 0.5) / 4
            V[1, 3] += (column + 0.5) / 5
            votes[row, column, t, j] = V
        M, a = routed_by_hand(layer, votes.reshape(60, 5, 16), activations[i].ravel())
        assert np.allclose(found.poses[i].numpy(), M, atol=1e-6)
        assert np.allclose(found.activations[i].numpy(), a, atol=1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"shared": False},
        {"coordinates": False},
        {"weighted": False},
        {"shared": False, "coordinates": False, "weighted": False},
    ],
)
def test_class_capsules_with_parts_left_out(settings):
    torch.manual_seed(0)
    layer = with_prices(cn._ClassCapsules(3, 5, spread=0.5, n_places=20, **settings))
    poses, activations = some_capsules(1)
    with torch.no_grad():
        found = layer(cn._Capsules(torch.from_numpy(poses), torch.from_numpy(activations)))
    W = layer.transformations.detach().numpy()
    assert W.shape[0] == (3 if settings.get("shared", True) else 60)
    W = (
        np.broadcast_to(W, (20, 3, 5, 4, 4))
        if settings.get("shared", True)
        else W.reshape(20, 3, 5, 4, 4)
    )
    for i in range(2):
        votes = np.empty((4, 5, 3, 5, 4, 4))
        for row, column, t, j in np.ndindex(4, 5, 3, 5):
            votes[row, column, t, j] = poses[i, row, column, t] @ W[5 * row + column, t, j]
        if settings.get("coordinates", True):
            votes[..., 0, 3] += ((np.arange(4) + 0.5) / 4)[:, None, None, None]
            votes[..., 1, 3] += ((np.arange(5) + 0.5) / 5)[:, None, None]
        counted = activations[i].ravel() if settings.get("weighted", True) else np.full(60, 0.5)
        M, a = routed_by_hand(layer, votes.reshape(60, 5, 16), counted)
        assert np.allclose(found.poses[i].numpy(), M, atol=1e-6) and np.allclose(
            found.activations[i].numpy(), a, atol=1e-6
        )


def test_parts_left_out_are_kept_in_a_file(tmp_path):
    network = tiny(
        shared=False,
        coordinates=False,
        weighted=False,
        e_step="exponent",
        n_iterations=3,
        spread=0.2,
    )
    X, _ = examples()
    cn._save_network(tmp_path / "network.npz", network)
    again = cn._load_network(tmp_path / "network.npz")
    assert again.settings == network.settings and np.array_equal(
        cn.scores(again, X), cn.scores(network, X)
    )
    assert not np.allclose(
        cn.scores(network, X),
        cn.scores(
            tiny(shared=False, coordinates=False, weighted=False, n_iterations=3, spread=0.2), X
        ),
    )


def test_primary_capsules_against_matrix_products():
    torch.manual_seed(0)
    layer, x = cn._PrimaryCapsules(5, 3).double(), torch.randn(2, 5, 3, 4).double()
    with torch.no_grad():
        poses, activations = layer(x)
    W, b = (p.detach().numpy() for p in layer.poses.parameters())
    features = x.numpy().transpose(0, 2, 3, 1)
    assert np.allclose(poses.numpy().reshape(2, 3, 4, 48), features @ W[:, :, 0, 0].T + b)
    W, b = (p.detach().numpy() for p in layer.activations.parameters())
    assert np.allclose(activations.numpy(), expit(features @ W[:, :, 0, 0].T + b))


@pytest.mark.parametrize("n_iterations", [1, 2, 3])
def test_the_last_temperature_makes_the_logit_of_order_one(n_iterations):
    layer = cn._ClassCapsules(6, 10, n_places=9, n_iterations=n_iterations)
    assert np.isclose(inverse_temperatures(n_iterations, layer.final)[-1], layer.last)
    assert np.isclose(1 / layer.last, 16 * 6 * 9 / 10 / 2)


@pytest.mark.parametrize(
    "side, settings",
    [(8, {"features": [(32, 4, 1)], "primary": 8, "capsules": [(6, 3, 1)]}), (28, {})],
)
def test_no_activation_is_saturated_at_the_start(side, settings):
    torch.manual_seed(0)
    network = cn.CapsuleNetwork(side, 10, **settings)
    images = torch.rand(20, side, side)
    with torch.no_grad():
        for a in (network.parts(images).activations, network(images)):  # in training mode
            assert torch.all((0.2 < a) & (a < 0.99))


@pytest.mark.parametrize("capsules", [(), [(3, 2, 1)], [(3, 2, 1), (2, 2, 1)]])
def test_any_number_of_capsule_layers_and_their_parameters(capsules):
    network = tiny(side=6, capsules=capsules)
    types = [2, *(layer[0] for layer in capsules)]
    expected = 3 * 5 + 6 + 2 * 17 * 4
    expected += (
        sum(before * 4 * after * 16 + 2 * after for before, after in zip(types, types[1:]))
        + types[-1] * 3 * 16
        + 6
    )
    assert cn.count_parameters(network) == expected
    assert cn.scores(network, np.zeros((4, 6, 6))).shape == (4, 3)


@pytest.mark.parametrize("make", [tiny, small_convolution])
def test_gradients_of_the_whole_network(make):
    network, y = make().double(), torch.tensor([0, 2, 1])
    names, leaves = zip(*network.named_parameters())
    X = torch.from_numpy(examples(3, n=3)[0]).double()

    def loss(images, *parameters):
        outputs = torch.func.functional_call(network, dict(zip(names, parameters)), (images,))
        return cn._spread_loss(outputs, y, 0.9)

    assert torch.autograd.gradcheck(
        loss, (X.requires_grad_(), *leaves), eps=1e-6, atol=1e-6, fast_mode=True
    )


# Learning


@pytest.mark.parametrize("make", [tiny, small_convolution])
def test_it_learns(make):
    network = make()
    learn(network, epochs=12)
    X, y = examples(5, n=200)
    assert np.mean(cn.predict(network, X) == y) > 0.9 and not network.training


@pytest.mark.parametrize("make", [tiny, small_convolution])
def test_a_seed_decides_all(make):
    runs = [learn(make(), seed=seed) for seed in (1, 1, 2)]
    assert_same(runs[0].snapshots, runs[1].snapshots)
    assert_same(runs[0].history, runs[1].history)
    assert not np.array_equal(runs[0].history["loss"], runs[2].history["loss"])


def test_the_global_generator_and_the_threads_stay_as_they_are():
    network, threads = tiny(), torch.get_num_threads()
    before = torch.get_rng_state()
    learn(network)
    cn.predict(network, examples()[0])
    assert torch.equal(before, torch.get_rng_state()) and torch.get_num_threads() == threads


class Stop(Exception):
    pass


class Watch:
    "Counts how often the network is watched, and stops the run after so many times."

    def __init__(self, stop=1000):
        self.left = stop

    def __call__(self, network):
        if not self.left:
            raise Stop
        self.left -= 1
        return {"training": float(network.training)}


def interrupted(network, after, X=None, y=None, **settings):
    with pytest.raises(Stop):
        learn(network, X, y, watch=Watch(after), **settings)


@pytest.mark.parametrize("make", [tiny, small_convolution])
@pytest.mark.parametrize("after", [1, 2, 3, 5])
def test_interrupted_and_resumed_to_the_same_bits(make, after, tmp_path):
    settings = {"epochs": 3, "watches": 2}
    whole, other = make(), make()
    straight = learn(whole, watch=Watch(), **settings)
    interrupted(other, after, checkpoint=tmp_path / "run", **settings)
    assert (tmp_path / "run").exists()
    for path in (tmp_path / "run", str(tmp_path / "run")):  # the second time all is done
        resumed = learn(other, watch=Watch(), checkpoint=path, **settings)
        assert_same(state(whole), state(other))
        assert_same(straight.history, resumed.history)
        assert_same(straight.snapshots, resumed.snapshots)


def test_resumed_in_a_new_process_state(tmp_path):
    "What the network holds before it resumes does not matter."
    whole, other = tiny(0), tiny(7)
    straight = learn(whole, epochs=3, watch=Watch())
    interrupted(tiny(0), 2, epochs=3, checkpoint=tmp_path / "run")
    assert_same(
        straight.snapshots,
        learn(other, epochs=3, watch=Watch(), checkpoint=tmp_path / "run").snapshots,
    )
    assert_same(state(whole), state(other))


CHANGES = {
    "epochs": {"epochs": 3},
    "batch_size": {"batch_size": 8},
    "learning_rate": {"learning_rate": 0.02},
    "watches": {"watches": 2},
    "seed": {"seed": 2},
}


@pytest.mark.parametrize(
    "change",
    [*CHANGES, "images", "labels", "function", "network", "loss", "watch", "kind", "other file"],
)
def test_a_checkpoint_of_another_run_is_refused(change, tmp_path):
    X, y = examples()
    path, network = tmp_path / "run", tiny()
    interrupted(network, 1, checkpoint=path)
    other = {"network": partial(tiny, primary=3), "kind": small_convolution}.get(change, tiny)()
    before = state(other)
    if change == "other file":
        cn._save_network(path, other)
    content = path.read_bytes()
    X = {"images": X + np.float32(0.1), "function": lambda epoch: X}.get(change, X)
    y = y[::-1] if change == "labels" else y
    loss = partial(cn._spread_loss) if change == "loss" else cn.growing_spread_loss
    settings = {"epochs": 2, "batch_size": 10, "seed": 1} | CHANGES.get(change, {})
    with pytest.raises(
        ValueError, match="written by a run with other settings, data or network; delete it"
    ):
        cn.learn(
            other,
            loss,
            X,
            y,
            watch=print if change == "watch" else Watch(),
            checkpoint=path,
            **settings,
        )
    assert_same(before, state(other))
    assert path.read_bytes() == content


def test_a_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "run"
    learn(tiny(), checkpoint=path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(StorageError, match="truncated"):
        learn(tiny(), checkpoint=path)


def test_images_from_a_function(tmp_path):
    X, y = examples()
    asked = []

    def images(epoch):
        asked.append(epoch)
        return X + epoch

    learned = learn(tiny(), images, y, epochs=3, watch=Watch())
    assert asked == [0, 1, 2]
    interrupted(network := tiny(), 2, images, y, epochs=3, checkpoint=tmp_path / "run")
    asked.clear()
    assert_same(
        learned.snapshots,
        learn(network, images, y, epochs=3, watch=Watch(), checkpoint=tmp_path / "run").snapshots,
    )
    assert asked == [2]


def test_what_is_watched():
    network, said = tiny(), []
    learned = learn(network, epochs=2, watches=2, watch=Watch(), report=said.append)
    assert np.allclose(learned.history["epoch"], [0.5, 1, 1.5, 2]) and np.all(
        learned.history["training"] == 1
    )
    assert len(said) == 4 and said[0].startswith("epoch 0.5, loss ")
    assert all(len(array) == 4 for array in learned.snapshots.values())
    assert_same({name: array[-1] for name, array in learned.snapshots.items()}, state(network))
    cn.restore(network, learned.snapshots, 1)
    assert_same({name: array[1] for name, array in learned.snapshots.items()}, state(network))
    assert (
        len(learn(tiny(), watches=100).history["epoch"]) == 8
    )  # no more often than there are steps


@pytest.mark.parametrize("n_steps", range(1, 9))
def test_few_steps(n_steps):
    X, y = examples(n=n_steps * 4 + 3)
    learned = learn(tiny(), X, y, epochs=1, batch_size=4, watches=n_steps)
    assert len(learned.history["loss"]) == n_steps and np.all(np.isfinite(learned.history["loss"]))


def test_a_loss_that_is_not_finite():
    network = tiny()
    with pytest.raises(
        FloatingPointError, match="the loss is nan in epoch 0; choose a smaller learning_rate"
    ):
        cn.learn(
            network, lambda scores, y, progress: scores.sum() * torch.nan, *examples(), epochs=1
        )


# What it is given

WRONG = {
    "flat images": (
        {"X": np.zeros((40, 25))},
        ValueError,
        r"images has shape \(40, 25\), but shape \(40, any, any\) is needed",
    ),
    "colours": ({"X": np.zeros((40, 5, 5, 3))}, ValueError, "images has shape"),
    "too few images": ({"X": np.zeros((39, 5, 5))}, ValueError, "images has shape"),
    "another side": (
        {"X": np.zeros((40, 6, 6))},
        ValueError,
        r"images has shape \(1, 6, 6\), but shape \(any, 5, 5\) is needed",
    ),
    "NaN": ({"X": np.full((40, 5, 5), np.nan)}, ValueError, "images contains NaN"),
    "infinity": ({"X": np.full((40, 5, 5), np.inf)}, ValueError, "images contains infinity"),
    "too large for 32 bits": (
        {"X": np.full((40, 5, 5), 1e300)},
        ValueError,
        "images contains infinity",
    ),
    "text": ({"X": np.full((40, 5, 5), "a")}, TypeError, "images must hold real numbers"),
    "complex": ({"X": np.zeros((40, 5, 5), complex)}, TypeError, "images must hold real numbers"),
    "None": ({"X": None, "y": np.zeros(40, int)}, TypeError, "images is None"),
    "a function of rubbish": (
        {"X": lambda epoch: np.full((40, 5, 5), np.nan)},
        ValueError,
        "images contains NaN",
    ),
    "label too large": (
        {"y": np.arange(40) % 4},
        ValueError,
        "y must lie between 0 and 2, but spans 0 to 3",
    ),
    "negative label": (
        {"y": np.arange(40) % 3 - 1},
        ValueError,
        "y must lie between 0 and 2, but spans -1 to 1",
    ),
    "labels that are no integers": (
        {"y": np.arange(40) % 3 + 0.5},
        TypeError,
        "y must hold integer class indices",
    ),
    "one-hot labels": ({"y": np.eye(3)[np.arange(40) % 3].astype(int)}, ValueError, "y has shape"),
    "no epochs": ({"epochs": 0}, ValueError, "epochs must be a whole number of at least 1, not 0"),
    "half an epoch": ({"epochs": 0.5}, ValueError, "epochs must be a whole number"),
    "no batch": ({"batch_size": 0}, ValueError, "batch_size must be a whole number"),
    "batch too large": (
        {"batch_size": 41},
        ValueError,
        "batch_size must be a number of at most 40, not 41; it may not exceed the number of images",
    ),
    "no watches": ({"watches": 0}, ValueError, "watches must be a whole number"),
    "no learning rate": (
        {"learning_rate": 0},
        ValueError,
        "learning_rate must be a number above 0",
    ),
    "learning rate NaN": (
        {"learning_rate": np.nan},
        ValueError,
        "learning_rate must be a number above 0",
    ),
}


@together("case", WRONG)
@pytest.mark.parametrize("make", [tiny, small_convolution])
def test_arguments_that_make_no_sense(case, make):
    changed, error, words = WRONG[case]
    X, y = examples()
    network = make()
    before = state(network)
    settings = {"images": X, "y": y, "epochs": 2, "batch_size": 10} | {
        "images" if k == "X" else k: v for k, v in changed.items()
    }
    with pytest.raises(error, match=words):
        cn.learn(
            network, cn.growing_spread_loss, settings.pop("images"), settings.pop("y"), **settings
        )
    assert_same(before, state(network))


@pytest.mark.parametrize(
    "side, settings, words",
    [
        (3, {}, "side: a grid of 2 × 2 places is too small|side: a grid of 1"),
        (1, {}, "side: a grid of 1 × 1 places is too small for windows of 2 × 2"),
        (5, {"n_iterations": 0}, "n_iterations must be a whole number of at least 1"),
        (5, {"primary": 0}, "primary must be a whole number"),
        (5, {"n_classes": 0}, "n_classes must be a whole number"),
        (0, {}, "side must be a whole number"),
        (5, {"e_step": "sum"}, "e_step must be 'factor' or 'exponent'"),
        (5, {"features": []}, "features has shape .*pass at least one layer"),
    ],
)
def test_networks_that_make_no_sense(side, settings, words):
    if side == 3:
        settings = settings | {"capsules": [(2, 3, 1)]}
    with pytest.raises(ValueError, match=words):
        tiny(side=side, **settings)


def variants(X):
    yield "float64", X.astype(np.float64)
    yield "big endian", X.astype(">f4")
    yield "Fortran order", np.asfortranarray(X)
    yield "every other", np.repeat(X, 2, axis=0)[::2]
    yield "backwards twice", X[::-1].copy()[::-1]
    yield "list", X.tolist()
    yield "tensor", torch.from_numpy(X)
    still = X.copy()
    still.flags.writeable = False
    yield "read-only", still


@pytest.mark.parametrize(
    "name, images", list(variants(examples()[0])), ids=lambda v: v if isinstance(v, str) else ""
)
def test_images_of_any_kind(name, images):
    X, y = examples()
    straight, other = tiny(), tiny()
    assert_same(learn(straight).snapshots, learn(other, images, y.tolist()).snapshots)
    assert np.array_equal(cn.scores(straight, X), cn.scores(other, images))


def test_bytes_and_booleans():
    X, y = examples()
    grey = np.round(255 * X).astype(np.uint8)
    assert np.array_equal(cn.scores(tiny(), grey), cn.scores(tiny(), grey.astype(np.float32)))
    learn(network := tiny(), grey, y)
    assert np.all(np.isfinite(cn.scores(network, grey > 100)))


@pytest.mark.parametrize("training", [False, True])
def test_predict_leaves_the_network_as_it_was(training):
    network, (X, _) = tiny().train(training), examples()
    before = state(network)
    whole = cn.scores(network, X)
    assert (
        np.allclose(whole, cn.scores(network, X, batch_size=7), atol=1e-6)
        and network.training == training
    )
    assert np.array_equal(cn.predict(network, X), whole.argmax(axis=1))
    assert cn.predict(network, X[:0]).shape == (0,) and cn.scores(network, X[:0]).shape == (0, 3)
    with pytest.raises(ValueError, match="images contains NaN"):
        cn.predict(network, X * np.nan)
    assert network.training == training
    assert_same(before, state(network))


EXTREME = {
    "blank": np.zeros((20, 5, 5)),
    "white": np.ones((20, 5, 5)),
    "constant, large": np.full((20, 5, 5), 1e6),
    "tiny": np.full((20, 5, 5), 1e-30),
    "one pixel": np.eye(25)[np.arange(20)].reshape(20, 5, 5),
    "huge": 1e15 * examples()[0][:20],
    "negative": -examples()[0][:20],
}


@together("case", EXTREME)
@pytest.mark.parametrize("training", [False, True])
def test_extreme_images_in_32_bits(case, training):
    network = tiny().train(training)
    X, y = torch.as_tensor(EXTREME[case], dtype=torch.float32), torch.as_tensor(examples()[1][:20])
    poses, activations = network.capsules(X)
    assert torch.all(torch.isfinite(poses)) and torch.all((activations >= 0) & (activations <= 1))
    cn._spread_loss(activations, y, 0.9).backward()
    assert all(torch.all(torch.isfinite(p.grad)) for p in network.parameters())
    learn(tiny(), EXTREME[case], examples()[1][:20])


def test_double_precision():
    network = tiny().double()
    learned = learn(network)
    assert cn.scores(network, examples()[0]).dtype == np.float64
    assert learned.snapshots["classes.transformations"].dtype == np.float64


# Files


@pytest.mark.parametrize(
    "make", [tiny, small_convolution, lambda: tiny().double(), lambda: tiny(capsules=())]
)
def test_saved_and_loaded(make, tmp_path):
    network, (X, _) = make(), examples()
    learn(network)
    cn._save_network(tmp_path / "network", network)
    before = torch.get_rng_state()
    again = cn._load_network(str(tmp_path / "network"))
    assert (
        torch.equal(before, torch.get_rng_state())
        and type(again) is type(network)
        and not again.training
    )
    assert_same(state(network), state(again))
    assert np.array_equal(cn.scores(network, X), cn.scores(again, X))
    learn(again)  # and can learn on


def test_files_that_hold_no_network(tmp_path):
    learn(tiny(), checkpoint=tmp_path / "run")
    with pytest.raises(StorageError, match="it holds 'capslit.routing.network.training/1'"):
        cn._load_network(tmp_path / "run")
    with pytest.raises(StorageError, match="there is no such file"):
        cn._load_network(tmp_path / "nothing")
    with pytest.raises(
        TypeError, match="network must be a CapsuleNetwork or a ConvolutionalNetwork, not Linear"
    ):
        cn._save_network(tmp_path / "linear", torch.nn.Linear(2, 2))
    assert not (tmp_path / "linear").exists()


WITHOUT = """
import sys
class Without:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Without())
try:
    import capslit.routing.network
except ImportError as error:
    print(error)
"""


def test_without_pytorch_one_clear_error():
    said = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    ).stdout
    assert said.strip() == "capslit.routing.network needs PyTorch: pip install capslit[torch]"


def test_settings_are_plain():
    network = tiny()
    assert json.loads(json.dumps(network.settings)) == network.settings


def test_an_image_may_have_several_labels():
    images = np.random.default_rng(0).random((12, 8, 8))
    pairs, seen = np.array([[0, 1], [1, 2], [0, 2]] * 4), []

    def loss(activations, labels, progress):
        seen.append(tuple(labels.shape))
        return (activations.sum(1) - activations.gather(1, labels).sum(1)).mean()

    net = cn.ConvolutionalNetwork(8, 3, features=((4, 3, 2),))
    cn.learn(net, loss, images, pairs, epochs=1, batch_size=4)
    assert seen == [(4, 2)] * 3
    with pytest.raises(ValueError, match="y has shape"):
        cn.learn(net, loss, images, np.zeros((12, 2), int), epochs=1, batch_size=4)
