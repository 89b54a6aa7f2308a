"""Tables that cells print: a reader orders them by any column, and filters the long ones. Without
scripts they stand as they are.
"""


def setup(app):
    app.add_js_file("tables.js", loading_method="defer")
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
