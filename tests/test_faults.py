"""Nothing is lost on the way: processes that are killed, disks that are full, folders that cannot
be written to, batches that are bad.
"""

import errno
import functools
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE, together
from sklearn.datasets import load_digits

from capslit import em, storage
from capslit.capsules.engine import CapsuleRegression
from capslit.capsules.classifier import CapsuleClassifier
from capslit.composition.estimator import CompositionalModel
from capslit.em.checkpoint import CheckpointWarning
from capslit.em.stack import State
from capslit.em.statistics import BatchError
from capslit.factorial.quantizer import FactorialVectorQuantizer
from capslit.mixtures import GaussianMixture, MixtureOfFactorAnalyzers
from capslit.data.open import as_source
from capslit.storage import StorageError, load_arrays

KILLS = int(
    os.environ.get("CAPSLIT_KILLS", "8")
)  # 100 and more on occasion: CAPSLIT_KILLS=100 pytest tests/test_faults.py -k killed

PROBLEM = """
import numpy as np
from capslit import em
from capslit.capsules.engine import CapsuleParameters, CapsuleRegression, LeastSquares
from capslit.data.open import as_source

def problem(n=2000, p=20):
    "A model, its start, its data and a schedule."
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, p)).astype(np.float32), rng.integers(0, 4, n)
    solver = LeastSquares.from_gram((X.T @ X)[None].astype(float))
    model = CapsuleRegression(np.arange(4)[None], np.full((1, 4), 3), solver)
    start = CapsuleParameters(0.1 * rng.standard_normal((1, 4, 3, p)))
    rounds = [em.Round(9, {"threshold": 0.5}), em.Round(9, {"threshold": 0.0})]
    schedule = dict(rounds=rounds, momentum=0.9, monitor="error", max_iter=60, n_threads=1)
    return model, start, (X, y), schedule
"""
exec(PROBLEM)

HARNESS = (
    PROBLEM
    + """
import os, random, signal, sys
from capslit.storage import load_arrays

folder, kills = sys.argv[1], int(sys.argv[2])
checkpoint, result = f"{folder}/run.npz", f"{folder}/result.npy"
model, start, (X, y), schedule = problem()
np.save(f"{folder}/X.npy", X)
source = as_source(np.load(f"{folder}/X.npy", mmap_mode="r"), y, labelled=True)

def learn(seconds=0.0):
    '''In a process of its own: the whole fit, from wherever the checkpoint stands. Its bits are the
    result. The process is killed when it has used so many seconds of the processor's time, which do
    not depend on what else the machine does; with 0, never. Returns its status and the seconds.'''
    child = os.fork()
    if child == 0:
        try:
            signal.setitimer(signal.ITIMER_PROF, seconds)  # no handler: the signal ends the process
            run = em.fit(
                model, start, source, checkpoint=checkpoint, checkpoint_every=0, **schedule
            )
            history = [run.history[name].ravel() for name in sorted(run.history)]
            bits = np.concatenate([run.parameters.weights.ravel(), *history])
            np.save(result + ".part.npy", bits)
            os.replace(result + ".part.npy", result)
            os._exit(0)
        finally:
            os._exit(1)
    _, status, used = os.wait4(child, 0)
    return status, used.ru_utime + used.ru_stime

status, seconds = learn()
assert status == 0
whole = np.load(result).tobytes()
os.remove(result), os.remove(checkpoint)

random.seed(0)
killed = finished = resumed = 0
while resumed < kills or not os.path.exists(result):
    if os.path.exists(result):  # the next fit, from the beginning
        os.remove(result), os.remove(checkpoint)
    status, _ = learn(random.uniform(0.001, 0.6 * seconds) if resumed < kills else 0.0)
    assert os.WIFSIGNALED(status) or status == 0, status
    killed += os.WIFSIGNALED(status)
    if os.path.exists(checkpoint):
        arrays, _ = load_arrays(checkpoint)  # whole, whenever the process died
        iterations = len(arrays.get("history.objective", ()))  # none before the first iteration
        resumed += os.WIFSIGNALED(status) and 0 < iterations < 60
    if os.path.exists(result):
        assert np.load(result).tobytes() == whole, "other bits"
        finished += 1
left = sorted(os.listdir(folder))
print(killed, finished, resumed, *left)
"""
)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork, which Windows has not")
def test_a_fit_killed_at_random_moments_ends_with_the_same_bits(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", HARNESS, str(tmp_path), str(KILLS)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    killed, finished, resumed, *left = done.stdout.split()
    print(
        f"killed {killed} times, {resumed} of them in the middle; {finished} fits ended, all with"
        " the same bits"
    )
    assert int(killed) >= int(resumed) == KILLS and int(finished) >= 1
    assert left == ["X.npy", "result.npy", "run.npz"]  # no half-written file is left behind


# -------------------------------------------------------------------------------------------------
# Checkpoints that cannot be written


class Interfering:
    "Batches of the data in memory; `at[t]()` is called before pass number t begins."

    def __init__(self, data, at):
        self.data, self.at, self.passes = data, at, 0

    def __call__(self):
        self.passes += 1
        self.at.get(self.passes, lambda: None)()
        return iter([self.data])


def learn(at, checkpoint, **options):
    "A fit whose passes over the data are disturbed, the warnings, and the undisturbed fit."
    model, start, (X, y), schedule = problem()
    whole = em.fit(model, start, (X, y, None), **schedule)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = em.fit(
            model,
            start,
            Interfering((X, y, None), at),
            checkpoint=checkpoint,
            checkpoint_every=0,
            **schedule | options,
        )
    return run, caught, whole


def full_file_system(path):
    """Nothing larger than a few bytes can be written by this process: as a disk that is full, but
    for the number of the error.
    """
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    return lambda: resource.setrlimit(
        resource.RLIMIT_FSIZE, (100, limit[1])
    ), lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit)


