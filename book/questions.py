"""Questions to answer before the answer is shown.

    ```{predict} Which class wins?
    - [ ] The first.
    - [x] The second.

    One sentence why.
    ```

Two to four answers, one of them right. The page needs no script: the answers are radio buttons,
the explanation is a fold, and the style sheet marks the answers when it is open.
"""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

BOX = '<fieldset class="capslit-question" id="{0}">\n<legend><b>Predict.</b> '
ANSWER = '<label><input type="radio" name="{}"{}> '
FOLD = (
    '<details><summary>The answer</summary>\n<p><b class="capslit-hit">You were right. </b>'
    '<b class="capslit-miss">Your prediction was another. </b>Right: '
)


def html(text):
    return nodes.raw("", text, format="html")


def inline(children):
    """Text as a span, which needs no paragraph around it."""
    return nodes.inline("", "", *(child.deepcopy() for child in children))


class Predict(SphinxDirective):
    """A question, its answers and the reason for the right one."""

    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self):
        question, _ = self.state.inline_text(self.arguments[0], self.lineno)
        body = nodes.container()
        self.state.nested_parse(self.content, self.content_offset, body)
        answers = [item.children[0] for item in body.children[0].children]
        marks = [words[0][:3] for words in answers]
        for words in answers:
            words[0] = nodes.Text(words[0][4:])
        if marks.count("[x]") != 1 or not 2 <= len(answers) <= 4 or len(body.children) < 2:
            raise self.error("a question has 2 to 4 answers, one marked [x], and a reason")
        name = nodes.make_id(f"predict-{self.arguments[0]}")[:60]
        made = [html(BOX.format(name)), inline(question), html("</legend>\n")]
        for mark, words in zip(marks, answers):
            tag = ANSWER.format(name, " data-right" * (mark == "[x]"))
            made += [html(tag), inline(words.children), html("</label>\n")]
        right = answers[marks.index("[x]")]
        made += [html(FOLD), inline(right.children), html("</p>\n")]
        return [*made, *body.children[1:], html("</details>\n</fieldset>")]


def setup(app):
    app.add_directive("predict", Predict)
