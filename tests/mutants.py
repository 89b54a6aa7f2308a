"""Do the tests bite? Change one small thing in capslit, run the tests that reach it, and see
whether one fails; again, a few hundred times.

    python tests/mutants.py --out before.json     # resumes where it was stopped;
                                                 # --notebooks: survivors meet their chapter too
    python tests/mutants.py --out after.json --like before.json
    python tests/mutants.py --compare before.json after.json

Nothing on the disk is changed: every mutant lives in a process of its own, in which an import hook
compiles the changed text of one module (also in the processes that tests start). Which mutants are
drawn depends on a hash of the function's name, the kind of change and the line: code that stays as
it is, in whichever module, yields the same mutants. Which tests are run is measured: each test file
runs once, with a probe before every statement that a mutant will change; a mutant then meets the
cases that reached its statement, those of files that import its module first, one case of each test
function before a second one, as many as fit in the budget.
"""

import argparse
import ast
import atexit
import builtins
import collections
import contextlib
import hashlib
import importlib.util
import json
import os
import pickle
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
APART = "test_notebooks.py test_book.py test_house.py"  # they run notebooks and look at files
CHANGES = {  # an operator, and what is put in its place
    ast.Lt: "<|<=|>",
    ast.LtE: "<=|<|>=",
    ast.Gt: ">|>=|<",
    ast.GtE: ">=|>|<=",
    ast.Eq: "==|!=",
    ast.NotEq: "!=|==",
    ast.Is: "is|is not",
    ast.IsNot: "is not|is",
    ast.In: "in|not in",
    ast.NotIn: "not in|in",
    ast.Add: "+|-",
    ast.Sub: "-|+",
    ast.Mult: "*|/",
    ast.Div: "/|*",
}
RECORDED = ("module", "notebook", "function", "kind", "number", "line")
SECTION = re.compile(
    r"^# %% (?:\.\./)+(\S+) #(\S+)$", re.MULTILINE
)  # nbdev's mark of the cell that the code below comes from


# ── the mutants of a module
# ──────────────────────────────────────────────────────────────────────────────────────────────────


def mutations(source):
    """All (function, kind, line number, statement, start, end, text): put `text` in the place of
    source[start:end] (bytes).
    """
    starts = [0, *(m.end() for m in re.finditer(b"\n", source))]
    found = []

    def walk(node, function, statement):
        def add(kind, start, end, text):
            number = source[:start].count(b"\n") + 1
            found.append((function, kind, number, statement, start, end, text))

        def span(part):
            first, last = starts[part.lineno - 1], starts[part.end_lineno - 1]
            return first + part.col_offset, last + part.end_col_offset

        def text(part):
            return source[slice(*span(part))].decode()

        def operator(kind, left, op, right):
            old, *others = CHANGES[type(op)].split("|")
            start, end = span(left)[1], span(right)[0]
            between, pattern = source[start:end].decode(), re.escape(old).replace(r"\ ", r"\s+")
            for new in others:
                add(f"{kind} {old} to {new}", start, end, re.sub(pattern, new, between, count=1))

        def replace(kind, part, new):  # as many lines as before, for those who look the source up
            add(kind, *span(part), new + "\n" * (text(part).count("\n") - new.count("\n")))

        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if not re.match(r"_?(draw|plot|show)", node.name):
                for child in node.body[ast.get_docstring(node, clean=False) is not None :]:
                    walk(child, node.name, child)
            return
        if isinstance(node, (ast.Module, ast.ClassDef)) or function is None:
            # tables, defaults and annotations stay as they are
            for child in ast.iter_child_nodes(node):
                if isinstance(child, (ast.FunctionDef, ast.ClassDef, ast.If, ast.Try)):
                    walk(child, None, None)
            return
        match node:
            case ast.JoinedStr() | ast.Assert():
                return
            case ast.Raise():
                return replace("delete raise", node, "pass")
            case ast.Expr(value=ast.Call(func=function_called)):
                if text(function_called) in ("print", "warnings.warn", "warn"):
                    return
                replace("delete call", node, "pass")
            case ast.Assign(targets=[ast.Attribute(attr=name)], value=ast.Name(id=same)) if (
                name == same
            ):
                return  # a parameter that is kept
            case ast.Assign(targets=[ast.Attribute()]) | ast.AugAssign(target=ast.Attribute()):
                replace("delete assignment", node, "pass")
            case ast.Return(value=ast.expr()):
                replace("return nothing", node, "return None")
            case ast.Compare():
                left = [node.left, *node.comparators]
                for left, op, right in zip(left, node.ops, node.comparators):
                    operator("compare", left, op, right)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in CHANGES:
                parts = {ast.JoinedStr} & {type(left), type(right)}
                values = [getattr(part, "value", None) for part in (left, right)]
                if not parts and not any(isinstance(value, str) for value in values):
                    operator("arithmetic", left, op, right)
                    if isinstance(op, ast.Sub):
                        replace("swap minus", node, f"(({text(right)}) - ({text(left)}))")
            case ast.AugAssign(target=target, op=op, value=value) if type(op) in CHANGES:
                operator("arithmetic", target, op, value)
            case ast.BoolOp():
                new = " or " if isinstance(node.op, ast.And) else " and "
                replace("and-or", node, f"({new.join(f'({text(part)})' for part in node.values)})")
            case ast.UnaryOp(op=ast.Not() | ast.USub()):
                replace("drop sign", node, f"({text(node.operand)})")
            case ast.Constant(value=bool()):
                replace("constant", node, repr(not node.value))
            case ast.Constant(value=int() | float()):
                replace("constant", node, repr(node.value + 1))
        for test in getattr(node, "ifs", [getattr(node, "test", None)]):
            if test and not isinstance(getattr(test, "op", None), ast.Not):
                replace("negate", test, f"(not ({text(test)}))")
        for child in ast.iter_child_nodes(node):
            if child is not getattr(node, "annotation", None):
                walk(child, function, child if isinstance(child, ast.stmt) else statement)

    walk(ast.parse(source), None, None)
    return found


