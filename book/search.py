"""The search finds sections, forgives misspellings, and works from files, where Sphinx's does not.

The text of the pages, without code and formulas, goes into one script that the search page loads.
MiniSearch (`book/_static/minisearch.js`) indexes it in the browser.
"""

import base64
import gzip
import html
import json
import re
from pathlib import Path

from names import PLAIN
from pages import on_every_page

# What a reader would type and a chapter's text does not say, or says less often than others
KEYWORDS = {
    "nbs/index": "install, installation, pip, cite, citation, licence",
    "nbs/arrays": "PyTorch tensors, CuPy",
    "nbs/cli": "terminal",
    "nbs/capsules/definition": "capsule regression, generative model",
    "nbs/capsules/inference": "posterior, E-step",
    "nbs/capsules/features": "kernel, RBF, nonlinear",
    "nbs/capsules/classifier": "CapsuleClassifier, estimator, scikit-learn",
    "nbs/capsules/table_classifier": (
        "missing values, NaN, categories, categorical columns, pandas, data frame"
    ),
    "nbs/capsules/penalties": "lasso, L1, sparsity, feature selection",
    "nbs/capsules/plain": "reference implementation, minimal, from scratch",
    "nbs/capsules/special": "incomplete gamma, Bessel",
    "nbs/capsules/reconstruction": "autoencoder",
    "nbs/capsules/sharpness": "temperature scaling, predict_proba",
    "nbs/capsules/search": "ridge, hyperparameters",
    "nbs/capsules/evidence": "marginal likelihood",
    "nbs/capsules/online": "partial_fit",
    "nbs/capsules/cross_validation": "grid search",
    "nbs/composition/gaussian": "binary sparse coding",
    "nbs/data/datasets": "MNIST download, load data",
    "nbs/data/sources": "memory map, out of core",
    "nbs/data/arrow": "Feather, polars",
    "nbs/data/dask": "distributed",
    "nbs/data/deformations": "augmentation, shift, rotation",
    "nbs/deeper/questions": "future work, multilayer",
    "nbs/deeper/patches": "convolution, unsupervised, feature learning",
    "nbs/deeper/sharing": "convolution, translation, invariance",
    "nbs/deeper/pairs": "multilabel, multiple labels",
    "nbs/deeper/joint": "end to end, multilayer",
    "nbs/em/checkpoint": "resume, interrupted run, crash, killed, restart",
    "nbs/em/acceleration": "overrelaxation",
    "nbs/em/compiling": "JIT",
    "nbs/em/parallel": "BLAS, n_jobs",
    "nbs/estimator/training_data": "sparse, sparse matrices, sample_weight, CSR",
    "nbs/estimator/persistence": "save, load, pickle, model file, joblib",
    "nbs/experiments/figure5": "MNIST error, test error",
    "nbs/experiments/updates": "momentum, thresholds",
    "nbs/experiments/million": "infinite MNIST, augmentation",
    "nbs/experiments/poses": "pose vectors, equivariance, disentangled, traversal",
    "nbs/experiments/penalties": "L1, L2, sparse weights",
    "nbs/experiments/calibration": "predict_proba calibration",
    "nbs/experiments/contest": "benchmark, gradient boosting, OpenML",
    "nbs/experiments/peers": "baselines, comparison",
    "nbs/experiments/overlaps": "MultiMNIST, segmentation",
    "nbs/experiments/preparation": "preprocessing",
    "nbs/factorial/hmm": "factorial HMM, FHMM, time series",
    "nbs/mixtures/gaussian": "GMM, mixture of Gaussians",
    "nbs/mixtures/estimator": "GMM",
    "nbs/mixtures/stacking": "model averaging, mixing weights",
    "nbs/mixtures/factor_analysis": "principal components",
    "nbs/mixtures/tangents": "invariance",
    "nbs/practice/use": "getting started, tutorial, quick start",
    "nbs/practice/more": "your own data, save, load, partial_fit, pipeline, feature importance",
    "nbs/practice/scale": "GPU, CUDA, large data, out of core",
    "nbs/practice/errata": "misprints, corrections, errors in the paper",
    "nbs/practice/bibliography": "literature, references",
    "nbs/proofs/mutants": "mutation testing",
    "nbs/routing/procedure": "capsule network, votes",
}
LEFT_OUT = (
    r"<(script|style|svg|pre|summary)\b.*?</\1>"
    r'|<a class="headerlink".*?</a>|<p class="capslit-reference">.*?</p>'
    r'|<details class="claim-trials".*?</details>|<dl class="field-list.*?</dl>'
    r'|<details class="capslit-fold" data-kind="solution">.*?</details>'
    r"|<td\b[^>]*>[^a-zA-Z]*</td>"
)
FORMULA = r"\\\(.*?\\\)|\\\[.*?\\\]"


