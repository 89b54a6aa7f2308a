"""Everything about the distribution is read from settings.ini; nothing is stated twice."""

import re
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

extras = {
    key.removesuffix("_requirements"): value.split()
    for key, value in cfg.items()
    if key.endswith("_requirements")
}
extras["dev"] = sorted(
    {r for name, rs in extras.items() if name not in cfg["apart"].split() for r in rs}
)
extras["all"] = sorted({r for name in cfg["all"].split() for r in extras[name]})

source, book = cfg["git_url"], f"{cfg['doc_host']}{cfg['doc_baseurl']}"


def absolute(match):
    """A link of the README as it must be elsewhere.

    Chapters lead to the book, pictures to their file, all else to the repository.
    """
    mark, text, target = match.groups()
    if "://" in target or target.startswith("#"):
        return match[0]
    if mark:
        raw = source.replace("github.com", "raw.githubusercontent.com")
        address = f"{raw}/v{cfg['version']}/{target}"
    elif target.endswith(".ipynb"):
        address = f"{book}v{cfg['version']}/{target.removesuffix('.ipynb')}.html"
    else:
        address = f"{source}/blob/v{cfg['version']}/{target}"
    return f"{mark}[{text}]({address})"


readme = re.sub(
    r"(!?)\[([^]]*)\]\(([^)\s]+)\)", absolute, (here / "README.md").read_text(encoding="utf-8")
)

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=readme,
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=book,
    project_urls={
        "Documentation": f"{book}v{cfg['version']}/",
        "Source": source,
        "Changelog": f"{source}/blob/{cfg['branch']}/CHANGELOG.md",
        "Issues": f"{source}/issues",
    },
    license_expression="Apache-2.0",
    license_files=["LICENSE"],
    keywords=cfg["keywords"].split(),
    python_requires=f">={cfg['min_python']}",
    packages=find_packages(include=["capslit", "capslit.*"]),
    package_data={"": ["*.pyi", "py.typed", "*.sha256"]},
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={"console_scripts": cfg["console_scripts"].split()},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Education",
        "Intended Audience :: Science/Research",
        "Operating System :: OS Independent",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
)
