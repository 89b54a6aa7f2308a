"""Draw the pictures of the cover: run the code of nbs/index.ipynb, and save its figure on white for
the README and, with a title, for links to the book.
"""

import io
import json

import matplotlib
from paths import ROOT
from project import SETTINGS

matplotlib.use("agg")

import matplotlib.pyplot as plt  # noqa: E402

from capslit import plotting  # noqa: E402

names = {}
plotting.show = plotting.live = lambda *args, **kwargs: None  # nothing to display here
for cell in json.loads((ROOT / "nbs" / "index.ipynb").read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)

with plotting.style("light"):
    paper = {"facecolor": plotting.PAPER["light"], "metadata": {"Software": None}}
    picture = io.BytesIO()
    names["poses"]().savefig(picture, format="png", dpi=160, **paper)
    (ROOT / "nbs" / "images" / "poses.png").write_bytes(picture.getvalue())
    # with title and subtitle above it, 1200 × 630 pixels, as other sites show it beside a link
    fig = plt.figure(figsize=(12, 6.3), dpi=100, layout="none")
    fig.text(0.05, 0.84, SETTINGS["title"], size=44, weight="bold")
    fig.text(0.05, 0.765, "Capsule regression, derived, proved and measured", size=22)
    ax = fig.add_axes((0.03, 0.03, 0.94, 0.70))
    ax.imshow(plt.imread(picture))
    ax.set_axis_off()
    fig.savefig(ROOT / "book" / "_static" / "social.png", dpi=100, **paper)
