"""The claims of the book: each is checked, none is missing, and the checks reject what is false."""

import ast
import functools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sympy = pytest.importorskip(
    "sympy", reason="the claims need the extra `proofs`: pip install capslit[proofs]"
)
from conftest import examples, together
from hypothesis import given
from hypothesis import strategies as st

from capslit.proofs import claims
from capslit.proofs.mutants import mutants, same
from capslit.proofs.claims import (
    Claim,
    ClaimError,
    implementation,
    limit,
    monte_carlo,
    numeric,
    on_problems,
    on_symbols,
    symbolic,
)
from capslit.proofs.ledger import REQUIRED, SOURCES, Ledger, collect, recorded_reports

ROOT = Path(claims.__file__).parents[2]
sys.path.insert(0, str(ROOT / "book"))

from dependencies import modules, notebooks, tree  # noqa: E402
from execute import current_results  # noqa: E402

LEDGER = collect(ROOT / "nbs")
CHAPTERS = sorted({made.chapter for made in LEDGER.values()})


@functools.cache
def reports(chapter):
    """The reports of a chapter's claims: of those that have been checked since the chapter changed,
    as they were found; of the others, as they are found now.
    """
    notebook = ROOT / "nbs" / f"{chapter}.ipynb"
    with current_results([notebook]) as folder:
        copy = Path(folder, f"{chapter}.ipynb")
        recorded = recorded_reports(notebook, copy) if copy.is_file() else ()
        known = {report.id: report for report in recorded}
    return [
        known.get(made.id) or made.report for made in LEDGER.values() if made.chapter == chapter
    ]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_claims_hold_and_their_mutants_die(chapter):
    for report in reports(chapter):
        assert not report.problems, report.id
        assert report.tried, f"{report.id}: no mutant was tried"
        assert report.killed, f"{report.id}: no mutant was rejected"
        assert report.kind != "identity" or report.killed == report.tried, report.id
        if report.id in REQUIRED["saul"]:  # as the first page says
            killers = {name for trial in report.trials for name in trial.killers}
            assert {name for name, *_ in report.checks} <= killers, report.id


def test_docstrings_name_claims_that_exist():
    named = {
        id
        for path in modules().values()
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for id in claims.claims_named(ast.get_docstring(node) or "")
        if id.partition(":")[0] in SOURCES
    }
    assert "saul:2.16" in named and "goessling:noisy-or" in named and named <= set(LEDGER)


@pytest.mark.first
def test_badges_of_proofs_name_their_symbols_and_say_no_more_than_their_checks_do():
    """An error that vanishes where a symbol is a small whole number must not pass as true for every
    value of the symbol.

    `prepare` may stumble over it, which is no acceptance.
    """
    seen = 0
    for made in LEDGER.values():
        parts = claims.relations(made.statement)
        equations = [part for part in parts if isinstance(part, sympy.Eq)]
        symbols = {s for part in equations for s in part.atoms(sympy.Symbol) & part.free_symbols}
        for check in [check for check in made.checks if check.name == "symbolic"]:
            verdict = check.run(made.statement)
            assert verdict.holds and verdict.symbols and "symbolic" not in check.about, made.id
            for symbol in symbols:
                if claims.names([symbol]) <= set(verdict.symbols.split(", ")):
                    more = sympy.binomial(symbol, 11)  # 0 at 0, …, 10
                    wrong = [sympy.Eq(r.lhs + more, r.rhs, evaluate=False) for r in parts]
                    try:
                        accepted = check.run(tuple(wrong) if len(wrong) > 1 else wrong[0]).holds
                    except Exception:
                        accepted = False
                    assert not accepted, f"{made.id}: {symbol}"
                    seen += 1
    assert seen > 100


def test_equations_are_labelled_once_in_their_chapters():
    texts = {
        path.relative_to(ROOT / "nbs").with_suffix("").as_posix(): path.read_text("utf-8").lower()
        for path in notebooks()
    }
    for id in REQUIRED["saul"]:
        label = f"$$ ({re.sub('[:.]', '-', id).lower()})"
        counts = {chapter: text.count(label) for chapter, text in texts.items() if label in text}
        assert counts == {LEDGER[id].chapter: 1}, id


