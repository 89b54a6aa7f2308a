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
from capslit.capsules.classifier import CapsuleClassifier
from capslit.capsules.engine import CapsuleRegression
from capslit.composition.estimator import CompositionalModel
from capslit.data.open import as_source
from capslit.em.checkpoint import CheckpointWarning
from capslit.em.stack import State
from capslit.em.statistics import BatchError
from capslit.factorial.quantizer import FactorialVectorQuantizer
from capslit.mixtures import GaussianMixture, MixtureOfFactorAnalyzers
from capslit.storage import StorageError, load_arrays

# 100 and more on occasion: CAPSLIT_KILLS=100 pytest tests/test_faults.py -k killed
KILLS = int(os.environ.get("CAPSLIT_KILLS", "8"))

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


MODEL, START, (X, Y), SCHEDULE = problem()
DATA = (X, Y, None)


@functools.cache
def healthy():
    return em.fit(MODEL, START, DATA, **SCHEDULE)


def assert_same(run, other):
    "To the same bits."
    assert run.parameters.weights.tobytes() == other.parameters.weights.tobytes()
    for name, values in other.history.items():
        assert np.array_equal(run.history[name], values, equal_nan=True), name


def run_python(program, *words, **environ):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=os.environ | environ,
    )


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
    done = run_python(HARNESS, tmp_path, KILLS, OPENBLAS_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    killed, finished, resumed, *left = done.stdout.split()
    assert int(killed) >= int(resumed) == KILLS and int(finished) >= 1
    assert left == ["X.npy", "result.npy", "run.npz"]  # no half-written file is left behind


# ── checkpoints that cannot be written


class Interfering:
    "Batches of the data in memory; `at[t]()` is called before pass number t begins."

    def __init__(self, at):
        self.at, self.passes = at, 0

    def __call__(self):
        self.passes += 1
        self.at.get(self.passes, lambda: None)()
        return iter([DATA])


def learn(at, checkpoint):
    "The warnings of a fit whose passes over the data are disturbed, and which ends as it should."
    options = {"checkpoint": checkpoint, "checkpoint_every": 0} | SCHEDULE
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = em.fit(MODEL, START, Interfering(at), **options)
    assert_same(run, healthy())
    assert {w.category for w in caught} <= {CheckpointWarning}
    return [str(w.message) for w in caught]


def iterations(path):
    return len(load_arrays(path)[0]["history.objective"])


def full_file_system(path):
    """Nothing larger than a few bytes can be written by this process: as a disk that is full, but
    for the number of the error.
    """
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))

    return limit(100), limit(usual[0])


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
    # pytest's own folders are closed to other users
    folder = Path(tempfile.mkdtemp(prefix="capslit-"))
    folder.chmod(0o755)
    disk = folder / "disk"
    disk.mkdir()
    mounted = False
    if request.param == "full disk":
        words = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(disk)]
        mounted = subprocess.run(words, capture_output=True).returncode == 0
        if not mounted:
            shutil.rmtree(folder)
            pytest.skip("a small disk cannot be mounted here; only root may do so")
    yield disk / "run.npz", *make(disk / "run.npz"), said
    if mounted:
        subprocess.run(["umount", str(disk)], check=True)
    shutil.rmtree(folder)


def test_a_checkpoint_that_cannot_be_written_loses_nothing(obstacle):
    "An error at the beginning, a warning later; the last good one stays, and is written over."
    path, hinder, help, said = obstacle
    data = Interfering({})
    hinder()
    try:
        with pytest.raises(StorageError, match=said):
            em.fit(MODEL, START, data, checkpoint=path, **SCHEDULE)
    finally:
        help()
    assert data.passes == 0 and not path.exists()
    try:
        caught = learn({5: hinder}, path)
    finally:
        help()
    assert all(said in words and str(path) in words for words in caught)
    assert all("Learning goes on" in words for words in caught)
    assert iterations(path) == 4
    assert [p.name for p in path.parent.iterdir()] == ["run.npz"]  # nothing half-written
    assert not learn({}, path)
    path.unlink()
    assert len(learn({5: hinder, 9: help}, path)) == 4  # after the iterations 5, 6, 7 and 8
    assert iterations(path) == healthy().n_iter