def sample(count, least, like=()):
    """The mutants, as a dict from key to dict: `least` of each module, then the smallest hashes,
    `count` in all; hashes in `like` come first.
    """
    sites = []
    for path in sorted((ROOT / "capslit").rglob("*.py")):
        if path.stem in ("__init__", "_modidx", "plotting"):
            continue
        source, seen = path.read_bytes(), collections.Counter()
        whole = source.decode()
        lines, home = whole.splitlines(), SECTION.search(whole)
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for function, kind, number, statement, *change in mutations(source):
            line = re.sub(r"  +#.*", "", lines[number - 1]).strip()
            seen[function, kind, line] += 1
            told = repr((function, kind, line, seen[function, kind, line]))
            mutant = {
                "module": module,
                "notebook": home and home[1],
                "function": function,
                "kind": kind,
                "number": number,
                "line": line,
                "path": str(path),
                "place": (statement.lineno, statement.col_offset),
            }
            sites.append((hashlib.sha1(told.encode()).hexdigest()[:12], mutant, source, change))
    sites.sort(key=lambda site: (site[0] not in like, site[0]))
    taken, chosen = collections.Counter(), {}
    for enough in (lambda module: taken[module] >= least, lambda _: len(chosen) >= count):
        for key, mutant, source, (start, end, text) in sites:
            name = f"{mutant['module']}:{key}"
            if name in chosen or enough(mutant["module"]):
                continue
            mutated = (source[:start] + text.encode() + source[end:]).decode()
            try:
                compile(mutated, mutant["path"], "exec")
            except SyntaxError:
                continue
            chosen[name] = mutant | {"mutated": mutated}
            taken[mutant["module"]] += 1
    return dict(sorted(chosen.items(), key=lambda item: item[0].split(":")[1]))


# ── a process for each mutant
# ────────────────────────────────────────────────────────────────────────────────────────────────


