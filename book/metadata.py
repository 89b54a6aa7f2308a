"""What is said about each page, to search engines, other sites and passers-by: description,
address, social card, version; and the page for addresses that lead nowhere.
"""

from datetime import date
from functools import cache
from html import escape
from pathlib import Path

from dependencies import notebooks, reads_notebooks
from docutils import nodes
from project import LATEST, ROOT, SETTINGS, SITE, SOURCE, VERSION, commit, version_folder
from sphinx_sitemap import is_excluded

# of the addresses on the page for addresses that lead nowhere, which is shown at any depth
PREFIX = f"{SETTINGS['doc_baseurl']}latest/"
PICTURE = "social.png"
ALT = (
    "Ten discs, one per digit: handwritten digits placed by the two coordinates of their class's"
    " capsule."
)
NOT_FOUND = """<h1>Page not found</h1>
<p>There is no page at this address: it may have been renamed,
or belong to another version of the book.</p>
<form action="{prefix}search.html" method="get" role="search">
<label>Search the book: <input type="search" name="q" required></label>
<button type="submit">Search</button>
</form>
<ul>
<li><a href="{prefix}nbs/index.html">The first page</a></li>
<li><a href="{prefix}nbs/capsules/definition.html">The model</a></li>
<li><a href="{prefix}nbs/practice/use.html">Using the classifier</a></li>
<li><a href="{prefix}nbs/practice/api.html">Reference of all names</a></li>
<li><a href="{source}/issues">Tell us of a broken link</a></li>
</ul>"""


def configure(app, config):
    """Give the extensions and the theme the addresses that settings.ini states."""
    config.html_baseurl = LATEST  # of the canonical links
    config.sitemap_url_scheme = "{link}"
    config.sitemap_excludes = [
        "index.html",
        "search.html",
        "404.html",
        "genindex.html",
        "py-modindex.html",
    ]
    config.ogp_site_url = LATEST
    config.ogp_site_name = SETTINGS["title"]
    config.ogp_image = f"_static/{PICTURE}"
    config.ogp_image_alt = ALT
    config.ogp_custom_meta_tags = [
        '<meta property="og:image:width" content="1200" />',
        '<meta property="og:image:height" content="630" />',
        '<meta name="twitter:card" content="summary_large_image" />',
    ]
    config.notfound_urls_prefix = PREFIX
    config.notfound_context = {
        "title": "Page not found",
        "body": NOT_FOUND.format(prefix=PREFIX, source=SOURCE),
    }
    config.html_theme_options |= {
        "repository_url": SOURCE,
        "repository_branch": SETTINGS["branch"],
        "path_to_docs": "",
        "use_edit_page_button": True,
        "use_repository_button": True,
        "use_issues_button": True,
    }


def description(doctree):
    """A page in a sentence: the chapter's subtitle, else what the package is."""
    quote = doctree and doctree.next_node(nodes.block_quote)
    return " ".join(quote.astext().split()) if quote else SETTINGS["description"]


@cache
def build():
    """Version and commit of this build, as a line of HTML."""
    line = f"{SETTINGS['title']} {VERSION}"
    if commit():
        name, day = commit()
        day = date.fromisoformat(day)
        line += (
            f', commit <a href="{SOURCE}/commit/{name}">{name[:10]}</a> of {day.day} {day:%B %Y}'
        )
    return f'{line} · <a href="{SITE}versions.html">all versions</a>'


def describe(app, pagename, templatename, context, doctree):
    """Description and version of a page; runs before the social card is made."""
    text = description(doctree)
    context["metatags"] = (
        context.get("metatags", "") + f'\n<meta name="description" content="{escape(text)}" />\n'
    )
    context["meta"] = {**(context.get("meta") or {}), "og:description": escape(text)}
    context["theme_extra_footer"] = f'<p class="capslit-build">{build()}</p>'
    if pagename == app.config.notfound_pagename:
        context["content_root"] = PREFIX
        context["pageurl"] = None  # it has no address of its own


@cache
def elsewhere(path):
    """Whether a notebook runs without a checkout: the others read the sources of the book."""
    return path in notebooks() and not reads_notebooks(path)


def look_once(app, env):
    """Look at all notebooks before the pages are written, each by a process of its own that would
    begin anew.
    """
    for path in notebooks():
        elsewhere(path)
    return []


def launch(pagename):
    """Where the copy of a notebook that installs the package (book/elsewhere.py) can be run: name,
    picture and address.
    """
    owner = SOURCE.removeprefix("https://github.com/")
    path = f"{version_folder()}/{pagename}.ipynb"
    return [
        (
            "Colab",
            "logo_colab.png",
            f"https://colab.research.google.com/github/{owner}/blob/notebooks/{path}",
        ),
        (
            "Binder",
            "logo_binder.svg",
            f"https://mybinder.org/v2/gh/{owner}/notebooks?urlpath=lab/tree/{path}",
        ),
    ]


def add_buttons(app, pagename, templatename, context, doctree):
    """Buttons in the header: "Edit this page" by that name, and where the notebook can be run; runs
    after the theme has made its own.
    """
    buttons = context.get("header_buttons", [])
    for button in (button for group in buttons for button in group.get("buttons", [])):
        if button.get("label") == "source-edit-button":
            button |= {"text": "Edit this page", "tooltip": "Edit this page"}
    if doctree and elsewhere(Path(app.env.doc2path(pagename))):
        links = [
            {
                "type": "link",
                "text": name,
                "tooltip": f"Run this chapter on {name}",
                "icon": f"_static/images/{icon}",
                "url": url,
            }
            for name, icon, url in launch(pagename)
        ]
        buttons.insert(
            0,
            {
                "type": "group",
                "tooltip": "Run this chapter elsewhere",
                "icon": "fas fa-rocket",
                "buttons": links,
                "label": "launch-buttons",
            },
        )


def write_robots(app, exception):
    """Search engines may read everything, and find all pages in the site map."""
    if exception is None and app.builder.format == "html":
        (Path(app.outdir) / "robots.txt").write_text(
            f"User-agent: *\nAllow: /\n\nSitemap: {LATEST}sitemap.xml\n", encoding="utf-8"
        )


def list_all_pages(app, exception):
    """The site map lists all pages, also those that need not be written anew."""
    if exception is None and app.builder.format == "html":
        links = app.sitemap_links
        while not links.empty():
            links.get()
        for link in sorted(f"{name}.html" for name in app.env.found_docs):
            if not is_excluded(link, app.config.sitemap_excludes):
                links.put((link, None))


def setup(app):
    app.add_config_value(
        "capslit_version", VERSION, "html"
    )  # where it changes, all pages are written anew
    app.connect("config-inited", configure, priority=100)
    app.connect("env-updated", look_once)
    app.connect("html-page-context", describe, priority=100)
    app.connect("html-page-context", add_buttons, priority=900)
    app.connect("build-finished", write_robots)
    app.connect("build-finished", list_all_pages, priority=100)  # before the site map is written
    assert (ROOT / "book" / "_static" / PICTURE).is_file(), "make picture"
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
