"""The search of the book: the text of its pages without code and without TeX, in one compressed
script that the search page loads.

`book/_static/search.js` ranks and shows what is found. It runs from files, where nothing can be
fetched. Words that a reader would type and a chapter does not say in its title stand in KEYWORDS.
"""

import base64
import gzip
import html
import json
import re
from pathlib import Path

from dependencies import modules, public
from mathematics import PARTS, package
from pages import on_every_page

KEYWORDS = {
    "nbs/index": (
        "start, overview, install, installation, pip, cite, citation, licence, introduction"
    ),
    "nbs/capsules/definition": "capsule regression, latent variables, generative model",
    "nbs/capsules/plain": "reference implementation, minimal, NumPy, from scratch, digits",
    "nbs/capsules/special": "incomplete gamma, Bessel, interpolating integral, numerical stability",
    "nbs/capsules/inference": "posterior, doubt, exact inference, E-step",
    "nbs/capsules/em_steps": "EM algorithm, M-step, least squares, convergence",
    "nbs/capsules/expansion": "PX-EM, parameter expansion",
    "nbs/capsules/reconstruction": "reconstruction loss, decoder, autoencoder, penalty",
    "nbs/capsules/penalties": (
        "lasso, group lasso, L1, sparsity, feature selection, regularisation, Laplace prior"
    ),
    "nbs/capsules/sharpness": "temperature scaling, calibrated probabilities, predict_proba",
    "nbs/capsules/features": "kernel, kernels, RBF, gamma, Nyström, nonlinear",
    "nbs/capsules/search": "regularisation, alpha, ridge, hyperparameters",
    "nbs/capsules/evidence": "Bayesian evidence, marginal likelihood, prior, automatic relevance",
    "nbs/capsules/online": "partial_fit, incremental, mini-batch, streaming",
    "nbs/capsules/classifier": "CapsuleClassifier, estimator, scikit-learn, fit, predict",
    "nbs/capsules/cross_validation": "cross-validation, folds, grid search",
    "nbs/capsules/table_classifier": (
        "missing values, NaN, categorical columns, categories, pandas, data frame, tables"
    ),
    "nbs/experiments/figure2": "MNIST poses",
    "nbs/experiments/figure3": "Fashion-MNIST",
    "nbs/experiments/figure5": "MNIST error, error rate, test error, capsule dimension",
    "nbs/experiments/million": "infinite MNIST, deformations, augmentation",
    "nbs/experiments/updates": "momentum, thresholds, update rule, speed of convergence",
    "nbs/experiments/poses": "slant, ink, pose vectors, equivariance, disentangled, traversal",
    "nbs/experiments/penalties": "lasso, dropout, L1, L2, feature selection, sparse weights",
    "nbs/experiments/calibration": (
        "predict_proba calibration, reliability diagram, expected calibration error, Brier score,"
        " log loss"
    ),
    "nbs/experiments/contest": (
        "benchmark, gradient boosting, random forest, logistic regression, comparison, OpenML"
    ),
    "nbs/experiments/peers": "support vector machine, comparison, baselines",
    "nbs/deeper/questions": "future work, open questions, multilayer",
    "nbs/deeper/patches": (
        "convolution, feature learning, unsupervised, image classification, k-means features"
    ),
    "nbs/deeper/sharing": "weight sharing, convolution, translation, invariance, pooling",
    "nbs/deeper/pairs": "multilabel, two labels, multiple labels",
    "nbs/experiments/layers": "deep, two layers, MNIST best error, augmentation",
    "nbs/deeper/joint": "joint training, end to end, variational EM, multilayer, lower bound",
    "nbs/experiments/overlaps": "MultiMNIST, overlapping digits, segmentation",
    "nbs/experiments/densities": "density estimation, kernel density, held-out likelihood",
    "nbs/experiments/preparation": "deslanting, preprocessing, USPS",
    "nbs/mixtures/gaussian": "GMM, mixture of Gaussians, covariance",
    "nbs/mixtures/estimator": "GaussianMixture, GMM, scikit-learn",
    "nbs/mixtures/stacking": "ensemble of densities, model averaging, mixing weights",
    "nbs/mixtures/factor_analysis": "principal components, PPCA, probabilistic PCA",
    "nbs/mixtures/tangents": "tangent distance, invariance",
    "nbs/factorial/e_steps": "Gibbs sampling, mean field, variational",
    "nbs/factorial/hmm": "factorial HMM, FHMM, sequences, time series, Markov",
    "nbs/routing/procedure": "EM routing, routing by agreement, votes, capsule network",
    "nbs/composition/rules": "noisy or, noisy-OR, sum of odds, log odds",
    "nbs/composition/pursuit": "matching pursuit, sparse coding",
    "nbs/composition/gaussian": "binary sparse coding, maximal causes, real-valued data",
    "nbs/em/loop": "EM driver, stopping, history, progress bar",
    "nbs/em/acceleration": "SQUAREM, Anderson, overrelaxation",
    "nbs/em/compiling": "numba, JIT, compile",
    "nbs/em/parallel": "threads, BLAS, interrupt, Ctrl-C, n_jobs",
    "nbs/em/checkpoint": "checkpoint, resume, resume interrupted run, killed, crash, restart",
    "nbs/data/sources": "memory map, out of core, batches, stream",
    "nbs/data/arrow": "Parquet, Arrow, Feather, pyarrow, polars",
    "nbs/data/dask": "Dask, cluster, distributed, workers",
    "nbs/data/datasets": "MNIST download, Fashion-MNIST, USPS, Omniglot, load data",
    "nbs/data/deformations": "augmentation, shift, rotation",
    "nbs/estimator/training_data": "sparse, sparse matrices, scipy.sparse, CSR, sample_weight",
    "nbs/estimator/persistence": "save, load, pickle, joblib, model file",
    "nbs/arrays": "array API, PyTorch tensors, CuPy, device",
    "nbs/storage": "atomic write, npz",
    "nbs/practice/use": (
        "how to use, getting started, tutorial, when to use, parameters, quick start"
    ),
    "nbs/practice/scale": "GPU, CUDA, PyTorch, large data, memory, out of core, device",
    "nbs/practice/notation": "symbols, notation",
    "nbs/practice/errata": "errors in the paper, misprints, corrections",
    "nbs/proofs/ledger": "claims, proofs, equations checked, verification",
    "nbs/proofs/mutants": "mutation testing",
    "nbs/practice/api": "API, reference, functions, classes",
    "nbs/practice/api_experiments": "experiments, records, names",
    "nbs/practice/bibliography": "references, literature, papers",
    "nbs/cli": "command line, shell, capslit reproduce, terminal",
}


