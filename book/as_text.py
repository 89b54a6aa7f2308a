"""A notebook as plain text, for `git diff`: the sources of its cells, and nothing else."""

import json
import sys
from pathlib import Path

for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    print(f"%% {cell['cell_type']}", *cell["metadata"].get("tags", []))
    print("".join(cell["source"]), end="\n\n")
