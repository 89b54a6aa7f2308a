"""What is said about each page, to search engines, other sites and passers-by: description,
address, social card, version, where it runs; and the page for addresses that lead nowhere.

Extensions make the social cards, the site map and that page; here they are told what
settings.ini says, and what each chapter's subtitle says.
"""

from datetime import date
from functools import cache
from html import escape
from pathlib import Path

from dependencies import notebooks, reads_notebooks
from docutils import nodes
from project import LATEST, SETTINGS, SITE, SOURCE, VERSION, commit, version_folder
from sphinx_sitemap import is_excluded

# of the addresses on the page for addresses that lead nowhere, which is shown at any depth
PREFIX = f"{SETTINGS['doc_baseurl']}latest/"
NOT_FOUND = f"""<h1>Page not found</h1>
<p>There is no page at this address: it may have been renamed,
or belong to another version of the book.</p>
<form action="{PREFIX}search.html" method="get" role="search">
<label>Search the book: <input type="search" name="q" required></label>
<button type="submit">Search</button>
</form>
<ul>
<li><a href="{PREFIX}nbs/index.html">The first page</a></li>
<li><a href="{PREFIX}nbs/practice/use.html">Using the classifier</a></li>
<li><a href="{PREFIX}nbs/practice/api.html">Reference of all names</a></li>
<li><a href="{SOURCE}/issues">Tell us of a broken link</a></li>
</ul>"""
CONFIGURATION = {  # the addresses; all else is in _config.yml
    "html_baseurl": LATEST,  # of the canonical links
    "ogp_site_url": LATEST,
    "ogp_site_name": SETTINGS["title"],
    "notfound_urls_prefix": PREFIX,
    "notfound_context": {"title": "Page not found", "body": NOT_FOUND},
}
# Where the copy of a notebook that installs the package (book/elsewhere.py) can be run, with a logo
OWNER = SOURCE.removeprefix("https://github.com/")
LAUNCH = {
    "Colab": (
        f"https://colab.research.google.com/github/{OWNER}/blob/notebooks/",
        "logo_colab.png",
    ),
    "Binder": (
        f"https://mybinder.org/v2/gh/{OWNER}/notebooks?urlpath=lab/tree/",
        "logo_binder.svg",
    ),
}


def configure(app, config):
    """Give the extensions and the theme the addresses that settings.ini states."""
    for name, value in CONFIGURATION.items():
        setattr(config, name, value)
    address = {"repository_url": SOURCE, "repository_branch": SETTINGS["branch"]}
    config.html_theme_options |= address


@cache
def build():
    """Version and commit of this build, as a line of HTML."""
    line = f"{SETTINGS['title']} {VERSION}"
    if commit():
        name, day = commit()
        day = date.fromisoformat(day)
        link = f'<a href="{SOURCE}/commit/{name}">{name[:10]}</a>'
        line += f", commit {link} of {day.day} {day:%B %Y}"
    return f'{line} · <a href="{SITE}versions.html">all versions</a>'


def describe(app, pagename, templatename, context, doctree):
    """A page in a sentence: the chapter's subtitle, else what the package is; runs before the
    social card is made.
    """
    quote = doctree and doctree.next_node(nodes.block_quote)
    text = escape(" ".join(quote.astext().split()) if quote else SETTINGS["description"])
    tag = f'\n<meta name="description" content="{text}" />\n'
    context["metatags"] = context.get("metatags", "") + tag
    context["meta"] = {**(context.get("meta") or {}), "og:description": text}
    context["theme_extra_footer"] = f'<p class="capslit-build">{build()}</p>'
    if pagename == app.config.notfound_pagename:
        context["content_root"] = PREFIX
        context["pageurl"] = None  # it has no address of its own


@cache
def portable():
    """The notebooks that run without a checkout: the others read the sources of the book."""
    return {path for path in notebooks() if not reads_notebooks(path)}


def add_buttons(app, pagename, templatename, context, doctree):
    """Buttons in the header: "Edit this page" by that name, and where the notebook can be run; runs
    after the theme has made its own.
    """
    groups = context.get("header_buttons", [])
    for button in (button for group in groups for button in group.get("buttons", [])):
        if button.get("label") == "source-edit-button":
            button |= {"text": "Edit this page", "tooltip": "Edit this page"}
    if doctree and Path(app.env.doc2path(pagename)) in portable():
        links = [
            {
                "type": "link",
                "text": name,
                "tooltip": f"Run this chapter on {name}",
                "icon": f"_static/images/{logo}",
                "url": f"{address}{version_folder()}/{pagename}.ipynb",
            }
            for name, (address, logo) in LAUNCH.items()
        ]
        menu = {
            "type": "group",
            "tooltip": "Run this chapter elsewhere",
            "icon": "fas fa-rocket",
            "buttons": links,
            "label": "launch-buttons",
        }
        groups.insert(0, menu)


def write_site_files(app, exception):
    """Search engines may read everything; the site map lists all pages, also those that need not be
    written anew.
    """
    if exception is None and app.builder.format == "html":
        robots = f"User-agent: *\nAllow: /\n\nSitemap: {LATEST}sitemap.xml\n"
        Path(app.outdir, "robots.txt").write_text(robots, encoding="utf-8")
        links = app.sitemap_links
        while not links.empty():
            links.get()
        for link in sorted(f"{name}.html" for name in app.env.found_docs):
            if not is_excluded(link, app.config.sitemap_excludes):
                links.put((link, None))


def setup(app):
    # where the version changes, all pages are written anew
    app.add_config_value("capslit_version", VERSION, "html")
    app.connect("config-inited", configure, priority=100)
    app.connect("html-page-context", describe, priority=100)
    app.connect("html-page-context", add_buttons, priority=900)
    app.connect("build-finished", write_site_files, priority=100)  # before the site map is written
