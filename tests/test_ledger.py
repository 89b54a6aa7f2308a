"""The claims of the book: each is checked, none is missing, and the checks reject what is false."""

import ast
import functools
import importlib.util
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sympy = pytest.importorskip(
    "sympy", reason="the claims need the extra `proofs`: pip install capslit[proofs]"
)
from conftest import examples
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
from capslit.proofs.ledger import REQUIRED, SOURCES, Ledger, collect, numbered, recorded_reports

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
        known = {
            report.id: report
            for report in (recorded_reports(notebook, copy) if copy.is_file() else ())
        }
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


@pytest.mark.parametrize("source", REQUIRED)
def test_equations_are_claimed(source):
    assert not LEDGER.missing(REQUIRED[source])


def test_no_circular_proof():
    assert set(LEDGER.order()) == set(LEDGER)


def test_no_claim_is_checked_only_by_code_that_rests_on_it():
    assert not Ledger(report for chapter in CHAPTERS for report in reports(chapter)).circles()


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


def vanishing(symbol):
    "An expression that is zero where `symbol` is one of the numbers that are put in for sizes."
    return sympy.prod(symbol - k for k in range(11))


@pytest.mark.first
def test_badges_of_proofs_name_their_symbols_and_say_no_more_than_their_checks_do():
    """An error that vanishes where a symbol is a small whole number must not pass as true for every
    value of the symbol.

    `prepare` may stumble over it, which is no acceptance.
    """
    seen = 0
    for made, check in (
        (made, check)
        for made in LEDGER.values()
        for check in made.checks
        if check.name == "symbolic"
    ):
        verdict, parts = check.run(made.statement), claims.relations(made.statement)
        assert verdict.holds and verdict.symbols and "symbolic" not in check.about, made.id
        for symbol in {
            s
            for r in parts
            if isinstance(r, sympy.Eq)
            for s in r.free_symbols
            if isinstance(s, sympy.Symbol)
        }:
            if claims.names([symbol]) <= set(verdict.symbols.split(", ")):
                wrong = tuple(
                    sympy.Eq(r.lhs + vanishing(symbol), r.rhs, evaluate=False) for r in parts
                )
                try:
                    accepted = check.run(wrong if len(parts) > 1 else wrong[0]).holds
                except Exception:
                    accepted = False
                assert not accepted, f"{made.id}: {symbol}"
                seen += 1
    assert seen > 100


def test_equations_are_labelled_once_in_their_chapters():
    texts = {
        path.relative_to(ROOT / "nbs").with_suffix("").as_posix(): (
            path.read_text(encoding="utf-8").lower()
        )
        for path in notebooks()
    }
    for id in REQUIRED["saul"]:
        label = "$$ (" + id.replace(":", "-").replace(".", "-").lower() + ")"
        assert {chapter: text.count(label) for chapter, text in texts.items() if label in text} == {
            LEDGER[id].chapter: 1
        }, id


def unknown_commands(tex):
    """The commands of a formula that MathJax would draw in red: those whose name does not occur in
    it.
    """
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    if package is None:
        pytest.skip("the book's MathJax is not installed: pip install capslit[dev]")
    return set(re.findall(r"\\([a-zA-Z]+)", tex)) - mathjax_names(
        str(Path(package.origin).with_name("static") / "mathjax" / "tex-svg-full.js")
    )


@functools.cache
def mathjax_names(path):
    "The words of MathJax's program, among them all its commands."
    return set(re.findall(r"[a-zA-Z]+", Path(path).read_text(encoding="utf-8")))


def test_formulas_hold_no_unknown_command():
    assert unknown_commands(r"\frac{1}{2};\quadk^d") == {"quadk"}
    assert not {
        made.id: unknown_commands(made.tex)
        for made in LEDGER.values()
        if unknown_commands(made.tex)
    }
    for path in notebooks():
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            for formula in (
                re.findall(r"\$\$(.+?)\$\$", "".join(cell["source"]), re.DOTALL)
                if cell["cell_type"] == "markdown"
                else ()
            ):
                assert not unknown_commands(formula), f"{path.name}: {formula}"


# The checks reject planted errors

x, y = sympy.symbols("x y", real=True)
f = sympy.Function("f")


def estimate(rng, n, s):
    h = s * rng.standard_normal(n)
    return (h**2).mean(), (h**2).std() / n**0.5


