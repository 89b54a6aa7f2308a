"""Everything about the distribution is read from settings.ini; nothing is stated twice."""
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup

here = Path(__file__).parent
config = ConfigParser(delimiters=["="], interpolation=None)
config.read(here / "settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]

extras = {key.removesuffix("_requirements"): value.split() for key, value in cfg.items() if key.endswith("_requirements")}
extras["dev"] = sorted({r for name, rs in extras.items() if name not in cfg["apart"].split() for r in rs})
extras["all"] = sorted({r for name in cfg["all"].split() for r in extras[name]})

setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    license="Apache-2.0",
    keywords=cfg["keywords"],
    python_requires=f">={cfg['min_python']}",
    packages=find_packages(include=["capslit", "capslit.*"]),
    package_data={"": ["*.pyi", "py.typed"]},
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={"console_scripts": cfg["console_scripts"].split()},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering",
    ],
)