def test_a_formula_that_mathjax_cannot_read_stops_the_book():
    pytest.importorskip("py_mini_racer", reason="pip install capslit[dev]")
    import mathematics
    from sphinx.errors import ExtensionError

    (drawing,) = mathematics.typeset([(r"\frac{1}{2}", False)])[0].values()
    assert "<svg" in drawing and "<mfrac><mn>1</mn><mn>2</mn></mfrac>" in drawing
    for tex, named in ((r"x \quadk^d", "quadk"), (r"\frac{1}{2", "brace")):
        with pytest.raises(ExtensionError, match=f"nbs/page: MathJax cannot read .*{named}"):
            mathematics.draw_formulas(None, "nbs/page", rf"<article>\({tex}\)</article>")


# The checks reject planted errors

x, y = sympy.symbols("x y", real=True)
f = sympy.Function("f")


def estimate(rng, n, s):
    h = s * rng.standard_normal(n)
    return (h**2).mean(), (h**2).std() / n**0.5


s = sympy.Symbol("s", positive=True)
k, n = sympy.symbols("k n", integer=True, positive=True)


def unchanged(relation, left, right):
    return relation(left, right, evaluate=False)


integral = sympy.Integral(s * sympy.exp(-s * x), (x, 0, sympy.oo))
SQUARE = unchanged(sympy.Eq, (x + y) ** 2, x**2 + 2 * x * y + y**2)
PLANTED = {  # a check, what it accepts and what it rejects
    "symbolic inequality": (symbolic(), (sympy.Ge, s**2 + 1, s * 0), (sympy.Le, s**2 + 1, s * 0)),
    "numeric": (numeric(), (sympy.Eq, integral, 1), (sympy.Eq, integral, s)),
    "numeric, far digits": (
        numeric(),
        (sympy.Eq, sympy.sqrt(s) ** 2, s),
        (sympy.Eq, s * (1 + sympy.Rational(1, 10**25)), s),
    ),
    "numeric inequality": (
        numeric(),
        (sympy.Le, sympy.tanh(s), s),
        (sympy.Ge, sympy.tanh(s), s),
    ),
    "limit, gap that grows": (
        limit(),
        (sympy.Eq, sympy.Limit(1 / s, s, sympy.oo), 0),
        (sympy.Eq, sympy.Limit(s / 10**15, s, sympy.oo), 0),
    ),
    "monte carlo": (
        monte_carlo({f: estimate}),
        (sympy.Eq, f(s), s**2),
        (sympy.Eq, f(s), s**2 * 1.03),
    ),
    "implementation": (
        implementation({f: np.expm1}),
        (sympy.Eq, f(s), sympy.exp(s) - 1),
        (sympy.Eq, f(s), sympy.exp(s) - 1 + sympy.Rational(1, 10**9)),
    ),
}


@together("name", PLANTED)
def test_check_accepts_the_true_and_rejects_the_false(name):
    check, true, false = PLANTED[name]
    assert check.run(unchanged(*true)).holds
    verdict = check.run(unchanged(*false))
    assert not verdict.holds and verdict.evidence


def made(statement, *checks, **options):
    return Claim("capslit:t", "", "identity", statement, checks, **options)


def stuck(statement):
    if statement != PARABOLA:
        raise ValueError("cannot do this")
    return claims.Verdict(True)


PARABOLA = sympy.Eq(f(x), x**2)
DEFINED = numeric(define={f: lambda t: t**2})
BLIND = claims.Check("blind", lambda statement: claims.Verdict(True, "always"))
REFUSED = {  # a claim, and why it is refused
    "false": (made(sympy.Eq(x, y), numeric()), "capslit:t.*numeric check fails"),
    # algebra that gets stuck is no rejection
    "stuck": (made(PARABOLA, claims.Check("stuck", stuck)), "mutant survives"),
    "blind": (made(SQUARE, BLIND), "mutant survives"),
    "no such mutant": (
        made(PARABOLA, DEFINED, equivalent={"nonsense": "because"}),
        "no mutant is called 'nonsense'",
    ),
    "not equivalent": (
        made(PARABOLA, DEFINED, equivalent={"left: sign": "because"}),
        "listed as equivalent, but rejected",
    ),
}


@together("name", REFUSED)
def test_claims_that_are_false_or_badly_checked_are_refused(name):
    claim, said = REFUSED[name]
    with pytest.raises(ClaimError, match=said):
        claim.verify()


