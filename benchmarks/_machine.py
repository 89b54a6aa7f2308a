"""What the machine can do at best: matrix products, copying in memory, reading from its disk."""

import os
from pathlib import Path

import numpy as np

from capslit import em
from capslit.experiments.scaling import in_turns, timed


def _forget(path):
    "Have the operating system drop what it holds of a file, where it can be asked."
    if hasattr(os, "posix_fadvise"):
        with open(path, "rb") as file:
            os.fsync(file.fileno())  # what is not yet written cannot be dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(path, buffer=2**23):
    "Seconds to read a file from its beginning to its end, forgotten before."
    _forget(path)
    # One buffer, which is read into again and again: nothing is allocated
    held = bytearray(buffer)

    def read():
        with open(path, "rb", buffering=0) as file:
            while file.readinto(held):
                pass

    return timed(read)[1]


def machine_figures(folder, size=2048, megabytes=512, rounds=5):
    "For each of `scaling.MACHINE`: operations or bytes, and the best time in seconds."
    nbytes = megabytes * 2**20
    a = np.random.default_rng(0).standard_normal((size, size))
    b = a.astype(np.float32)
    source = np.ones(nbytes // 8)
    target = np.empty_like(source)
    path = Path(folder) / "machine"
    source.tofile(path)

    def alone(x):
        with em.threads(1):
            x @ x

    seconds = in_turns(
        lambda: b @ b,
        lambda: a @ a,
        lambda: alone(b),
        lambda: alone(a),
        lambda: np.copyto(target, source),
        rounds=rounds,
    )
    reading = min(_read(path), _read(path))
    path.unlink()
    return [2 * size**3] * 4 + [2 * nbytes, nbytes], np.append(seconds, reading)
