"""All benchmarks as one table of ratios, with the machine's own figures above it, and a record of
both.

    python benchmarks/run.py                     # everything; writes results/bench.json
    python benchmarks/run.py em routing          # some modules only; writes nothing
    python benchmarks/run.py --into em routing   # their rows take the place of those in the record,
                                                 # which must be of this machine
    python benchmarks/run.py --out FOLDER        # the record goes elsewhere

A ratio is our time divided by that of what stands in the last column, both measured in the same
run, in turns.
"""

import argparse
import time
import warnings
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from _machine import machine_figures
from _table import show

from capslit.experiments.records import describe_code, describe_machine
from capslit.experiments.scaling import MACHINE, machine_rates
from capslit.storage import load_json, save_json

MODULES = (
    "em",
    "interpolating",
    "classifier",
    "small_tables",
    "stacking",
    "whole_fit",
    "mixtures",
    "linear_manifolds",
    "cooperative",
    "routing",
    "composition",
    "deformations",
    "parts",
    "figure5",
)
SCHEMA = "capslit.bench/1"


def machine():
    "The machine's own figures, printed."
    with TemporaryDirectory(dir=".") as folder:  # on the disk that we work on, not in memory
        rates = machine_rates(*machine_figures(folder))
    described = describe_machine()
    print(f"{described['processor']}, {described['cores']} cores, NumPy {described['numpy']}")
    for name, rate in rates.items():
        print(f"  {name:<32} {rate:8.1f} {MACHINE[name]}", flush=True)
    return described | {"rates": rates}


def measure(names):
    "The rows of the modules, shown as they come, as a list of dicts."

    def rows():
        for name in names:
            for row in import_module(name).rows():
                modules.append(name)
                yield row

    modules = []
    return [{"module": name} | row._asdict() for row, name in zip(show(rows()), modules)]


def replaced(old, new, modules):
    """The old record with the new rows in the place of those of the same modules.

    ValueError if the machine is another.
    """
    if old["machine"]["processor"] != new["machine"]["processor"]:
        raise ValueError(
            f"the record is of {old['machine']['processor']}, this machine is"
            f" {new['machine']['processor']}: ratios of two machines do not go into one table"
        )
    known = {row["what"] for row in new["rows"]}  # of a module that was another's before
    kept = [row for row in old["rows"] if row["module"] not in modules and row["what"] not in known]
    given = {name: [row for row in kept + new["rows"] if row["module"] == name] for name in MODULES}
    return old | {"rows": [row for rows in given.values() for row in rows]}


def main():
    parser = argparse.ArgumentParser(description="Speed and memory as ratios.")
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help=f"some of {', '.join(MODULES)}; by default all"
    )
    parser.add_argument(
        "--into",
        action="store_true",
        help="put the rows of these modules into the record of this machine",
    )
    parser.add_argument("--out", default="results", help="folder of the record (default: results)")
    arguments = parser.parse_args()
    unknown = set(arguments.modules) - set(MODULES)
    if unknown:
        parser.error(
            f"there is no module {', '.join(sorted(unknown))}; choose from {', '.join(MODULES)}"
        )
    start = time.perf_counter()
    code, figures = describe_code(), machine()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = measure(arguments.modules or MODULES)
    seconds = time.perf_counter() - start
    print(f"{seconds:.0f} s")
    if not arguments.modules or arguments.into:
        path, date = (
            Path(arguments.out) / "bench.json",
            datetime.now(timezone.utc).date().isoformat(),
        )
        rows = [row | {"ratio": float(row["ratio"]), "commit": code["commit"]} for row in rows]
        record = {
            "schema": SCHEMA,
            "code": code,
            "machine": figures,
            "date": date,
            "seconds": round(seconds, 1),
            "rows": rows,
        }
        if arguments.into:
            record = replaced(load_json(path), record, arguments.modules)
        elif (
            path.exists()
            and (old := load_json(path))["machine"]["processor"] == figures["processor"]
        ):
            record["rows"] += [
                row
                for row in old["rows"]
                if row["module"] == "figure5" and row["what"] not in {row["what"] for row in rows}
            ]
        save_json(path, record)
        print(f"→ {path}")


if __name__ == "__main__":
    main()
