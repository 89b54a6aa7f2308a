"""Draw the cover's picture for the README: run the code of nbs/index.ipynb and save its figure on white."""
import json
from pathlib import Path

import matplotlib

matplotlib.use("agg")

from capslit import plotting  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
names = {}
plotting.show = plotting.live = lambda *args, **kwargs: None  # nothing to display here
for cell in json.loads((ROOT / "nbs" / "index.ipynb").read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        exec("".join(cell["source"]), names)
with plotting.style("light"):
    names["poses"]().savefig(ROOT / "nbs" / "images" / "poses.png", dpi=160, facecolor=plotting.PAPER["light"], metadata={"Software": None})
