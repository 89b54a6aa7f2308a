"""What the display extensions share: the finished HTML of every page passes through their functions
before it is written.
"""


def on_every_page(app, mend):
    """Have `mend(app, page name, HTML)` return the HTML that is written for each page."""

    def wrap(app):
        if app.builder.format != "html":
            return
        render = app.builder.templates.render

        def render_and_mend(template, context):
            page = render(template, context)
            is_page = template.endswith(".html") and "pagename" in context
            return mend(app, context["pagename"], page) if is_page else page

        app.builder.templates.render = render_and_mend

    app.connect("builder-inited", wrap)
