"""The capsule network: against loops, finite differences and itself interrupted; what it is given
and what it must not touch.
"""

from functools import partial

import numpy as np
import pytest
from conftest import NO_WARNINGS, FORMS, together
from scipy.special import expit

torch = pytest.importorskip("torch", reason="PyTorch is not installed; pip install capslit[torch]")

from capslit.routing import network as cn  # noqa: E402
from capslit.routing.procedure import corrected_procedure, inverse_temperatures  # noqa: E402

pytestmark = pytest.mark.filterwarnings(*NO_WARNINGS)
TINY = {"features": [(3, 2, 1)], "primary": 2, "capsules": [(2, 2, 1)]}


def tiny(seed=0, side=5, n_classes=3, **settings):
    torch.manual_seed(seed)
    return cn.CapsuleNetwork(side, n_classes, **TINY | settings)


def small_convolution(seed=0):
    torch.manual_seed(seed)
    return cn.ConvolutionalNetwork(5, 3, features=[(4, 2, 1), (3, 2, 1)])


def examples(seed=0, n=40):
    "Images with a bright row that tells the class, and labels."
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = 0.2 * rng.random((n, 5, 5))
    X[np.arange(n), y] += 0.8
    return X.astype(np.float32), y


def learn(network, X=None, y=None, loss=cn.growing_spread_loss, **settings):
    X, y = examples() if X is None else (X, y)
    return cn.learn(network, loss, X, y, **{"epochs": 2, "batch_size": 10, "seed": 1} | settings)


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype and np.array_equal(a[name], b[name]), name


# The layers


def routed_by_hand(layer, votes, activations):
    "Poses and activations of one problem by the corrected procedure: votes (n, m, 16)."
    n, m, _ = votes.shape
    R = np.full((n, m), 1 / m)
    beta_u, beta_a = (beta.detach().numpy() for beta in (layer.beta_u, layer.beta_a))
    for lam in inverse_temperatures(layer.n_iterations, layer.final):
        parents, R = corrected_procedure(votes, activations, R, beta_u, beta_a / layer.last, lam)
    return parents.poses.reshape(m, 4, 4), parents.activations


def outputs(layer, seed, shape=(2, 4, 5, 3)):
    "Poses and activations of capsules, and a layer's with prices that differ."
    rng = np.random.default_rng(seed)
    poses, activations = rng.normal(size=(*shape, 4, 4)), rng.random(shape)
    with torch.no_grad():
        layer.beta_u += 0.3 * torch.randn(len(layer.beta_u))
        layer.beta_a += torch.randn(len(layer.beta_a))
        capsules = cn._Capsules(torch.from_numpy(poses), torch.from_numpy(activations))
        found = layer.double()(capsules)
    return poses, activations, found.poses.numpy(), found.activations.numpy()


