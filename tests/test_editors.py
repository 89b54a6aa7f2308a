"""What an editor and `help` show: signatures with the names and types of the arguments."""
import inspect

import jedi
import pytest

import capslit

METHODS = ("fit", "predict", "predict_proba", "transform", "score_samples", "partial_fit")


def shown(code):
    "The signature that an editor shows at the end of the code."
    lines = code.split("\n")
    found = jedi.Script(code).get_signatures(len(lines), len(lines[-1]))
    return found[0].to_string() if found else ""


@pytest.mark.parametrize("name", capslit.__all__)
def test_editors_show_names_and_types(name):
    kind = getattr(capslit, name)
    parameters = inspect.signature(kind).parameters
    assert all(p.annotation is not inspect.Parameter.empty for p in parameters.values() if p.default is not None), name
    begin = f"from capslit import {name}\n"
    assert shown(f"{begin}{name}(").startswith(f"{name}({next(iter(parameters))}")
    for method in filter(kind.__dict__.__contains__, METHODS):
        assert f"{method}(" in shown(f"{begin}it = {name}()\nit.{method}("), f"{name}.{method}"
        assert inspect.signature(getattr(kind, method)).parameters.keys() >= {"self", "X"}