# Code, what it prints, scripts, pictures, the lists of mutants; solutions, the labels of folds, and
# links to the reference
LEFT_OUT = (
    r'<div class="(?:[^"]*\s)?highlight.*?</pre>|<pre\b.*?</pre>|<(script|style|svg)\b.*?</\1>|<a'
    r' class="headerlink".*?</a>'
    r'|<details class="claim-trials.*?</details>|<dl class="field-list.*?</dl>\s*</dd>'
    r'|<details class="capslit-fold" data-kind="solution">.*?</details>|<summary\b.*?</summary>|<p'
    r' class="capslit-reference">.*?</p>'
)


def symbols():
    """TeX command → the character that it stands for, by MathJax's own tables."""
    tables = (package() / f"{PARTS[1]}.js").read_text(encoding="utf-8")
    found = re.findall(r'\b([A-Za-z]+):\[?"\\u([0-9a-f]{4})"', tables)
    return {"dots": "…", "ldots": "…", "cdots": "⋯", "quad": " ", "qquad": " "} | {
        name: chr(int(code, 16)) for name, code in found
    }


# What only says how a formula looks
FORM = (
    r"\\(?:begin|end)\s*\{[^}]*\}|\\(?:left|right|[bB]igg?[lrm]?|math\w+|boldsymbol|operatorname|text\w*|\w*style|widehat|hat|bar|tilde)(?![a-z])\*?"
    r"|\\[,;:! ]|\\\\|&|~"
)


def plain(tex, characters):
    """A formula as one can read it in a line of text."""
    tex = re.sub(FORM, " ", html.unescape(tex))
    tex = re.sub(r"([_^])\s*\{\s*(\w+)\s*\}", r"\1\2", tex)
    for _ in range(3):  # one inside another
        tex = re.sub(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}", r"(\1)/(\2)", tex)
        tex = re.sub(r"\\sqrt\s*\{([^{}]*)\}", r"√(\1)", tex)
    tex = re.sub(r"\\[dt]?frac", "", tex)
    tex = re.sub(r"\\([A-Za-z]+)\s*", lambda match: characters.get(match[1], match[1] + " "), tex)
    return " " + re.sub(r"\s+", " ", re.sub(r"[{}\\]", "", tex)).strip() + " "