s = sympy.Symbol("s", positive=True)
k, n = sympy.symbols("k n", integer=True, positive=True)
PLANTED = {
    "symbolic": (
        symbolic(),
        sympy.Eq((x + y) ** 2, x**2 + y**2 + 2 * x * y, evaluate=False),
        sympy.Eq((x + y) ** 2, x**2 + y**2 + x * y, evaluate=False),
    ),
    "symbolic inequality": (
        symbolic(),
        sympy.Ge(s**2 + 1, s * 0, evaluate=False),
        sympy.Le(s**2 + 1, s * 0, evaluate=False),
    ),
    "numeric": (
        numeric(),
        sympy.Eq(sympy.Integral(s * sympy.exp(-s * x), (x, 0, sympy.oo)), 1, evaluate=False),
        sympy.Eq(sympy.Integral(s * sympy.exp(-s * x), (x, 0, sympy.oo)), s, evaluate=False),
    ),
    "numeric, far digits": (
        numeric(),
        sympy.Eq(sympy.sqrt(s) ** 2, s, evaluate=False),
        sympy.Eq(s * (1 + sympy.Rational(1, 10**25)), s, evaluate=False),
    ),
    "numeric inequality": (
        numeric(),
        sympy.Le(sympy.tanh(s), s, evaluate=False),
        sympy.Ge(sympy.tanh(s), s, evaluate=False),
    ),
    "limit": (
        limit(),
        sympy.Eq(sympy.Limit(sympy.tanh(s), s, sympy.oo), 1, evaluate=False),
        sympy.Eq(sympy.Limit(sympy.tanh(s), s, sympy.oo), 2, evaluate=False),
    ),
    "limit, gap that grows": (
        limit(),
        sympy.Eq(sympy.Limit(1 / s, s, sympy.oo), 0, evaluate=False),
        sympy.Eq(sympy.Limit(s / 10**15, s, sympy.oo), 0, evaluate=False),
    ),
    "monte carlo": (monte_carlo({f: estimate}), sympy.Eq(f(s), s**2), sympy.Eq(f(s), s**2 * 1.03)),
    "implementation": (
        implementation({f: np.expm1}),
        sympy.Eq(f(s), sympy.exp(s) - 1),
        sympy.Eq(f(s), sympy.exp(s) - 1 + sympy.Rational(1, 10**9)),
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_check_accepts_the_true_and_rejects_the_false(name):
    check, true, false = PLANTED[name]
    assert check.run(true).holds
    verdict = check.run(false)
    assert not verdict.holds and verdict.evidence


def least_squares(A, b):
    w = np.linalg.solve(A.T @ A, A.T @ b)
    return A.T @ (b - A @ w)


def test_algebra_that_gets_stuck_is_no_rejection():
    def stuck(statement):
        if statement != sympy.Eq(f(x), x**2):
            raise ValueError("cannot do this")
        return claims.Verdict(True)

    with pytest.raises(ClaimError, match="mutant survives"):
        Claim(
            "capslit:stuck", "", "identity", sympy.Eq(f(x), x**2), [claims.Check("stuck", stuck)]
        ).verify()


def test_callable_statement_and_its_mutants():
    claim = Claim(
        "capslit:t",
        "normal equations",
        "algorithm step",
        least_squares,
        [on_problems(lambda rng: (rng.normal(size=(7, 3)), rng.normal(size=7)))],
    )
    assert claim.verify().report.killed == claim.report.tried >= 8


def test_false_claim_raises_and_names_itself():
    with pytest.raises(ClaimError, match="capslit:false.*numeric check fails"):
        Claim("capslit:false", "", "identity", sympy.Eq(x, y), [numeric()]).verify()


def test_blind_check_is_found_out():
    blind = claims.Check("blind", lambda statement: claims.Verdict(True, "always"))
    with pytest.raises(ClaimError, match="mutant survives"):
        Claim(
            "capslit:blind", "", "identity", sympy.Eq(x + y, y + x, evaluate=False), [blind]
        ).verify()


def test_equivalents_must_exist_and_survive():
    statement = sympy.Eq(f(x), x**2)
    with pytest.raises(ClaimError, match="no mutant is called 'nonsense'"):
        Claim(
            "capslit:a",
            "",
            "identity",
            statement,
            [numeric(define={f: lambda t: t**2})],
            equivalent={"nonsense": "because"},
        ).verify()
    with pytest.raises(ClaimError, match="listed as equivalent, but rejected"):
        Claim(
            "capslit:b",
            "",
            "identity",
            statement,
            [numeric(define={f: lambda t: t**2})],
            equivalent={"left: sign": "because"},
        ).verify()


def test_claim_names_the_argument_that_is_wrong():
    with pytest.raises(ValueError, match="kind"):
        Claim("capslit:t", "", "fact", sympy.Eq(x, y), [numeric()])
    with pytest.raises(TypeError, match="statement"):
        Claim("capslit:t", "", "identity", sympy.Eq(x, x), [numeric()])
    with pytest.raises(ValueError, match="checks"):
        Claim("capslit:t", "", "identity", sympy.Eq(x, y), [])


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no notebook below"):
        collect(tmp_path)
    with pytest.raises(ValueError, match="points"):
        numeric(points=0)
    with pytest.raises(ValueError, match="count"):
        on_problems(lambda rng: (), count=0)
    with pytest.raises(ValueError, match="where"):
        numeric({s: (1, 2)}, where=sympy.Gt(s, 3)).run(sympy.Eq(f(s), s))


def test_ledger_refuses_two_claims_of_one_name_circles_and_unknown_names():
    def entry(id, uses=()):
        return Claim(id, "", "identity", sympy.Eq(x, y), [numeric()], uses=list(uses))

    with pytest.raises(ValueError, match="claimed twice"):
        Ledger([entry("saul:2.1"), entry("saul:2.1")])
    with pytest.raises(ValueError, match="cycle"):
        Ledger([entry("saul:2.1", ["saul:2.2"]), entry("saul:2.2", ["saul:2.1"])]).order()
    with pytest.raises(KeyError, match="saul:9.9"):
        Ledger([entry("saul:2.1", ["saul:9.9"])]).order()
    assert list(Ledger(map(entry, ["capslit:a", "saul:A.1", "saul:2.10", "saul:2.9"]))) == [
        "saul:2.9",
        "saul:2.10",
        "saul:A.1",
        "capslit:a",
    ]


def test_a_number_put_in_for_a_size_is_declared_or_found():
    sums = sympy.Eq(sympy.Sum(x * k, (k, 1, n)), x * n * (n + 1) / 2, evaluate=False)
    assert symbolic(sizes={n: [2, 3]}).run(sums).reach == "in x, with n = 2, 3"
    for prepare in (lambda r: r.subs(n, 3).doit(), lambda r: (r.lhs - r.rhs).subs(n, 3).doit()):
        with pytest.raises(ValueError, match="numbers are put in for n"):
            symbolic(prepare).run(sums)
    with pytest.raises(ValueError, match="numbers are put in for y"):
        symbolic(lambda r: r.subs(y, 2)).run(
            sympy.Eq((x + y) ** 2, x**2 + 2 * x * y + y**2, evaluate=False)
        )
    three = sympy.Eq(sympy.Sum(k * x, (k, 1, 3)), 6 * x, evaluate=False)
    assert symbolic().run(three).reach == "in x, with k = 1, …, 3"
    assert (
        symbolic(lambda r: sympy.expand(r.lhs - r.rhs))
        .run(sympy.Eq((x + y) ** 2, x**2 + 2 * x * y + y**2, evaluate=False))
        .reach
        == "in x, y"
    )


def test_a_proof_that_does_not_name_its_symbols_is_a_problem():
    silent = claims.Check(
        "symbolic", lambda statement: claims.Verdict(statement == sympy.Eq(f(x), x**2))
    )
    report = Claim("capslit:t", "", "identity", sympy.Eq(f(x), x**2), [silent]).report
    assert (
        report.problems == ["the symbolic check does not say what stayed symbolic"]
        and not report.proved
    )


def test_matrices_of_symbolic_size_prove_a_program():
    X, b = sympy.MatrixSymbol("X", n, k), sympy.MatrixSymbol("b", n, 1)
    proof = on_symbols(X, b, simplify=lambda e: e.expand().doit())
    assert proof.run(lambda X, b: X.T @ (b - X @ (X.T @ X) ** -1 @ X.T @ b)) == claims.Verdict(
        True, "simplifies to 0", "X, b, k, n"
    )
    assert not proof.run(lambda X, b: X.T @ (b - 2 * X @ (X.T @ X) ** -1 @ X.T @ b)).holds
    entries = on_symbols(sympy.Matrix([x, y]))
    assert entries.run(lambda v: v.T @ v - v.T @ v).reach == "in x, y, with v of size 2 × 1"


def test_circles_through_code_are_found():
    def report(id, uses=(), code=((),), kind="identity"):
        return claims.Report(
            id, "", kind, "", "", list(uses), [], [], [], 0.0, list(map(list, code))
        )

    integral, closed = report("saul:A.19", code=[["saul:2.16"]]), report("saul:2.16", ["saul:A.19"])
    assert Ledger([integral, closed]).circles() == [("saul:2.16", "saul:A.19")]
    assert Ledger([integral, closed, report("capslit:x", ["saul:2.16"])]).circles() == [
        ("saul:2.16", "saul:A.19")
    ]
    assert not Ledger(
        [report("saul:A.19", code=[["saul:2.16"], []]), closed]
    ).circles()  # one check is independent
    assert not Ledger(
        [report("saul:A.19", code=[["saul:2.16"]], kind="definition"), closed]
    ).circles()
    assert not Ledger(
        [report("saul:2.16", code=[["saul:2.16", "saul:A.1"]]), report("saul:A.1")]
    ).circles()


def test_code_that_a_check_calls_is_noted():
    from capslit.capsules.inference import posterior_mean

    check = implementation(
        {f: lambda t: posterior_mean([[[t], [1.0]]], [0])[0, 0, 0]}, {x: (0.5, 2)}
    )
    report = Claim(
        "capslit:t", "", "definition", sympy.Eq(f(x), x), [check, numeric(define={f: lambda t: t})]
    ).report
    assert {"saul:2.16", "saul:2.19"} <= set(report.code[0]) and report.code[1] == []


def test_a_check_sees_what_others_rejected_until_it_has_rejected_enough_itself():
    statement = sympy.Eq((x + y) ** 3, sympy.expand((x + y) ** 3), evaluate=False)
    report = Claim("capslit:t", "", "identity", statement, [symbolic(), numeric()]).verify().report
    seen = {
        check: sum(check in trial.seen for trial in report.trials)
        for check in ("numeric", "symbolic")
    }
    assert seen["numeric"] == len(report.trials) > 10 and seen["symbolic"] == claims.ENOUGH
    assert all(trial.killers == ["numeric", "symbolic"] for trial in report.trials[: claims.ENOUGH])


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
        chapter.write_text(
            json.dumps(
                {"cells": [{"cell_type": "code", "id": "a", "source": cell.format(line, part)}]}
            )
        )
    found = collect(tmp_path)
    assert [list(mutants(found[f"capslit:{part}"].statement))[0] for part in ("one", "two")] == [
        "line 2: v - v → v + v",
        "line 2: v * 0 → v / 0",
    ]


def test_sections_of_a_source_are_counted_from_one():
    assert numbered("saul", _2=2, A=1) == ["saul:2.1", "saul:2.2", "saul:A.1"]


def test_relations_agree_up_to_a_factor_that_keeps_the_relation():
    equation, bound = sympy.Eq(x, y), sympy.Le(x, y)
    assert (
        same(sympy.Eq(3 * x, 3 * y), equation)
        and same(sympy.Eq(-x, -y), equation)
        and same(sympy.Le(3 * x, 3 * y), bound)
    )
    assert not any(
        same(*pair)
        for pair in [
            (sympy.Eq(x, 2 * y), equation),
            (sympy.Eq(x**2, x * y), equation),
            (sympy.Le(-x, -y), bound),
            (sympy.Eq(x, y + 1), equation),
        ]
    )


# Properties of the mutants

leaves = st.sampled_from([x, y, sympy.Integer(2), sympy.Rational(3, 2)])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(sympy.Add, inner, inner),
        st.builds(sympy.Mul, inner, inner),
        st.builds(sympy.exp, inner),
        st.builds(f, inner),
        st.builds(lambda e: e**2, inner),
    ),
    max_leaves=6,
)