def install(folder):
    """From here on, the modules of the job in `folder` are compiled from the text (or the tree)
    that the job holds; returns the set of probes passed.
    """
    job, hits = pickle.loads((folder / "job").read_bytes()), set()
    builtins.__reached__ = hits.add

    class Loader(SourceFileLoader):
        def get_code(self, fullname):
            return compile(job[fullname][1], self.path, "exec")

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name in job:
                loader = Loader(name, job[name][0])
                return importlib.util.spec_from_file_location(name, loader.path, loader=loader)

    sys.meta_path.insert(0, Finder)
    return hits


def install_in_subprocess():
    folder = Path(os.environ["CAPSLIT_MUTANT"])
    hits = install(folder)
    atexit.register(
        lambda: hits and (folder / f"hits-{os.getpid()}").write_text(json.dumps(sorted(hits)))
    )


def in_child(job, work, seconds, wall=300):
    """Fork, install the job and do work(folder, hits, report); returns what it reported, how it
    ended ('' if well) and the processor's seconds.
    """
    folder = Path(tempfile.mkdtemp(prefix="mutant-"))
    (folder / "job").write_bytes(pickle.dumps(job))
    (folder / "sitecustomize.py").write_text(
        f"import sys\nsys.path.append({str(ROOT / 'tests')!r})\nimport mutants\nsys.path.pop()\n"
        "mutants.install_in_subprocess()\n"
    )
    child = os.fork()
    if not child:
        try:
            os.setsid()
            os.chdir(ROOT)
            signal.signal(
                signal.SIGINT, signal.default_int_handler
            )  # which a program in the background ignores
            nothing, out = os.open(os.devnull, os.O_RDWR), open(folder / "report", "a", buffering=1)
            for number in range(3):
                os.dup2(nothing, number)
            os.environ |= {
                "CAPSLIT_MUTANT": str(folder),
                "PYTHONPATH": f"{folder}:{ROOT}",
                "MPLBACKEND": "agg",
            }
            resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 10))
            resource.setrlimit(resource.RLIMIT_AS, (10 << 30, resource.RLIM_INFINITY))
            work(folder, install(folder), lambda **said: out.write(json.dumps(said) + "\n"))
        finally:
            os._exit(0)
    begun, ended = time.monotonic(), ""
    while not (gone := os.wait4(child, os.WNOHANG))[0]:
        time.sleep(0.05)
        if time.monotonic() - begun > wall:
            ended = "waits"
            os.kill(child, signal.SIGKILL)
    _, status, used = gone
    if not ended and os.WIFSIGNALED(status):
        ended = f"signal {os.WTERMSIG(status)}"
        if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            ended = "runs on"
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # whatever it has left running
    with open(folder / "report", "a+") as file:  # also where it was never begun
        file.seek(0)
        said = [json.loads(line) for line in file]
    shutil.rmtree(folder, ignore_errors=True)
    return said, ended, used.ru_utime + used.ru_stime


def too_long(*_):
    raise TimeoutError("this case takes too long to be of use here")


def by_turns(cases, name):
    "The cases in a new order: one of each test function before a second one."
    seen = collections.Counter()

    def turn(case):
        test = name(case).split("[")[0]
        seen[test] += 1
        return seen[test]

    return sorted(cases, key=turn)


