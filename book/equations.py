"""Equations that are wider than the column: broken into lines by a script, where the reader's
window asks for it.
"""


def setup(app):
    app.add_js_file("equations.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
