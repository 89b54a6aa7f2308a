"""The common form of all benchmarks: a module has `rows()`, which yields them one after another,
and can be run alone.
"""

import time
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np

from capslit.experiments import scaling
from capslit.experiments.scaling import timed  # noqa: F401

# the matrix library's threads stay awake for a tenth of a second after a product, and would be
# charged to the next
in_turns = partial(scaling.in_turns, rest=0.15)


class Row(NamedTuple):
    """One line of the table.

    `what` we do, the `ratio` of what it takes to what the other takes (time, where nothing else is
    said; below 1 we are better), `to` what, and the `aim` that the ratio should not exceed, if
    there is one.
    """

    what: str
    ratio: float
    to: str
    aim: float | None = None

    @property
    def met(self):
        "Whether the ratio is within its aim; True without one."
        return self.aim is None or self.ratio <= self.aim


def cpu_seconds(function):
    "CPU seconds of a call: what else runs on the machine counts least here."
    start = time.process_time()
    function()
    return time.process_time() - start


def per_iteration(fit, few=2, many=10, repeats=3):
    """CPU seconds of one iteration: what more iterations take, divided by their number; fit(steps)
    makes so many.

    The least of a few times counts, of few and of many in turns. There are so many that they take a
    third more time than few: less might be noise.
    """
    while many < 1000:
        first, second = np.min(
            [[cpu_seconds(lambda: fit(steps)) for steps in (few, many)] for _ in range(repeats)],
            axis=0,
        )
        if second > 4 / 3 * first:
            return (second - first) / (many - few)
        many *= 2
    raise RuntimeError(f"{many // 2} iterations take no more time than {few}")


def show(rows):
    "Print rows as they come; returns them as a list."
    print(f"{'what':<58} {'ratio':>8} {'aim':>5}  to what", flush=True)
    shown = []
    for row in rows:
        if not row.ratio > 0:
            raise ValueError(
                f"{row.what}: the ratio is {row.ratio}, but times and sizes are positive"
            )
        aim = "" if row.aim is None else f"{row.aim:g}"
        print(
            f"{row.what:<58} {row.ratio:8.3g} {aim:>5}{' ' if row.met else '*'} {row.to}",
            flush=True,
        )
        shown.append(row)
    missed = sum(not row.met for row in shown)
    print(
        f"* aim missed, {missed} of {sum(row.aim is not None for row in shown)}"
        if missed
        else "all aims met",
        flush=True,
    )
    return shown


def alone(rows):
    "What a module does when it is run alone."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        show(rows())