class Watch:
    """A plugin for pytest, which runs the cases `wanted` in their order, or all of a file until
    they have taken `cap` seconds.

    With `stop`, it ends at the first that fails, and reports it; else it reports of each that
    passes its cost and the probes that it went by.
    """

    def __init__(self, folder, hits, report, wanted=None, stop=False, cap=None):
        self.folder, self.hits, self.report = folder, hits, report
        self.wanted, self.stop, self.cap = wanted, stop, cap
        self.bad, self.total, self.killed = set(), 0, False

    def pytest_collection_modifyitems(self, items):
        if self.wanted:
            named = {item.nodeid: item for item in items}
            items[:] = [named[case] for case in self.wanted if case in named]
            return
        items[:] = by_turns(items, lambda item: item.nodeid)
        values = [v for module in {item.module for item in items} for v in vars(module).values()]
        names = {
            str(getattr(value, "__name__" if isinstance(value, type(sys)) else "__module__", ""))
            for value in values
        }
        imports = sorted(name for name in names if name.startswith("capslit."))
        self.report(imports=imports, reached=sorted(self.hits))

    def pytest_collectreport(self, report):
        if report.failed:
            self.kill(f"{report.nodeid} (import)")

    def kill(self, test):
        if not self.killed:
            self.report(killed=test)
        self.killed = True

    def pytest_runtest_logstart(self, nodeid):
        self.hits.clear()
        self.begun = sum(os.times()[:4])
        signal.signal(signal.SIGALRM, too_long)
        signal.alarm(0 if self.stop else 20)

    def pytest_runtest_logreport(self, report):
        if report.outcome != "passed":
            self.bad.add(report.nodeid)
        if report.failed and self.stop:
            self.kill(report.nodeid)

    def pytest_runtest_logfinish(self, nodeid):
        signal.alarm(0)
        cost = sum(os.times()[:4]) - self.begun
        self.total += cost
        for path in self.folder.glob("hits-*"):  # from processes that the case has started
            self.hits.update(json.loads(path.read_text()))
            path.unlink()
        if not self.stop and nodeid not in self.bad:
            self.report(case=nodeid, cost=round(cost, 3), reached=sorted(self.hits))

    def pytest_runtest_teardown(self, item, nextitem):
        if self.cap and self.total > self.cap:
            item.session.shouldstop = "enough"


def run_file(file, watch):
    import pytest

    options = f"-p no:cacheprovider -p no:xdist --rootdir {ROOT} --basetemp {watch.folder / 'tmp'}"
    pytest.main(["-x"] * watch.stop + [*options.split(), file], plugins=[watch])


def probed(mutants):
    "A job: each module with a probe before every statement that is to be changed."
    job = {}
    for key, mutant in mutants.items():
        path = mutant["path"]
        _, tree = job.setdefault(mutant["module"], (path, ast.parse(Path(path).read_text())))
        for node in ast.walk(tree):
            for _, body in ast.iter_fields(node):
                for i, statement in enumerate(body if isinstance(body, list) else []):
                    if (
                        isinstance(statement, ast.stmt)
                        and (statement.lineno, statement.col_offset) == mutant["place"]
                    ):
                        probe = ast.parse(f"__reached__({key!r})").body[0]
                        for part in ast.walk(probe):
                            ast.copy_location(part, statement)
                        body.insert(i, probe)
                        break
    return job


def cover(file, job, cap):
    """Of a test file: the modules that it imports, the mutants that its import reaches, and its
    cases, each with its cost and the mutants reached.
    """
    said, ended, seconds = in_child(
        job, lambda *child: run_file(file, Watch(*child, cap=cap)), 4 * cap + 60, 900
    )
    cases = [s for s in said if "case" in s]
    print(f"{file}: {len(cases)} cases, {seconds:.0f} s {ended}", flush=True)
    begun = [s for s in said if "imports" in s] or [{"imports": [], "reached": []}]
    return begun[0] | {"cases": cases}


def choose(key, module, covered, unreliable, budget):
    """The cases that a mutant meets, as a list of (file, cases), and the seconds that they take
    without it.
    """
    found = [
        (module not in tests["imports"], case["cost"] + 0.01, file, case["case"])
        for file, tests in covered.items()
        for case in tests["cases"]
        if (key in case["reached"] or key in tests["reached"])
        and case["cost"] < budget / 2
        and case["case"] not in unreliable
    ]
    files, costs = {}, collections.Counter()
    for indirect, cost, file, case in by_turns(
        sorted(found, key=lambda case: case[:2]), lambda case: case[3]
    ):
        cost += file not in files  # to import a file takes a second
        if costs.total() + cost <= budget:
            files.setdefault(file, []).append(case)
            costs[indirect, file] += cost
    order = sorted((indirect, cost, file) for (indirect, file), cost in costs.items())
    return [(file, files[file]) for *_, file in order], costs.total()


def run_tests(files):
    def work(*child):
        for file, cases in files:
            run_file(file, watch := Watch(*child, cases, stop=True))
            if watch.killed:
                break

    return work