@together("size, stride, n_iterations", [(3, 1, 1), (2, 2, 2), (2, 1, 3), (3, 2, 2)])
def test_convolutional_capsules_against_loops(size, stride, n_iterations):
    torch.manual_seed(0)
    layer = cn._ConvolutionalCapsules(3, 4, size, stride, spread=0.5, n_iterations=n_iterations)
    poses, activations, found, active = outputs(layer, size)
    W = layer.transformations.detach().numpy().reshape(size, size, 3, 4, 4, 4)
    n, rows, columns, types = active.shape
    assert (rows, columns, types) == ((4 - size) // stride + 1, (5 - size) // stride + 1, 4)
    for i, r, c in np.ndindex(n, rows, columns):
        here = np.s_[i, r * stride : r * stride + size, c * stride : c * stride + size]
        votes = np.einsum("yxtkl,yxtjlm->yxtjkm", poses[here], W).reshape(-1, 4, 16)
        M, a = routed_by_hand(layer, votes, activations[here].ravel())
        assert np.allclose(found[i, r, c], M, atol=1e-6)
        assert np.allclose(active[i, r, c], a, atol=1e-6)


@together("shared, coordinates, weighted", [(1, 1, 1), (0, 1, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0)])
def test_class_capsules_against_loops(shared, coordinates, weighted):
    torch.manual_seed(0)
    settings = {"shared": shared, "coordinates": coordinates, "weighted": weighted}
    layer = cn._ClassCapsules(3, 5, spread=0.5, n_places=20, **settings)
    poses, activations, found, active = outputs(layer, 1)
    W = layer.transformations.detach().numpy()
    assert len(W) == (3 if shared else 60)
    W = np.broadcast_to(W.reshape(-1, 3, 5, 4, 4), (20, 3, 5, 4, 4)).reshape(4, 5, 3, 5, 4, 4)
    for i in range(2):
        votes = np.einsum("rctkl,rctjlm->rctjkm", poses[i], W)
        votes[..., 0, 3] += coordinates * ((np.arange(4) + 0.5) / 4)[:, None, None, None]
        votes[..., 1, 3] += coordinates * ((np.arange(5) + 0.5) / 5)[:, None, None]
        counted = activations[i].ravel() if weighted else np.full(60, 0.5)
        M, a = routed_by_hand(layer, votes.reshape(60, 5, 16), counted)
        assert np.allclose(found[i], M, atol=1e-6) and np.allclose(active[i], a, atol=1e-6)


def test_primary_capsules_against_matrix_products():
    torch.manual_seed(0)
    layer = cn._PrimaryCapsules(5, 3).double()
    x = torch.randn(2, 5, 3, 4).double()
    features = x.numpy().transpose(0, 2, 3, 1)
    with torch.no_grad():
        poses, activations = layer(x)
    W, b, V, c = (p.detach().numpy() for p in layer.parameters())
    assert np.allclose(poses.numpy().reshape(2, 3, 4, 48), features @ W[:, :, 0, 0].T + b)
    assert np.allclose(activations.numpy(), expit(features @ V[:, :, 0, 0].T + c))


@together("n_iterations", [1, 2, 3])
def test_the_last_temperature_makes_the_logit_of_order_one(n_iterations):
    layer = cn._ClassCapsules(6, 10, n_places=9, n_iterations=n_iterations)
    assert np.isclose(inverse_temperatures(n_iterations, layer.final)[-1], layer.last)
    assert np.isclose(1 / layer.last, 16 * 6 * 9 / 10 / 2)


@together(
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


@together("make", [tiny, small_convolution])
def test_gradients_of_the_whole_network(make):
    network = make().double()
    names, leaves = zip(*network.named_parameters())
    X = torch.from_numpy(examples(3, n=3)[0]).double()

    def loss(images, *parameters):
        outputs = torch.func.functional_call(network, dict(zip(names, parameters)), (images,))
        return cn._spread_loss(outputs, torch.tensor([0, 2, 1]), 0.9)

    inputs = X.requires_grad_(), *leaves
    assert torch.autograd.gradcheck(loss, inputs, eps=1e-6, atol=1e-6, fast_mode=True)


# Learning


def test_a_seed_decides_all_and_nothing_else_is_touched():
    threads = torch.get_num_threads()
    networks = tiny(), tiny(), tiny()
    before = torch.get_rng_state()
    runs = [learn(network, seed=seed) for network, seed in zip(networks, (1, 1, 2))]
    assert torch.equal(before, torch.get_rng_state()) and torch.get_num_threads() == threads
    assert_same(runs[0].snapshots, runs[1].snapshots)
    assert_same(runs[0].history, runs[1].history)
    assert not np.array_equal(runs[0].history["loss"], runs[2].history["loss"])


class Stop(Exception):
    pass


class Watch:
    "Says whether the network is in training, and stops the run after so many times."

    def __init__(self, stop=1000):
        self.left = stop

    def __call__(self, network):
        if not self.left:
            raise Stop
        self.left -= 1
        return {"training": float(network.training)}


def interrupted(network, after, *data, **settings):
    with pytest.raises(Stop):
        learn(network, *data, watch=Watch(after), **settings)


@together("make", [tiny, small_convolution])
@together("after", [1, 3, 5])
def test_interrupted_and_resumed_to_the_same_bits(make, after, tmp_path):
    "Whatever the network holds before it resumes."
    settings = {"epochs": 3, "watches": 2}
    path = tmp_path / "run"
    whole = make()
    straight = learn(whole, watch=Watch(), **settings)
    interrupted(make(), after, checkpoint=path, **settings)
    other = make(7)
    for where in (path, str(path)):  # the second time all is done
        resumed = learn(other, watch=Watch(), checkpoint=where, **settings)
        assert_same(cn.network_arrays(whole), cn.network_arrays(other))
        assert_same(straight.history, resumed.history)
        assert_same(straight.snapshots, resumed.snapshots)
    assert not other.training


def test_images_from_a_function(tmp_path):
    X, y = examples()
    asked = []

    def images(epoch):
        asked.append(epoch)
        return X + epoch

    learned = learn(tiny(), images, y, epochs=3, watch=Watch())
    interrupted(tiny(), 2, images, y, epochs=3, checkpoint=tmp_path / "run")
    assert asked == [0, 1, 2, 0, 1, 2]
    again = learn(tiny(), images, y, epochs=3, watch=Watch(), checkpoint=tmp_path / "run")
    assert_same(learned.snapshots, again.snapshots)
    assert asked[6:] == [2]


OTHER_RUNS = [
    {"epochs": 3},
    {"batch_size": 8},
    {"learning_rate": 0.02},
    {"watches": 2},
    {"seed": 2},
    {"X": examples()[0] + np.float32(0.1)},
    {"X": lambda epoch: examples()[0]},
    {"y": examples()[1][::-1]},
    {"loss": partial(cn.growing_spread_loss)},
    {"watch": print},
    {"network": partial(tiny, primary=3)},
    {"network": small_convolution},
]


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    X, y = examples()
    path = tmp_path / "run"
    interrupted(tiny(), 1, checkpoint=path)
    content = path.read_bytes()
    for change in OTHER_RUNS:
        settings = {"network": tiny, "X": X, "y": y, "watch": Watch()} | change
        network = settings.pop("network")()
        before = cn.network_arrays(network)
        with pytest.raises(ValueError, match="with other settings, data or network; delete it"):
            learn(network, checkpoint=path, **settings)
        assert_same(before, cn.network_arrays(network))
        assert path.read_bytes() == content


def test_what_is_watched():
    network = tiny()
    said = []
    learned = learn(network, watches=2, watch=Watch(), report=said.append)
    assert np.allclose(learned.history["epoch"], [0.5, 1, 1.5, 2])
    assert np.all(learned.history["training"] == 1)
    assert len(said) == 4 and said[0].startswith("epoch 0.5, loss ")
    for moment in (-1, 1):
        cn.restore(network, learned.snapshots, moment)
        moments = {name: array[moment] for name, array in learned.snapshots.items()}
        assert_same(moments, cn.network_arrays(network))
    # no more often than there are steps
    assert len(learn(tiny(), watches=100).history["epoch"]) == 8


@together("n_steps", [1, 2, 3, 7])
def test_few_steps(n_steps):
    X, y = examples(n=n_steps * 4 + 3)
    learned = learn(tiny(), X, y, epochs=1, batch_size=4, watches=n_steps)
    assert len(learned.history["loss"]) == n_steps and np.all(np.isfinite(learned.history["loss"]))


def test_a_loss_that_is_not_finite():
    with pytest.raises(FloatingPointError, match="loss is nan in epoch 0; choose a smaller"):
        learn(tiny(), loss=lambda scores, y, progress: scores.sum() * torch.nan)


def test_an_image_may_have_several_labels():
    images = np.random.default_rng(0).random((12, 8, 8))
    pairs = np.array([[0, 1], [1, 2], [0, 2]] * 4)
    shapes = []

    def loss(activations, labels, progress):
        shapes.append(tuple(labels.shape))
        return (activations.sum(1) - activations.gather(1, labels).sum(1)).mean()

    net = cn.ConvolutionalNetwork(8, 3, features=((4, 3, 2),))
    cn.learn(net, loss, images, pairs, epochs=1, batch_size=4)
    assert shapes == [(4, 2)] * 3
    with pytest.raises(ValueError, match="y has shape"):
        cn.learn(net, loss, images, np.zeros((12, 2), int), epochs=1, batch_size=4)


# What it is given

codes = np.arange(40) % 3
WRONG = [
    ({"images": np.zeros((40, 25))}, r"images has shape \(40, 25\), but shape \(40, any, any\)"),
    ({"images": np.zeros((40, 6, 6))}, r"shape \(1, 6, 6\), but shape \(any, 5, 5\) is needed"),
    ({"images": np.full((40, 5, 5), np.nan)}, "images contains NaN"),
    ({"images": np.full((40, 5, 5), 1e300)}, "images contains infinity"),
    ({"images": lambda epoch: np.full((40, 5, 5), np.nan)}, "images contains NaN"),
    ({"y": np.arange(40) % 4}, "y must lie between 0 and 2, but spans 0 to 3"),
    ({"y": codes + 0.5}, "y must hold integer class indices"),
    ({"y": np.eye(3)[codes].astype(int)}, "y has shape"),
    ({"epochs": 0}, "epochs must be a whole number of at least 1, not 0"),
    ({"batch_size": 0}, "batch_size must be a whole number"),
    ({"batch_size": 41}, "batch_size must be .*at most 40, not 41; it may not exceed the number"),
    ({"watches": 0}, "watches must be a whole number"),
    ({"learning_rate": 0}, "learning_rate must be a number above 0"),
]


@together("changed, words", WRONG)
def test_arguments_that_make_no_sense(changed, words):
    network = tiny()
    before = cn.network_arrays(network)
    settings = {"images": examples()[0], "y": codes, "epochs": 2, "batch_size": 10} | changed
    with pytest.raises((TypeError, ValueError), match=words):
        cn.learn(network, cn.growing_spread_loss, **settings)
    assert_same(before, cn.network_arrays(network))


@together(
    "settings, words",
    [
        ({"side": 3, "capsules": [(2, 3, 1)]}, "side: a grid of 2 × 2 places is too small"),
        ({"side": 1}, "side: a grid of 1 × 1 places is too small for windows of 2 × 2"),
        ({"side": 0}, "side must be a whole number"),
        ({"n_iterations": 0}, "n_iterations must be a whole number of at least 1"),
        ({"primary": 0}, "primary must be a whole number"),
        ({"n_classes": 0}, "n_classes must be a whole number"),
        ({"e_step": "sum"}, "e_step must be 'factor' or 'exponent'"),
        ({"features": []}, "features has shape .*pass at least one layer"),
    ],
)
def test_networks_that_make_no_sense(settings, words):
    with pytest.raises(ValueError, match=words):
        tiny(**settings)


def test_images_of_any_kind():
    X, y = examples()
    network = tiny()
    straight = learn(network).snapshots
    kinds = ("list", "read-only", "strided", "reversed", "other byte order")
    forms = {name: FORMS[name](X) for name in kinds} | {"tensor": torch.from_numpy(X)}
    for images in (X.astype(np.float64), *forms.values()):
        other = tiny()
        assert_same(straight, learn(other, images, y.tolist()).snapshots)
        assert np.array_equal(cn.scores(network, X), cn.scores(other, images))
    grey = np.round(255 * X).astype(np.uint8)
    assert np.array_equal(cn.scores(network, grey), cn.scores(network, grey.astype(np.float32)))
    assert np.all(np.isfinite(cn.scores(network, grey > 100)))


@together("training", [False, True])
def test_predict_leaves_the_network_as_it_was(training):
    network = tiny().train(training)
    X, _ = examples()
    before = cn.network_arrays(network)
    whole = cn.scores(network, X)
    assert np.allclose(whole, cn.scores(network, X, batch_size=7), atol=1e-6)
    assert np.array_equal(cn.predict(network, X), whole.argmax(axis=1))
    assert cn.scores(network, X[:0]).shape == (0, 3)
    with pytest.raises(ValueError, match="images contains NaN"):
        cn.predict(network, X * np.nan)
    assert network.training == training
    assert_same(before, cn.network_arrays(network))


EXTREME = {
    "blank": np.zeros((20, 5, 5)),
    "constant, large": np.full((20, 5, 5), 1e6),
    "tiny": np.full((20, 5, 5), 1e-30),
    "one pixel": np.eye(25)[np.arange(20)].reshape(20, 5, 5),
    "huge": 1e15 * examples()[0][:20],
    "negative": -examples()[0][:20],
}


@together("case", EXTREME)
@together("training", [False, True])
def test_extreme_images_in_32_bits(case, training):
    network = tiny().train(training)
    y = examples()[1][:20]
    poses, activations = network.capsules(torch.as_tensor(EXTREME[case], dtype=torch.float32))
    assert torch.all(torch.isfinite(poses)) and torch.all((activations >= 0) & (activations <= 1))
    cn._spread_loss(activations, torch.as_tensor(y), 0.9).backward()
    assert all(torch.all(torch.isfinite(p.grad)) for p in network.parameters())
    learn(tiny(), EXTREME[case], y)


def test_double_precision():
    network = tiny(capsules=()).double()
    matrices = learn(network).snapshots["classes.transformations"]
    assert cn.scores(network, examples()[0]).dtype == matrices.dtype == np.float64
