"""The whole of Figure 5, both sets of images: what a run on the quiet machine took, from the
records that it wrote.

It takes a quarter of an hour, so `make bench` leaves it alone, and keeps its rows. To measure it
anew:

    capslit reproduce figure5 --data mnist --out FOLDER; capslit reproduce figure5 --data fashion
    --out FOLDER FIGURE5=FOLDER python benchmarks/run.py --into figure5

The figure has eighteen models for each set of images; the records have four more, whose pairs learn
jointly. Whether the run has found what the records in `results/` say is a row of its own:
differences of test errors, in per cent.
"""

import os
from pathlib import Path

import numpy as np
from _table import Row, alone

from capslit.experiments.records import RESULTS, describe_machine
from capslit.storage import load_json

NAMES, LIMIT = ("figure5-mnist.json", "figure5-fashion.json"), 15 * 60


def rows():
    folder = os.environ.get("FIGURE5")
    if not folder:
        print("figure5: left alone; see benchmarks/figure5.py")
        return
    runs, known = (
        [load_json(Path(place) / name)["parts"] for name in NAMES] for place in (folder, RESULTS)
    )
    machines = {load_json(Path(folder) / name)["machine"]["processor"] for name in NAMES}
    if machines != {describe_machine()["processor"]} or any(
        part["resumed"] for parts in runs for part in parts.values()
    ):
        raise ValueError(
            f"{folder} holds a run that was interrupted, or that of another machine:"
            f" {', '.join(machines)}"
        )
    seconds = {
        (name, kind): sum(part["seconds"].values())
        for name, parts in zip(NAMES, runs)
        for kind, part in parts.items()
    }
    plain = sum(t for (_, kind), t in seconds.items() if "joint" not in kind)
    yield Row(
        "whole Figure 5, both image sets, 36 models", plain / LIMIT, "a quarter of an hour", 1
    )
    yield Row(
        "whole Figure 5, and eight joint models",
        sum(seconds.values()) / LIMIT,
        "a quarter of an hour",
        1,
    )
    change = [
        100 * abs(parts[part]["metrics"]["test_error"] - old[part]["metrics"]["test_error"])
        for parts, old in zip(runs, known)
        for part in parts
    ]
    yield Row(
        "whole Figure 5, test errors: mean distance from the record",
        np.mean(change),
        "one per cent",
    )
    yield Row(
        "whole Figure 5, test errors: greatest distance from the record",
        np.max(change),
        "one per cent",
    )


if __name__ == "__main__":
    alone(rows)