@together("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EBADF])
def test_every_error_of_the_disk_is_survived(tmp_path, monkeypatch, number):
    def refuse(*args):
        raise OSError(number, os.strerror(number))

    def hinder():
        monkeypatch.setattr(storage.os, "fsync", refuse)

    caught = learn({5: hinder, 8: monkeypatch.undo}, tmp_path / "run.npz")
    assert len(caught) == 3 and "run.npz" in caught[0]
    assert [p.name for p in tmp_path.iterdir()] == ["run.npz"]


# ── errors in the middle of learning


def batches(fault, at_pass):
    "Ten batches, of which number 7 is at fault in one of the passes."
    passes = 0

    def stream():
        nonlocal passes
        passes += 1
        for index, (x, labels) in enumerate(zip(np.split(X, 10), np.split(Y, 10))):
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
    kept = as_source([(X, Y)], labelled=True)
    schedule = SCHEDULE | {"n_threads": n_threads}
    if where == "training":
        data, held_out = as_source(stream, labelled=True), None
    else:
        schedule["monitor"] = "validation"
        data, held_out = kept, as_source(stream, labelled=True, names=("X_val", "y_val", "w_val"))
    return em.fit(MODEL, START, data, validation=held_out, **schedule | options)


@functools.cache
def healthy_fit(where, n_threads, **options):
    return fit_batches(batches(None, 0), where, n_threads, **options)


@together("fault, message", BATCHES.values())
@pytest.mark.parametrize("where", ["training", "validation"])
@together("n_threads", [1, 2])
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_a_bad_batch_leaves_the_last_good_parameters(tmp_path, fault, message, where, n_threads):
    path = tmp_path / "run.npz"
    checkpoint = {"checkpoint": path, "checkpoint_every": 1e9}
    at_pass = 6 if where == "training" else 7  # the first tells this run from others
    named = message.replace("X ", "X_val ") if where == "validation" else message
    with pytest.raises(BatchError, match=f"^batch 7: {named}") as caught:
        fit_batches(batches(fault, at_pass), where, n_threads, **checkpoint)
    before = healthy_fit(where, n_threads, max_iter=5)
    assert caught.value.index == 7
    assert_same(caught.value.fit, before)
    kept = load_arrays(path)[0]["best.weights"]  # written because of the error
    assert kept.tobytes() == before.parameters.weights.tobytes()
    resumed = fit_batches(batches(None, 0), where, n_threads, checkpoint=path)
    assert_same(resumed, healthy_fit(where, n_threads))


def test_a_bad_batch_at_the_start_leaves_nothing_and_while_resuming_what_there_was(tmp_path):
    path = tmp_path / "run.npz"
    bad = as_source(batches(with_nan, 1), labelled=True)
    with pytest.raises(BatchError) as caught:
        em.fit(MODEL, START, bad, **SCHEDULE)
    assert caught.value.fit is None
    before = em.fit(MODEL, START, DATA, checkpoint=path, **SCHEDULE | {"max_iter": 5})
    written = path.read_bytes()
    bad = as_source(batches(with_nan, 1), labelled=True)
    with pytest.raises(BatchError) as caught:
        em.fit(MODEL, START, bad, checkpoint=path, **SCHEDULE)
    assert_same(caught.value.fit, before)
    assert path.read_bytes() == written
    stream = batches(raises, 3)  # straight to the engine, they have numbers as well
    with pytest.raises(BatchError, match="^batch 7: OSError") as caught:
        em.fit(MODEL, START, lambda: ((*pair, None) for pair in stream()), **SCHEDULE)
    assert caught.value.fit.n_iter == 2 and isinstance(caught.value.__cause__, OSError)


@together("error", [KeyboardInterrupt, MemoryError, SystemExit])
@together("place", [(State, "moved"), (CapsuleRegression, "m_step")])
def test_an_interruption_writes_the_checkpoint_first(tmp_path, monkeypatch, error, place):
    "Also when the history has been written, and the next parameters have not."
    usual, calls = getattr(*place), []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 7:
            raise error
        return usual(*arguments)

    path = tmp_path / "run.npz"
    (tmp_path / ".run.npz.0123abcd.part").write_bytes(b"half")  # left by a killed writer
    (tmp_path / ".other.npz.0123abcd.part").write_bytes(b"half")
    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(*place, interrupted)
        em.fit(MODEL, START, DATA, checkpoint=path, checkpoint_every=1e9, **SCHEDULE)
    assert iterations(path) == 6
    assert sorted(p.name for p in tmp_path.iterdir()) == [".other.npz.0123abcd.part", "run.npz"]
    assert_same(em.fit(MODEL, START, DATA, checkpoint=path, **SCHEDULE), healthy())


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
    done = run_python(INTERRUPTED, tmp_path / "run.npz")
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
    done = run_python(LOCKED)
    assert done.stdout.split() == ["40", "True", "True"], done.stderr


# ── runs that would not begin alike


DIGITS, DIGIT_LABELS = load_digits(return_X_y=True)
DIGITS = DIGITS[:400] / 16


def classifier(**settings):
    short = {"thresholds": (0,), "patience": (1,), "max_iter": 2, "early_stopping": False}
    return CapsuleClassifier.paper(**{"capsule_dim": 2} | short | settings)


ONE = {"n_components": 1, "max_iter": 2}
STARTS = [  # an estimator, and whether its start is drawn
    (classifier(early_stopping=True), True),
    (classifier(init="random"), True),
    (classifier(capsule_dim=64), True),  # more than the spectrum has
    (GaussianMixture(3, max_iter=2), True),
    (MixtureOfFactorAnalyzers(2, 1, max_iter=2), True),
    (FactorialVectorQuantizer(2, 2, max_iter=2), True),
    (CompositionalModel(2, init="random", max_iter=2), True),
    (classifier(), False),
    (classifier(init=np.ones((10, 2, 64))), False),
    (GaussianMixture(3, means_init=DIGITS[:3], max_iter=2), False),
    (GaussianMixture(**ONE), False),
    (MixtureOfFactorAnalyzers(n_factors=1, **ONE), False),
    (CompositionalModel(2, init="sequential", max_iter=2), False),
]


@pytest.mark.filterwarnings("ignore")
@together("model, drawn", STARTS)
def test_a_start_at_random_and_a_checkpoint_need_a_number(tmp_path, model, drawn):
    data = DIGITS[:200].round() if isinstance(model, CompositionalModel) else DIGITS[:200]
    run = {"y": DIGIT_LABELS[:200], "checkpoint": tmp_path / "run.npz"}
    if drawn:
        for chance in (None, np.random.RandomState(0)):
            with pytest.raises(ValueError, match="checkpoint needs random_state to be a whole num"):
                model.set_params(random_state=chance).fit(data, **run)
            assert not list(tmp_path.iterdir())
        model.set_params(random_state=np.int64(0))
    model.fit(data, **run)
    model.set_params(max_iter=3).fit(data, **run)


@pytest.mark.filterwarnings("ignore")
def test_renamed_classes_another_prior_and_other_validation_examples_are_other_data(tmp_path):
    names = np.array("zero one two three four five six seven eight nine".split())[DIGIT_LABELS]

    def learn(y=DIGIT_LABELS, held=slice(300, 400), **settings):
        validation = {"X_val": DIGITS[held], "y_val": y[:400][held]}
        classifier(**settings).fit(
            DIGITS[:300], y[:300], checkpoint=tmp_path / "run.npz", **validation
        )

    learn(early_stopping=True)  # held-out examples that are given are not drawn
    (tmp_path / "run.npz").unlink()
    learn()
    for other in ({"y": 9 - DIGIT_LABELS}, {"y": names}, {"held": slice(300, 350)}):
        with pytest.raises(ValueError, match="other data"):
            learn(**other)
    with pytest.raises(ValueError, match="other settings"):
        learn(alpha=100.0)
    learn(max_iter=3)
