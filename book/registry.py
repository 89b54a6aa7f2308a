"""Write the hashes of the records in results/ into the package, which fetches them where there is
no checkout: python book/registry.py
"""

from hashlib import sha256

from paths import ROOT

REGISTRY = ROOT / "capslit" / "experiments" / "results.sha256"


def lines():
    """A line for each file in results/, in the form of sha256sum."""
    return "".join(
        f"{sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted((ROOT / "results").iterdir())
        if path.suffix in (".json", ".npz")
    )


if __name__ == "__main__":
    REGISTRY.write_text(lines(), encoding="utf-8")