def words(markup, characters):
    """The text of a piece of HTML: without code blocks, scripts, pictures, cells of numbers and
    very long formulas, and with the other formulas as one can read them.
    """
    markup = re.sub(LEFT_OUT, " ", markup, flags=re.DOTALL)
    markup = re.sub(
        r"<td\b[^>]*>(?:(?!</td>).)*</td>",
        lambda cell: cell[0] if re.search(r"[^\W\d_]{3}", re.sub(r"<[^>]+>", "", cell[0])) else " ",
        markup,
        flags=re.DOTALL,
    )
    markup = re.sub(r"\\\[(?:(?!\\\]).){120,}\\\]", " ", markup, flags=re.DOTALL)
    markup = re.sub(
        r"\\[(\[](.*?)\\[)\]]", lambda match: plain(match[1], characters), markup, flags=re.DOTALL
    )
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", markup))).strip()


def sections(page, characters):
    """The sections of a page: [anchor, heading, text]."""
    article = re.search(r"<article\b.*?</article>", page, re.DOTALL)
    if not article:
        return []
    pieces = re.split(r'<section\b[^>]*?\bid="([^"]+)"[^>]*>', article[0])
    found = []
    for anchor, markup in zip(pieces[1::2], pieces[2::2]):
        heading = re.search(r"<h\d>(.*?)</h\d>", markup, re.DOTALL)
        title = re.sub(r"^[\d.]+ ", "", words(heading[1], characters)) if heading else ""
        entries = re.findall(r"<dt class=\"sig.*?</dt>\s*<dd>\s*(<p>.*?</p>)", markup, re.DOTALL)
        # of the reference: what each says first; those of experiments, which only their chapters
        # use, are found by name
        if entries:
            markup = (
                ""
                if anchor.startswith("module-capslit.experiments")
                else " ".join(dict.fromkeys(entries))
            )
            heading = None
        found.append(
            [anchor, title, words(markup[heading.end() :] if heading else markup, characters)]
        )
    return found


def write_index(app, exception):
    """Write the text of all pages, the places of the papers' equations and those of
    all functions.
    """
    if exception is not None or app.builder.format != "html":
        return
    characters, pages, equations = symbols(), [], {}
    for name in sorted(app.env.all_docs):
        path = Path(app.outdir) / f"{name}.html"
        if not path.is_file():
            continue
        page = path.read_text(encoding="utf-8")
        subtitle = re.search(r"</h1>\s*<blockquote>(.*?)</blockquote>", page, re.DOTALL)
        for anchor, number in re.findall(
            r'id="(equation-[\w-]+)">\s*<span class="eqno">(?:<a [^>]*>)?\((\w+ [\w.]+)\)', page
        ):
            equations[number.lower()] = [name, anchor]
        pages.append(
            {
                "name": name,
                "subtitle": words(subtitle[1], characters) if subtitle else "",
                "keywords": KEYWORDS.get(name, "").lower().split(", "),
                "sections": sections(page, characters),
            }
        )
        for section in pages[-1]["sections"][:1]:
            section[2] = section[2].removeprefix(pages[-1]["subtitle"]).strip()
    objects = {}  # by page, and by what stands before the last dot
    packages = [name for name, path in modules().items() if path.name == "__init__.py"]
    passed_on = {full for package in packages for full in public(package).values()}
    found = app.env.get_domain("py").get_objects()
    # of definitions with the same name, the one that a package passes on comes first
    for full, _, kind, name, anchor, _ in sorted(
        found, key=lambda entry: entry[0] not in passed_on
    ):
        if kind in ("class", "function", "method", "exception"):
            before, _, last = full.rpartition(".")
            objects.setdefault(name, {}).setdefault(before, []).append(
                [last, anchor] if anchor != full else last
            )
    data = json.dumps(
        {"pages": pages, "equations": equations, "objects": objects},
        ensure_ascii=False,
        separators=(",", ":"),
    )
    packed = base64.b64encode(gzip.compress(data.encode(), 9, mtime=0)).decode()
    (Path(app.outdir) / "_static" / "search-data.js").write_text(
        f'capslitSearch("{packed}");\n', encoding="utf-8"
    )


def search_here(app, name, page):
    """The search page runs this search instead of Sphinx's."""
    if name != "search":
        return page
    page = re.sub(
        r'<script src="[^"]*searchtools\.js[^"]*"></script>',
        '<script defer src="_static/search.js"></script>',
        page,
    )
    page = re.sub(
        r'<script src="[^"]*searchindex\.js[^"]*"></script>',
        '<script defer src="_static/search-data.js"></script>',
        page,
    )
    return page.replace(
        '<div id="search-results"></div>', '<div id="search-results" aria-live="polite"></div>'
    )


def setup(app):
    on_every_page(app, search_here)
    app.connect("build-finished", write_index, priority=800)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
