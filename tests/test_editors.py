"""What an editor and `help` show: signatures with the names and types of the arguments."""

import inspect

import jedi

import capslit

METHODS = ("fit", "predict", "predict_proba", "transform", "score_samples", "partial_fit")


def test_editors_show_names_and_types():
    kinds = {name: getattr(capslit, name) for name in capslit.__all__}
    code = [f"from capslit import {', '.join(kinds)}"]
    expected = {}  # by line of the code: what the editor shows between the brackets at its end
    for name, kind in kinds.items():
        code.append(f"{name.lower()} = {name}()")
        expected[len(code)] = f"{name}({next(iter(inspect.signature(kind).parameters), '')}"
        for method in filter(kind.__dict__.__contains__, METHODS):
            code.append(f"{name.lower()}.{method}()")
            expected[len(code)] = f"{method}("
    script = jedi.Script("\n".join(code))
    for line, begin in expected.items():
        shown = script.get_signatures(line, len(code[line - 1]) - 1)
        assert shown and begin in shown[0].to_string(), code[line - 1]
    for name, kind in kinds.items():
        assert all(
            p.annotation is not inspect.Parameter.empty
            for p in inspect.signature(kind).parameters.values()
            if p.default is not None
        ), name
        for method in filter(kind.__dict__.__contains__, METHODS):
            assert inspect.signature(getattr(kind, method)).parameters.keys() >= {"self", "X"}
