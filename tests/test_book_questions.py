"""Questions of the course, and equations that a reader can break, in the built book."""

from math import prod

import numpy as np
import pytest
from built_book import CHAPTERS, html, needs_built_book
from conftest import together

pytestmark = needs_built_book

ASKING = [name for name in CHAPTERS if 'class="capslit-question"' in html(name)]
BREAKABLE = {
    "broken-square": "nbs/exploring.html",
    "broken-function": "nbs/course/one_function.html",
    "broken-inference": "nbs/course/exact_inference.html",
    "broken-bound": "nbs/course/learning.html",
}


def test_most_chapters_of_the_course_ask():
    assert len(ASKING) >= 6


@together("name", ASKING)
def test_a_question_has_one_right_answer_and_needs_no_script(readers, name):
    reader = readers(java_script_enabled=False)
    reader.page.goto(reader.site + name)
    boxes = reader.page.get_by_role("group", name="Predict. ").all()
    assert len(boxes) == html(name).count('class="capslit-question"')
    for box in boxes:
        answers = box.get_by_role("radio").all()
        right = [answer.get_attribute("data-right") is not None for answer in answers]
        assert 2 <= len(answers) <= 4 and right.count(True) == 1
        names = [label.inner_text().strip() for label in box.locator("label").all()]
        assert all(names) and len(set(names)) == len(names)
        hit, miss = box.locator(".capslit-hit"), box.locator(".capslit-miss")
        assert not hit.is_visible()
        answers[0].focus()
        reader.page.keyboard.press("Tab")
        reader.page.keyboard.press("Enter")  # the fold can be opened without an answer
        assert box.locator("details p").first.is_visible()
        assert not hit.is_visible() and not miss.is_visible()
        assert len(box.locator("details p").last.inner_text().split()) > 5
        answers[0].focus()
        reader.page.keyboard.press("Space")
        for is_right in [*right[1:], right[0]]:
            reader.page.keyboard.press("ArrowDown")  # from the last answer to the first
            assert hit.is_visible() == is_right and miss.is_visible() != is_right


@together("part", BREAKABLE)
def test_only_the_right_equation_holds_and_both_sides_agree_with_the_package(reader, part):
    found, check, sizes = reader.open(BREAKABLE[part]).evaluate(
        """part => {
            const {sides, holds} = capslit.parts[part], {equations, check} = capslit.data[part];
            const all = terms => terms.reduce((picks, [, options]) =>
                picks.flatMap(pick => options.map((_, o) => [...pick, o])), [[]]);
            const found = equations.map(({terms}, k) =>
                all(terms).map(picks => [sides(k, picks), holds(k, picks)]));
            return [found, check, equations.map(({terms}) => terms.map(([, o]) => o.length))];
        }""",
        part,
    )
    for variants, values, size in zip(found, check, sizes, strict=True):
        pairs = np.array([sides for sides, _ in variants])  # (variants, problems, 2)
        assert len(pairs) == prod(size) == len(values["right"]) and pairs.shape[1] >= 12
        left = np.broadcast_to(values["left"], pairs.shape[:2])
        np.testing.assert_allclose(pairs[:, :, 0], left, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(pairs[:, :, 1], values["right"], rtol=1e-6, atol=1e-6)
        assert [good for _, good in variants] == [True] + [False] * (prod(size) - 1)


@pytest.mark.parametrize("part", BREAKABLE)
def test_an_equation_is_broken_by_keyboard_and_says_so(readers, part):
    page = readers(390, "dark").open(BREAKABLE[part])
    mount = page.locator(f"#live-{part}")
    status = mount.get_by_role("status")
    for term in mount.locator(".capslit-formula select").all():
        assert term.get_attribute("aria-label") and term.bounding_box()["height"] >= 24
        assert status.inner_text().startswith("Holds")
        term.focus()
        page.keyboard.press("ArrowDown")
        assert status.inner_text().startswith("Fails in ") and " at " in status.inner_text()
        assert not mount.locator("[data-holds]").count()
        page.keyboard.press("ArrowUp")
    assert status.inner_text().startswith("Holds in 12 of 12")
