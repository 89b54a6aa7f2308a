"""The prose of the chapters: mannerisms and long sentences do not come back."""

import re
from pathlib import Path

import nbformat
import numpy as np

NOTEBOOKS = Path(__file__).resolve().parent.parent / "nbs"

# how often each may occur in all chapters: questions, scripts of figures, and quotations have some
MANNERISMS = {
    r"\bwhat (?:is|are)\b": 50,
    r"\bso that\b": 11,
    r"\bstands?\b": 5,
    r"\bof (?:its|their|one's|his|our|your) own\b": 11,
    r"\b(?:somebody|nobody|whoever|one would)\b": 1,
    r"\b(?:is|are) no\b": 48,
    r"\bbeside\b": 27,
    r"(?:^|[.!?]\s)(?:Of|To) (?:the|all|each)": 17,
    r"to the (?:last )?bit|the same bits": 1,
    r"\b(?:foretell|foretold|heaps|told|tells?|gives? away|gets? along|mend|comes? back)\b": 28,
}


def texts():
    for path in sorted(NOTEBOOKS.rglob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                yield cell.source


def test_mannerisms_are_rare():
    text = "\n\n".join(texts())
    counts = {p: len(re.findall(p, text, re.IGNORECASE | re.MULTILINE)) for p in MANNERISMS}
    assert {p: n for p, n in counts.items() if n > MANNERISMS[p]} == {}


def test_sentences_are_short():
    text = "\n\n".join(texts())
    text = re.sub(r"\$\$.*?\$\$", ".", text, flags=re.DOTALL)
    text = re.sub(r"^[#|>].*$", "", text, flags=re.MULTILINE)
    lengths = [len(sentence.split()) for sentence in re.split(r"[.!?:]\s", text)]
    lengths = np.array([n for n in lengths if n > 2])
    assert lengths.mean() <= 18 and np.quantile(lengths, 0.9) <= 30