@examples(40)
@given(trees)
def test_mutants_differ_from_the_statement_and_from_each_other(tree):
    statement = sympy.Eq(f(x, y), tree, evaluate=False)
    found = mutants(statement)
    assert len(set(found.values())) == len(found) >= 4
    assert statement not in found.values()


polynomials = st.lists(
    st.tuples(st.integers(-4, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3
).map(lambda terms: sum((c * x**i * y**j for c, i, j in terms), 5 * x**4 * y**4))


@examples(25)
@given(polynomials)
def test_every_mutant_of_a_polynomial_identity_dies_or_is_equivalent(p):
    report = Claim(
        "capslit:p",
        "",
        "identity",
        sympy.Eq(f(x, y), p, evaluate=False),
        [
            numeric(
                define={f: lambda a, b: p.subs({x: a, y: b}, simultaneous=True)},
                digits=30,
                tol=1e-20,
                points=2,
            )
        ],
    ).report
    assert not report.problems


@examples(25)
@given(st.integers(0, 10**6), st.floats(0.1, 3), st.floats(3.1, 9))
def test_points_are_admissible_and_repeatable(seed, low, high):
    points = claims._Points({s: (low, high)}, where=sympy.Gt(s, (low + high) / 2), seed=seed)
    assert (low + high) / 2 < points.chosen(0)[s] <= high
    assert points.values([s**2, x], 0, 30) == points.values([s**2, x], 0, 30)
