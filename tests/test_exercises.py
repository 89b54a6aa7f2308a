"""The exercises of the chapters: five in each (of one subject in several chapters fewer), numbered,
each with a solution, and most solutions checked by an assertion.
"""

import ast
import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).resolve().parent.parent / "nbs"
CHAPTERS = [
    "capsules/definition",
    "capsules/special",
    "capsules/inference",
    "capsules/em_steps",
    "capsules/initialisation",
    "capsules/expansion",
    "capsules/prediction",
    "capsules/sharpness",
    "capsules/features",
    "capsules/problems",
    "capsules/search",
    "capsules/evidence",
    "capsules/online",
    "capsules/penalties",
    "em/loop",
    "mixtures/factor_analysis",
    "mixtures/tangents",
    "mixtures/classes",
    "factorial/e_steps",
    "factorial/model",
    "factorial/quantizer",
    "routing/procedure",
    "routing/network",
    "routing/comparison",
    "composition/rules",
    "composition/pursuit",
    "deeper/sharing",
    "deeper/patches",
    "deeper/pairs",
]
PARTS = {
    "mixtures/gaussian": 2,
    "mixtures/estimator": 3,
    "composition/model": 3,
    "composition/exact": 2,
    "composition/estimator": 2,
    "factorial/chains": 2,
    "factorial/hmm": 3,
}  # of one subject in several chapters


def source(cell):
    return "".join(cell["source"])


def is_solution(cell):
    return "solution" in cell["metadata"].get("tags", ())


def exercises(cells):
    "The exercises of a notebook: for each its number and the cells of its solution."
    found = []
    for cell in cells:
        title = (
            re.match(r"\*\*Exercise (\d+)\*\* \(.+?\)\. ", source(cell))
            if cell["cell_type"] == "markdown"
            else None
        )
        if title and not is_solution(cell):
            found.append((int(title[1]), []))
        elif is_solution(cell):
            assert found, "a solution stands before the first exercise"
            found[-1][1].append(cell)
    return found


def asserts(cell):
    """Whether a cell asserts something that is computed: a statement `assert` with a name in it, or
    a call of NumPy's `assert_…`.
    """
    if cell["cell_type"] != "code":
        return False
    nodes = list(ast.walk(ast.parse(source(cell))))
    stated = any(
        isinstance(node, ast.Assert)
        and any(isinstance(part, ast.Name) for part in ast.walk(node.test))
        for node in nodes
    )
    return stated or any(
        isinstance(node, ast.Attribute) and node.attr.startswith("assert_") for node in nodes
    )


def faults(cells, n=5):
    "What a notebook's n exercises lack."
    found = exercises(cells)
    headings = [
        source(cell).splitlines()[0] for cell in cells if source(cell).startswith("## Exercises")
    ]
    solved = [cell for _, solution in found for cell in solution]
    return [
        fault
        for fault, holds in {
            "one section of exercises": len(headings) == 1,
            "numbers from 1 on": [number for number, _ in found] == [*range(1, n + 1)],
            "a solution to each": all(solution for _, solution in found),
            "three solutions that assert something": sum(
                any(map(asserts, solution)) for _, solution in found
            )
            >= min(n, 3),
            "no solution that is exported": not any(
                line.startswith("#|") for cell in solved for line in cell["source"]
            ),
            "nothing but the closing paragraph after the last solution": bool(cells)
            and bool(solved)
            and cells[-2] is solved[-1],
            "what to read before": "*Before this chapter:*" in source(cells[0]),
        }.items()
        if not holds
    ]


@pytest.mark.parametrize("chapter, n", [*((chapter, 5) for chapter in CHAPTERS), *PARTS.items()])
def test_exercises_with_solutions(chapter, n):
    assert faults(json.loads((NOTEBOOKS / f"{chapter}.ipynb").read_text())["cells"], n) == []


def test_faults_are_found():
    whole = json.loads((NOTEBOOKS / f"{CHAPTERS[0]}.ipynb").read_text())["cells"]
    heading, first, second = (
        next(i for i, cell in enumerate(whole) if source(cell).startswith(start))
        for start in ("## Exercises", "**Exercise 1**", "**Exercise 2**")
    )
    for removed, fault in (
        (range(first, second), "numbers from 1 on"),
        (range(first + 1, second), "a solution to each"),
        ([heading], "one section of exercises"),
        ([0], "what to read before"),
    ):
        assert fault in faults([cell for i, cell in enumerate(whole) if i not in removed])
    assert "nothing but the closing paragraph after the last solution" in faults(whole + whole[-1:])