def run_chapter(notebook, mutated=None, package=""):
    """Run a notebook as nbdev does, with the cell that exports what is changed replaced; report the
    cell that fails.
    """

    def work(folder, hits, report):
        from execnb.shell import CaptureShell
        from nbdev.frontmatter import FrontmatterProc
        from nbdev.process import NBProcessor

        path, running = ROOT / notebook, []
        sys.path[:0] = [str(ROOT), str(path.parent)]
        shell = CaptureShell(path)
        chapter = NBProcessor(path, procs=FrontmatterProc, process=True).nb
        for cell in chapter.cells:
            if mutated and cell.id == mutated[0]:
                cell.source = mutated[1]
                if "from ." in mutated[1]:
                    shell.user_ns["__package__"] = package

        def skip(cell):
            running.append(cell.id)
            return (
                cell.cell_type != "code"
                or "notest" in cell.directives_
                or cell.directives_.get("eval:", [""])[0].lower() == "false"
            )

        os.chdir(path.parent)
        try:
            shell.run_all(chapter, exc_stop=True, preproc=skip)
        except BaseException:
            report(killed=f"{notebook} {running[-1]}")
        else:
            report(passed=notebook)

    return work


def changed_cell(mutant):
    "The cell of the notebook that holds the change, and its new text."
    texts = Path(mutant["path"]).read_text(), mutant["mutated"]
    old, new = map(SECTION.split, texts)
    return next((new[i - 1], new[i]) for i in range(3, len(new), 3) if old[i] != new[i])


def try_tests(mutant, files, cost):
    "What becomes of a mutant that meets the cases of `choose`."
    job = {mutant["module"]: (mutant["path"], mutant["mutated"])}
    said, ended, seconds = in_child(job, run_tests(files), 3 * cost + 20) if files else ([], "", 0)
    return {
        "status": "killed" if said else f"timeout ({ended})" if ended else "survived",
        "by": said[0]["killed"] if said else None,
        "cases": sum(len(cases) for _, cases in files),
        "seconds": round(seconds, 1),
    }


def try_chapter(mutant, chapters):
    """Whether the notebook of a survivor passes.

    `chapters` holds how long each takes, or None: too long.
    """
    notebook = mutant["notebook"]
    if notebook not in chapters:
        said, _, seconds = in_child({}, run_chapter(notebook), 30)
        chapters[notebook] = seconds if said and "passed" in said[0] else None
    if not chapters[notebook]:
        return {"chapter": "not tried"}
    job = {mutant["module"]: (mutant["path"], mutant["mutated"])}
    work = run_chapter(notebook, changed_cell(mutant), mutant["module"].rpartition(".")[0])
    said, ended, seconds = in_child(job, work, 3 * chapters[notebook] + 20)
    return {
        "chapter": said[0].get("killed", "passes") if said else f"timeout ({ended})",
        "chapter_seconds": round(seconds, 1),
    }


# ── the whole
# ─────────────────────────────────────────────────────────────────────────────────────────────────


def save(data, path):
    part = Path(f"{path}.part")
    part.write_text(json.dumps(data, indent=1))
    part.replace(path)


def alive(result):
    passes = result.get("chapter", "passes") in ("passes", "not tried")
    return passes and result["status"] == "survived"


def table(results):
    """What became of the mutants, by the folder of the notebook that they come from; a record that
    is kept holds neither cases nor seconds.
    """
    rows = collections.defaultdict(collections.Counter)
    for result in results:
        end = result["status"].split()[0]
        if end == "survived" and not alive(result):
            end = "by chapter"
        for folder in ((result["notebook"] or "").split("/")[1:-1] or ["(top)"], ["all"]):
            rows[folder[0]].update(
                {
                    "mutants": 1,
                    end: 1,
                    "unreached": alive(result) and result.get("cases") == 0,
                    "seconds": result.get("seconds", 0) + result.get("chapter_seconds", 0),
                }
            )
    columns = ["mutants", "killed", "timeout", "by chapter", "survived", "unreached", "seconds"]
    print(" " * 14 + "".join(f"{c:>12}" for c in columns))
    for folder in sorted(rows, key=lambda folder: (folder == "all", folder)):
        print(f"{folder:14}" + "".join(f"{rows[folder][c]:12.0f}" for c in columns))