def words(markup):
    """The text of a piece of HTML, without code, formulas, pictures and cells of numbers."""
    text = re.sub(LEFT_OUT, " ", markup, flags=re.DOTALL)
    text = html.unescape(re.sub(r"<[^>]+>", " ", text))
    text = re.sub(FORMULA, " … ", text, flags=re.DOTALL)
    return re.sub(r"\s+", " ", text).strip()


def sections(name, page):
    """The sections of a page as records for the index; the first has the page's own fields."""
    article = re.search(r"<article\b.*?</article>", page, re.DOTALL)
    pieces = re.split(r'<section\b[^>]*?\bid="([^"]+)"[^>]*>', article[0] if article else "")
    subtitle = re.search(r"</h1>\s*<blockquote>(.*?)</blockquote>", page, re.DOTALL)
    title = ""
    for anchor, markup in zip(pieces[1::2], pieces[2::2]):
        heading, _, text = re.sub("<dl class=.py.*", "", markup, flags=re.DOTALL).partition("</h")
        heading = re.sub(r"^[\d.]+ ", "", words(heading))
        record = {"page": name, "anchor": anchor, "text": words(text.partition(">")[2])}
        if title:
            record["heading"] = heading
        else:
            title = heading
            record |= {"anchor": "", "title": title, "keywords": KEYWORDS.get(name, "")}
            record["subtitle"] = words(subtitle[1]) if subtitle else ""
        yield record | {"of": title}


def write_index(app, exception):
    """Write the sections of all pages, the papers' equations and the entries of the reference."""
    if exception is not None or app.builder.format != "html":
        return
    records = []
    for name in sorted(app.env.found_docs):
        path = Path(app.outdir, f"{name}.html")
        if path.is_file():
            records += sections(name, path.read_text(encoding="utf-8"))
    for label, (docname, number) in app.env.get_domain("math").equations.items():
        if number[0].isalpha():
            title = app.env.titles[docname].astext()
            records.append(
                {"page": docname, "anchor": f"equation-{label}", "name": number, "of": title}
            )
    # the plain reference repeats names of the engine, which come first
    entries = sorted(
        app.env.get_domain("py").get_objects(), key=lambda entry: entry[0].startswith(PLAIN)
    )
    for full, _, kind, docname, anchor, _ in entries:
        if kind in ("class", "function", "method", "exception"):
            last = full.rpartition(".")[2]
            records.append({"page": docname, "anchor": anchor, "name": last, "of": full})
    data = json.dumps(records, ensure_ascii=False, separators=(",", ":"))
    packed = base64.b64encode(gzip.compress(data.encode(), 9, mtime=0)).decode()
    target = Path(app.outdir, "_static", "search-data.js")
    target.write_text(f'capslitSearch("{packed}");\n', encoding="utf-8")


def replace_search(app, name, page):
    """Leave Sphinx's search out of all pages, and load this one where it is used."""
    sphinx = r'<script [^>]*(?:searchtools|language_data|searchindex)\.js[^"]*"></script>\s*'
    page = re.sub(sphinx, "", page)
    if name == "search":
        files = ("minisearch.js", "search.js", "search-data.js")
        scripts = "".join(f'<script defer src="_static/{file}"></script>\n' for file in files)
        page = page.replace("</head>", f"{scripts}</head>")
        results = '<div id="search-results"'
        page = page.replace(f"{results}>", f'{results} aria-live="polite">')
    return page


def setup(app):
    on_every_page(app, replace_search)
    app.connect("build-finished", write_index)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