def full_disk(path):
    "A small disk in memory at the folder of the path, which something else fills up."
    filler = path.parent / "filler"

    def fill():
        with open(filler, "wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(bytes(4096))

    return fill, filler.unlink


def read_only_folder(path):
    "A folder that must not be written to, by a user who is not root."
    root = os.geteuid() == 0

    def lock():
        path.parent.chmod(0o555)
        if root:
            os.seteuid(65534)

    def unlock():
        if root:
            os.seteuid(0)
        path.parent.chmod(0o755)

    return lock, unlock


def lost_folder(path):
    "Something else has taken the place of the folder."
    aside = path.parent.with_name("aside")

    def lose():
        path.parent.rename(aside)
        path.parent.write_text("a file")

    def find():
        path.parent.unlink()
        aside.rename(path.parent)

    return lose, find


OBSTACLES = {
    "file size": (full_file_system, "limit set for this process"),
    "full disk": (full_disk, "the disk is full"),
    "read-only": (read_only_folder, "permission denied"),
    "lost folder": (lost_folder, "a part of this path is a file"),
}


@pytest.fixture(params=OBSTACLES)
def obstacle(request):
    """The path of a checkpoint, how to make it impossible to write there and possible again, and
    what is then said.
    """
    make, said = OBSTACLES[request.param]
    folder = Path(
        tempfile.mkdtemp(prefix="capslit-")
    )  # pytest's own folders are closed to other users
    folder.chmod(0o755)
    (folder / "disk").mkdir()
    mounted = (
        request.param == "full disk"
        and subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder / "disk")],
            capture_output=True,
        ).returncode
        == 0
    )
    if request.param == "full disk" and not mounted:
        shutil.rmtree(folder)
        pytest.skip("a small disk cannot be mounted here; only root may do so")
    hinder, help = make(folder / "disk" / "run.npz")
    yield folder / "disk" / "run.npz", hinder, help, said
    if mounted:
        subprocess.run(["umount", str(folder / "disk")], check=True)
    shutil.rmtree(folder)


def test_learning_goes_on_when_checkpoints_cannot_be_written(obstacle):
    path, hinder, help, said = obstacle
    run, caught, whole = learn({5: hinder, 9: help}, path)
    assert run.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert [w.category for w in caught] == [
        CheckpointWarning
    ] * 4  # after the iterations 5, 6, 7 and 8
    assert all(
        said in str(w.message)
        and str(path) in str(w.message)
        and "Learning goes on" in str(w.message)
        for w in caught
    )
    assert load_arrays(path)[0]["history.objective"].shape == (
        run.n_iter,
        1,
    )  # the disk was free again, and it was written