def compare(before, after):
    """The mutants that both records hold; and those that were killed before and survive now: code
    that stays as it was, and is tested less.
    """
    old = collections.defaultdict(list)
    for key, result in before["mutants"].items():
        old[key.split(":")[1]].append(result)
    new = {key: result for key, result in after["mutants"].items() if key.split(":")[1] in old}
    table([result for digest in {key.split(":")[1] for key in new} for result in old[digest]])
    table(new.values())
    for key, result in new.items():
        if alive(result) and not any(map(alive, old[key.split(":")[1]])):
            print(f"now alive: {key} line {result['number']}: {result['kind']}: {result['line']}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default, words in (
        ("out", Path("mutants.json"), "the record; a run that was stopped goes on from it"),
        ("count", 320, "mutants in all"),
        ("least", 3, "mutants of each module"),
        ("budget", 20.0, "seconds of tests for each mutant"),
        ("cap", 120.0, "seconds for each test file when it is measured"),
    ):
        parser.add_argument(f"--{name}", type=type(default), default=default, help=words)
    words = "an earlier record, whose mutants are drawn first"
    parser.add_argument("--like", type=Path, help=words)
    words = "try survivors against the notebook that their module comes from"
    parser.add_argument("--notebooks", action="store_true", help=words)
    two = {"nargs": 2, "type": Path, "metavar": ("BEFORE", "AFTER")}
    parser.add_argument("--compare", **two, help="compare two records")
    options = parser.parse_args()
    if options.compare:
        return compare(*(json.loads(path.read_text()) for path in options.compare))
    # the same on every run; threads would not survive the fork
    fixed = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | fixed)
    sys.path.insert(0, str(ROOT))
    like = json.loads(options.like.read_text())["mutants"] if options.like else {}
    mutants = sample(options.count, options.least, {key.split(":")[1] for key in like})
    data = {"covered": {}, "mutants": {}, "chapters": {}, "unreliable": []}
    if options.out.exists():
        data = json.loads(options.out.read_text())
    once = """pandas scipy.stats scipy.optimize sklearn.mixture sklearn.model_selection pytest torch
        sklearn.utils.estimator_checks hypothesis.extra.numpy nbdev.test"""
    for name in once.split():  # for all the children
        if importlib.util.find_spec(name.split(".")[0]):
            importlib.import_module(name)
    job = probed(mutants)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        file = path.relative_to(ROOT).as_posix()
        if path.name not in APART and file not in data["covered"]:
            data["covered"][file] = cover(file, job, options.cap)
            save(data, options.out)
    for _ in range(2):  # again for those whose killers turn out to prove nothing
        for i, (key, mutant) in enumerate(mutants.items()):
            before = result = data["mutants"].get(key)
            if not result:
                tests = data["covered"], data["unreliable"], options.budget
                result = {name: mutant[name] for name in RECORDED}
                result |= try_tests(mutant, *choose(key, mutant["module"], *tests))
            if options.notebooks and result["status"] == "survived" and "chapter" not in result:
                result = result | try_chapter(mutant, data["chapters"])
            if result is not before:
                data["mutants"][key] = result
                save(data, options.out)
                end = f"{result['status']} {result.get('chapter', '')} {result['seconds']} s"
                print(f"{i + 1}/{len(mutants)} {key} {mutant['kind']}: {end}", flush=True)
        killers = collections.defaultdict(set)  # tests that fail without any mutant prove nothing
        for result in data["mutants"].values():
            file, _, case = (result["by"] or "").partition("::")
            if case:
                killers[file].add(result["by"])
        for file, cases in killers.items():
            said, _, _ = in_child(
                {}, lambda *child: run_file(file, Watch(*child, cases)), 600, 1200
            )
            data["unreliable"] += sorted(cases - {s["case"] for s in said if "case" in s})
        for key, result in [*data["mutants"].items()]:
            if result["by"] in data["unreliable"]:
                del data["mutants"][key]
        save(data, options.out)
    table(data["mutants"].values())


if __name__ == "__main__":
    main()