def test_bad_arguments_are_named(tmp_path):
    equation = sympy.Eq(x, y)
    for error, said, call in (
        (ValueError, "kind", lambda: Claim("capslit:t", "", "fact", equation, [numeric()])),
        (TypeError, "statement", lambda: made(sympy.Eq(x, x), numeric())),
        (ValueError, "checks", lambda: made(equation)),
        (FileNotFoundError, "no notebook below", lambda: collect(tmp_path)),
        (ValueError, "points", lambda: numeric(points=0)),
        (ValueError, "count", lambda: on_problems(lambda rng: (), count=0)),
        (ValueError, "where", lambda: numeric({s: (1, 2)}, where=s > 3).run(sympy.Eq(f(s), s))),
    ):
        with pytest.raises(error, match=said):
            call()


def test_ledger_refuses_two_claims_of_one_name_circles_and_unknown_names():
    def entry(id, uses=()):
        return Claim(id, "", "identity", sympy.Eq(x, y), [numeric()], uses=list(uses))

    with pytest.raises(ValueError, match="claimed twice"):
        Ledger([entry("saul:2.1"), entry("saul:2.1")])
    with pytest.raises(ValueError, match="cycle"):
        Ledger([entry("saul:2.1", ["saul:2.2"]), entry("saul:2.2", ["saul:2.1"])]).order()
    with pytest.raises(KeyError, match="saul:9.9"):
        Ledger([entry("saul:2.1", ["saul:9.9"])]).order()


def test_a_number_put_in_for_a_size_is_declared_or_found():
    sums = unchanged(sympy.Eq, sympy.Sum(x * k, (k, 1, n)), x * n * (n + 1) / 2)
    assert symbolic(sizes={n: [2, 3]}).run(sums).reach == "in x, with n = 2, 3"
    with pytest.raises(ValueError, match="numbers are put in for n"):
        symbolic(lambda r: (r.lhs - r.rhs).subs(n, 3).doit()).run(sums)
    with pytest.raises(ValueError, match="numbers are put in for y"):
        symbolic(lambda r: r.subs(y, 2)).run(SQUARE)
    three = unchanged(sympy.Eq, sympy.Sum(k * x, (k, 1, 3)), 6 * x)
    assert symbolic().run(three).reach == "in x, with k = 1, …, 3"
    assert symbolic(lambda r: sympy.expand(r.lhs - r.rhs)).run(SQUARE).reach == "in x, y"


def test_a_proof_that_does_not_name_its_symbols_is_a_problem():
    silent = claims.Check("symbolic", lambda statement: claims.Verdict(statement == PARABOLA))
    report = made(PARABOLA, silent).report
    assert report.problems == ["the symbolic check does not say what stayed symbolic"]
    assert not report.proved


def test_matrices_of_symbolic_size_prove_a_program():
    X, b = sympy.MatrixSymbol("X", n, k), sympy.MatrixSymbol("b", n, 1)
    proof = on_symbols(X, b, simplify=lambda e: e.expand().doit())
    verdict = proof.run(lambda X, b: X.T @ (b - X @ (X.T @ X) ** -1 @ X.T @ b))
    assert verdict == claims.Verdict(True, "simplifies to 0", "X, b, k, n")
    entries = on_symbols(sympy.Matrix([x, y]))
    assert entries.run(lambda v: v.T @ v - v.T @ v).reach == "in x, y, with v of size 2 × 1"


def test_circles_through_code_are_found():
    def report(id, uses=(), code=((),), kind="identity"):
        return claims.Report(
            id, "", kind, "", "", list(uses), [], [], [], 0.0, list(map(list, code))
        )

    code = [["saul:2.16"]]
    integral, closed = report("saul:A.19", code=code), report("saul:2.16", ["saul:A.19"])
    circle = [("saul:2.16", "saul:A.19")]
    assert Ledger([integral, closed]).circles() == circle
    assert Ledger([integral, closed, report("capslit:x", ["saul:2.16"])]).circles() == circle
    for entries in (
        [report("saul:A.19", code=[*code, []]), closed],  # one check is independent
        [report("saul:A.19", code=code, kind="definition"), closed],
        [report("saul:2.16", code=[["saul:2.16", "saul:A.1"]]), report("saul:A.1")],
    ):
        assert not Ledger(entries).circles()