def test_the_last_good_checkpoint_stays(obstacle):
    path, hinder, help, said = obstacle
    try:
        run, caught, whole = learn({5: hinder}, path)
    finally:
        help()
    assert {w.category for w in caught} == {
        CheckpointWarning
    } and run.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert load_arrays(path)[0]["history.objective"].shape == (4, 1)
    assert sorted(p.name for p in path.parent.iterdir()) == ["run.npz"]  # nothing half-written
    resumed, caught, _ = learn({}, path)
    assert not caught and resumed.parameters.weights.tobytes() == whole.parameters.weights.tobytes()


def test_at_the_beginning_it_is_an_error(obstacle):
    path, hinder, help, said = obstacle
    model, start, (X, y), schedule = problem()
    data = Interfering((X, y, None), {})
    hinder()
    try:
        with pytest.raises(StorageError, match=said):
            em.fit(model, start, data, checkpoint=path, **schedule)
    finally:
        help()
    assert data.passes == 0 and not path.exists()


@together("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EBADF])
def test_every_error_of_the_disk_is_survived(tmp_path, monkeypatch, number):
    def refuse(*args):
        raise OSError(number, os.strerror(number))

    run, caught, whole = learn(
        {5: lambda: monkeypatch.setattr(storage.os, "fsync", refuse), 8: monkeypatch.undo},
        tmp_path / "run.npz",
    )
    assert run.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert [w.category for w in caught] == [CheckpointWarning] * 3 and "run.npz" in str(
        caught[0].message
    )
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


# -------------------------------------------------------------------------------------------------
# Errors in the middle of learning


def batches(X, y, fault, at_pass):
    "Ten batches, of which number 7 is at fault in one of the passes."
    passes = 0

    def stream():
        nonlocal passes
        passes += 1
        for index, (x, labels) in enumerate(zip(np.split(X, 10), np.split(y, 10))):
            if passes == at_pass and index == 7:
                x = fault(x)
            yield x, labels

    return stream


def with_nan(x):
    return np.where(np.arange(x.size).reshape(x.shape) == 33, np.nan, x)


def raises(x):
    raise OSError(errno.EIO, "the disk reports a fault")


BATCHES = {
    "NaN": (with_nan, "X contains NaN"),
    "infinity": (lambda x: x / 0, "X contains (NaN|infinity)"),
    "empty": (lambda x: x[:0], "X has shape .* with no length of 0"),
    "width": (lambda x: x[:, :-2], "X has 18 features, but the batches before it have 20"),
    "raises": (raises, "OSError: .*reports a fault"),
}


def fit_batches(stream, where, n_threads, **options):
    "A fit whose training or validation examples come in the batches of `stream`."
    model, start, (X, y), schedule = problem()
    source = as_source(
        stream,
        labelled=True,
        names=("X", "y", "w") if where == "training" else ("X_val", "y_val", "w_val"),
    )
    data, held_out = (
        (source, None) if where == "training" else (as_source([(X, y)], labelled=True), source)
    )
    schedule |= {
        "n_threads": n_threads,
        "monitor": "validation" if where == "validation" else "error",
    }
    return em.fit(model, start, data, validation=held_out, **schedule | options)


@functools.cache
def healthy_fit(where, n_threads, **options):
    return fit_batches(batches(*problem()[2], None, 0), where, n_threads, **options)


@together("fault, message", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("where", ["training", "validation"])
@together("n_threads", [1, 2])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_bad_batch_leaves_the_last_good_parameters(tmp_path, fault, message, where, n_threads):
    X, y = problem()[2]
    path, at_pass = (
        tmp_path / "run.npz",
        6 if where == "training" else 7,
    )  # the first tells this run from others
    named = message.replace("X ", "X_val ") if where == "validation" else message
    with pytest.raises(BatchError, match=f"^batch 7: {named}") as caught:
        fit_batches(
            batches(X, y, fault, at_pass), where, n_threads, checkpoint=path, checkpoint_every=1e9
        )
    before = healthy_fit(where, n_threads, max_iter=5)
    assert caught.value.index == 7 and caught.value.fit.n_iter == 5
    assert caught.value.fit.parameters.weights.tobytes() == before.parameters.weights.tobytes()
    assert (
        load_arrays(path)[0]["best.weights"].tobytes() == before.parameters.weights.tobytes()
    )  # written because of the error
    whole, resumed = (
        healthy_fit(where, n_threads),
        fit_batches(batches(X, y, None, 0), where, n_threads, checkpoint=path),
    )
    assert resumed.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert all(
        np.array_equal(resumed.history[name], whole.history[name], equal_nan=True)
        for name in whole.history
    )


def test_a_bad_batch_at_the_start_leaves_nothing_and_while_resuming_what_there_was(tmp_path):
    model, start, (X, y), schedule = problem()
    bad = as_source(batches(X, y, with_nan, 1), labelled=True)
    with pytest.raises(BatchError) as caught:
        em.fit(model, start, bad, **schedule)
    assert caught.value.fit is None
    before = em.fit(
        model, start, (X, y, None), **schedule | {"max_iter": 5, "checkpoint": tmp_path / "run.npz"}
    )
    written = (tmp_path / "run.npz").read_bytes()
    with pytest.raises(BatchError) as caught:
        em.fit(
            model,
            start,
            as_source(batches(X, y, with_nan, 1), labelled=True),
            checkpoint=tmp_path / "run.npz",
            **schedule,
        )
    assert caught.value.fit.parameters.weights.tobytes() == before.parameters.weights.tobytes()
    assert (tmp_path / "run.npz").read_bytes() == written


def test_batches_that_go_straight_to_the_engine_have_numbers_as_well():
    model, start, (X, y), schedule = problem()
    stream = batches(X, y, raises, 3)
    with pytest.raises(BatchError, match="^batch 7: OSError") as caught:
        em.fit(model, start, lambda: ((x, labels, None) for x, labels in stream()), **schedule)
    assert caught.value.fit.n_iter == 2 and isinstance(caught.value.__cause__, OSError)


def test_an_iteration_that_is_interrupted_half_way_does_not_count(tmp_path, monkeypatch):
    model, start, (X, y), schedule = problem()
    moved, calls = State.moved, []

    def interrupted(self, *where):  # the history has been written, the next parameters have not
        calls.append(self.n_iter)
        if len(calls) == 7:
            raise KeyboardInterrupt
        return moved(self, *where)

    path = tmp_path / "run.npz"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(State, "moved", interrupted)
        em.fit(model, start, (X, y, None), checkpoint=path, checkpoint_every=1e9, **schedule)
    assert calls == [1, 2, 3, 4, 5, 6, 7] and load_arrays(path)[0]["history.objective"].shape == (
        6,
        1,
    )
    whole, again = (
        em.fit(model, start, (X, y, None), checkpoint=c, **schedule) for c in (None, path)
    )
    assert again.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    assert all(
        np.array_equal(again.history[name], whole.history[name], equal_nan=True)
        for name in whole.history
    )


@together("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_an_interruption_writes_the_checkpoint_first(tmp_path, error):
    model, start, (X, y), schedule = problem()
    whole = em.fit(model, start, (X, y, None), **schedule)

    class Interrupted(CapsuleRegression):
        steps = []

        def m_step(self, parameters, statistics):
            self.steps.append(1)
            if len(self.steps) == 7:
                raise error
            return super().m_step(parameters, statistics)

    path = tmp_path / "run.npz"
    with pytest.raises(error):
        em.fit(
            Interrupted(model.targets, model.dims, model.solver),
            start,
            (X, y, None),
            checkpoint=path,
            checkpoint_every=1e9,
            **schedule,
        )
    assert load_arrays(path)[0]["history.objective"].shape == (6, 1)
    assert (
        em.fit(model, start, (X, y, None), checkpoint=path, **schedule).parameters.weights.tobytes()
        == whole.parameters.weights.tobytes()
    )


INTERRUPTED = PROBLEM + textwrap.dedent("""
    import os, signal, sys, threading, time
    from capslit.storage import load_arrays
    # a program in the background may have inherited SIGINT as ignored
    signal.signal(signal.SIGINT, signal.default_int_handler)
    model, start, (X, y), schedule = problem(100_000)
    schedule |= {"n_threads": 2, "max_iter": 10**6, "rounds": [em.Round(10**6, {"threshold": 0.0})]}
    under_way, calls, m_step = threading.Event(), [], CapsuleRegression.m_step
    def counted(self, *arguments):
        calls.append(self)
        if len(calls) == 3:
            under_way.set()
        return m_step(self, *arguments)
    def interrupt():
        under_way.wait()
        time.sleep(0.1)  # anywhere in an iteration
        os.kill(os.getpid(), signal.SIGINT)
    CapsuleRegression.m_step = counted
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        em.fit(model, start, (X, y, None), checkpoint=sys.argv[1], checkpoint_every=1e9, **schedule)
    except KeyboardInterrupt:
        print("interrupted")
    steps = len(load_arrays(sys.argv[1])[0]["history.objective"])
    whole = em.fit(model, start, (X, y, None), **schedule | {"max_iter": steps + 2})
    longer = schedule | {"max_iter": steps + 2}
    again = em.fit(model, start, (X, y, None), checkpoint=sys.argv[1], **longer)
    same = again.parameters.weights.tobytes() == whole.parameters.weights.tobytes()
    print(same and again.n_iter == whole.n_iter)
""")


def test_control_c_loses_at_most_an_iteration(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "run.npz")],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.stdout.split() == ["interrupted", "True"], done.stderr


LOCKED = textwrap.dedent("""
    import faulthandler, signal, threading
    from typing import NamedTuple
    import numpy as np
    from capslit import em
    faulthandler.dump_traceback_later(600, exit=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    class Total(NamedTuple):
        value: np.ndarray
    enter, main, calls, at = threading.Condition.__enter__, threading.get_ident(), 0, 0
    def entered(lock):
        global calls
        locked = enter(lock)
        if threading.get_ident() == main:
            calls += 1
            if calls == at:
                # the lock is taken, but no other thread has seen it yet
                signal.raise_signal(signal.SIGINT)
        return locked
    threading.Condition.__enter__ = entered
    ended = []
    for at in range(1, 41):
        calls, pressed = 0, False
        try:
            with em.threads(2) as pool:
                data = (np.ones((10_000, 3)),)
                em.accumulate(lambda block: Total(block[0].sum(axis=0)), data, 256, pool)
        except KeyboardInterrupt:
            pressed = True
        ended.append(pressed == (calls >= at))
    print(len(ended), all(ended), signal.getsignal(signal.SIGINT) is signal.default_int_handler)
""")


def test_control_c_leaves_no_lock_closed():
    """Wherever it comes while the pool is handed work or asked for results: the pool ends, and so
    does the program.
    """
    done = subprocess.run(
        [sys.executable, "-c", LOCKED], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.split() == ["40", "True", "True"], done.stderr


def test_what_a_killed_writer_left_is_swept_away(tmp_path):
    model, start, (X, y), schedule = problem()
    for name in (".run.npz.0123abcd.part", ".other.npz.0123abcd.part"):
        (tmp_path / name).write_bytes(b"half")
    em.fit(
        model, start, (X, y, None), checkpoint=tmp_path / "run.npz", **schedule | {"max_iter": 1}
    )
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.npz.0123abcd.part", "run.npz"]


# -------------------------------------------------------------------------------------------------
# Runs that would not begin alike


def digits(n=200):
    X, y = load_digits(return_X_y=True)
    return X[:n] / 16, y[:n]


def classifier(**settings):
    return CapsuleClassifier.paper(
        **{
            "capsule_dim": 2,
            "thresholds": (0,),
            "patience": (1,),
            "max_iter": 2,
            "early_stopping": False,
        }
        | settings
    )


RANDOM = {
    "held out": (classifier, {"early_stopping": True}),
    "random weights": (classifier, {"init": "random"}),
    "short spectrum": (classifier, {"capsule_dim": 64}),
    "k-means": (GaussianMixture, {"n_components": 3, "max_iter": 2}),
    "manifolds": (MixtureOfFactorAnalyzers, {"n_components": 2, "n_factors": 1, "max_iter": 2}),
    "causes": (FactorialVectorQuantizer, {"n_vectors": 2, "n_states": 2, "max_iter": 2}),
    "experts": (CompositionalModel, {"n_experts": 2, "init": "random", "max_iter": 2}),
}


@pytest.mark.filterwarnings("ignore")
@together("case", RANDOM)
def test_a_start_at_random_and_a_checkpoint_need_a_number(tmp_path, case):
    make, settings = RANDOM[case]
    X, y = digits()
    X = np.round(X) if make is CompositionalModel else X
    for chance in (None, np.random.RandomState(0)):
        with pytest.raises(ValueError, match="checkpoint needs random_state to be a whole number"):
            make(**settings, random_state=chance).fit(X, y, checkpoint=tmp_path / "run.npz")
        assert not list(tmp_path.iterdir())
    make(**settings, random_state=np.int64(0)).fit(X, y, checkpoint=tmp_path / "run.npz")
    make(**settings | {"max_iter": 3}, random_state=np.int64(0)).fit(
        X, y, checkpoint=tmp_path / "run.npz"
    )


MEANS = np.random.default_rng(0).random((3, 64))
CERTAIN = {
    "subspaces": (classifier, {}),
    "given weights": (classifier, {"init": np.ones((10, 2, 64))}),
    "given means": (GaussianMixture, {"n_components": 3, "means_init": MEANS, "max_iter": 2}),
    "one component": (GaussianMixture, {"n_components": 1, "max_iter": 2}),
    "one manifold": (MixtureOfFactorAnalyzers, {"n_components": 1, "n_factors": 1, "max_iter": 2}),
    "sequential": (CompositionalModel, {"n_experts": 2, "init": "sequential", "max_iter": 2}),
}


@pytest.mark.filterwarnings("ignore")
@together("case", CERTAIN)
def test_where_nothing_is_drawn_a_checkpoint_needs_no_number(tmp_path, case):
    make, settings = CERTAIN[case]
    X, y = digits()
    X = np.round(X) if make is CompositionalModel else X
    make(**settings).fit(X, y, checkpoint=tmp_path / "run.npz")
    make(**settings | {"max_iter": 3}).fit(X, y, checkpoint=tmp_path / "run.npz")


@pytest.mark.filterwarnings("ignore")
def test_held_out_examples_that_are_given_are_not_drawn(tmp_path):
    X, y = digits(400)
    classifier(early_stopping=True).fit(
        X[:300], y[:300], X_val=X[300:], y_val=y[300:], checkpoint=tmp_path / "run.npz"
    )


@pytest.mark.filterwarnings("ignore")
def test_renamed_classes_another_prior_and_other_validation_examples_are_other_data(tmp_path):
    X, y = digits(400)
    path, given = tmp_path / "run.npz", dict(X_val=X[300:], y_val=y[300:])
    classifier().fit(X[:300], y[:300], checkpoint=path, **given)
    names = np.array("zero one two three four five six seven eight nine".split())
    for labels, other in ((9 - y, {}), (names[y], {})):
        with pytest.raises(ValueError, match="other data"):
            classifier(**other).fit(
                X[:300], labels[:300], X_val=X[300:], y_val=labels[300:], checkpoint=path
            )
    with pytest.raises(ValueError, match="other settings"):
        classifier(alpha=100.0).fit(X[:300], y[:300], checkpoint=path, **given)
    with pytest.raises(ValueError, match="other data"):
        classifier().fit(X[:300], y[:300], X_val=X[300:350], y_val=y[300:350], checkpoint=path)
    classifier(max_iter=3).fit(X[:300], y[:300], checkpoint=path, **given)


def test_a_saved_model_is_no_checkpoint(tmp_path):
    X, y = digits()
    model = GaussianMixture(2, random_state=0).fit(X)
    model.save(tmp_path / "model.npz")
    with pytest.raises(
        ValueError,
        match="is no checkpoint: the file holds 'capslit.GaussianMixture/2'; pass another path",
    ):
        model.fit(X, checkpoint=tmp_path / "model.npz")