def test_code_that_a_check_calls_is_noted():
    from capslit.capsules.inference import posterior_mean

    check = implementation(
        {f: lambda t: posterior_mean([[[t], [1.0]]], [0])[0, 0, 0]}, {x: (0.5, 2)}
    )
    identity = numeric(define={f: lambda t: t})
    report = Claim("capslit:t", "", "definition", sympy.Eq(f(x), x), [check, identity]).report
    assert {"saul:2.16", "saul:2.19"} <= set(report.code[0]) and report.code[1] == []


def test_a_check_sees_what_others_rejected_until_it_has_rejected_enough_itself():
    statement = unchanged(sympy.Eq, (x + y) ** 3, sympy.expand((x + y) ** 3))
    trials = made(statement, symbolic(), numeric()).verify().report.trials
    assert len(trials) > 10 and all("numeric" in trial.seen for trial in trials)
    assert sum("symbolic" in trial.seen for trial in trials) == claims.ENOUGH
    assert all(trial.killers == ["numeric", "symbolic"] for trial in trials[: claims.ENOUGH])


def test_claims_of_chapters_of_one_name_keep_their_own_source(tmp_path):
    "A statement in Python is altered in its source, which Python looks up by the name of the cell."
    cell = (
        "#| claim\nfrom capslit.proofs.claims import claim, on_problems\ndef step(v):\n    return"
        " {}\nclaim('capslit:{}', '', 'algorithm step', step, [on_problems(lambda rng:"
        " (rng.normal(size=3),))])"
    )
    for part, line in (("one", "v - v"), ("two", "v * 0")):
        chapter = tmp_path / part / "model.ipynb"
        chapter.parent.mkdir()
        code = {"cell_type": "code", "id": "a", "source": cell.format(line, part)}
        chapter.write_text(json.dumps({"cells": [code]}))
    found = collect(tmp_path)
    firsts = [next(iter(mutants(found[f"capslit:{part}"].statement))) for part in ("one", "two")]
    assert firsts == ["line 2: v - v → v + v", "line 2: v * 0 → v / 0"]


def test_relations_agree_up_to_a_factor_that_keeps_the_relation():
    equation, bound = sympy.Eq(x, y), sympy.Le(x, y)
    for other, agrees in (
        (sympy.Eq(3 * x, 3 * y), True),
        (sympy.Eq(-x, -y), True),
        (sympy.Eq(x, 2 * y), False),
        (sympy.Eq(x**2, x * y), False),
        (sympy.Eq(x, y + 1), False),
    ):
        assert same(other, equation) == agrees, other
    assert same(sympy.Le(3 * x, 3 * y), bound) and not same(sympy.Le(-x, -y), bound)


# Properties of the mutants

leaves = st.sampled_from([x, y, sympy.Integer(2), sympy.Rational(3, 2)])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        *(st.builds(join, inner, inner) for join in (sympy.Add, sympy.Mul)),
        *(st.builds(function, inner) for function in (sympy.exp, f, lambda e: e**2)),
    ),
    max_leaves=6,
)


@examples(40)
@given(trees)
def test_mutants_differ_from_the_statement_and_from_each_other(tree):
    statement = unchanged(sympy.Eq, f(x, y), tree)
    found = mutants(statement)
    assert len(set(found.values())) == len(found) >= 4
    assert statement not in found.values()


polynomials = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3
).map(lambda terms: sum((c * x**i * y**j for c, i, j in terms), 5 * x**4 * y**4))


@examples(25)
@given(polynomials)
def test_every_mutant_of_a_polynomial_identity_dies_or_is_equivalent(p):
    define = {f: lambda a, b: p.subs({x: a, y: b}, simultaneous=True)}
    check = numeric(define=define, digits=30, tol=1e-20, points=2)
    assert not made(unchanged(sympy.Eq, f(x, y), p), check).report.problems


@examples(25)
@given(st.integers(0, 10**6), st.floats(0.1, 3), st.floats(3.1, 9))
def test_points_are_admissible_and_repeatable(seed, low, high):
    points = claims._Points({s: (low, high)}, where=sympy.Gt(s, (low + high) / 2), seed=seed)
    assert (low + high) / 2 < points.chosen(0)[s] <= high
    assert points.values([s**2, x], 0, 30) == points.values([s**2, x], 0, 30)
