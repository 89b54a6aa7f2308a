# make check · make book · make test · make bench · make reproduce: each first brings the virtual environment in step with the lock file.
# Needs python3 (3.11 to 3.13), make and a package index. Another interpreter: make book PYTHON=python3.12

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

export JUPYTER_PREFER_ENV_PATH := 1
# Hundreds of processes import the same modules: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE

# The stamp's name is made from all that the installation depends on; its presence says that the environment is current.
STAMP := $(VENV)/.installed-$(shell (cat requirements*.lock settings.ini setup.py pyproject.toml; pwd; $(PYTHON) --version) 2>&1 | cksum | cut -d ' ' -f 1)

.PHONY: help check chapter book pdf archive site test fuzz bench bench-gpu reproduce export format lint hooks picture links dist notebooks lock clean venv
.DEFAULT_GOAL := help

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/ :/' | awk -F ' : ' '{printf "  make %-10s %s\n", $$1, $$2}'

venv: $(STAMP)  ## the virtual environment, from the lock file

$(STAMP):
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 11) and 'capslit needs Python 3.11 or later: make PYTHON=python3.11')"
	@if [ "$$($(BIN)/python --version 2>/dev/null)" != "$$($(PYTHON) --version)" ] || ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
		echo "Creating $(VENV)"; \
		$(PYTHON) -m venv --clear $(VENV) || { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install pip; }; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r requirements-dask.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r requirements-torch.lock >/dev/null 2>&1 \
		|| echo "No build of PyTorch from requirements-torch.lock is offered here: the chapter on the capsule network will be shown without being run."
	@rm -f $(VENV)/.installed-*
	@touch $@

check: $(STAMP)  ## check one notebook and its module: make check NB=nbs/storage.ipynb
	@test -n "$(NB)" || { echo "Which notebook? make check NB=nbs/storage.ipynb"; exit 1; }
	$(BIN)/python book/check.py $(NB)

chapter: $(STAMP)  ## begin a model from the skeleton: make chapter NB=nbs/mixtures/coins.ipynb
	$(BIN)/python book/new_chapter.py $(NB)

book: $(STAMP)  ## the book, _build/html/index.html: executes and reads what has changed. One page: make book NB=nbs/storage.ipynb
	$(BIN)/python book/build.py $(NB)

pdf: $(STAMP)  ## the built book as one PDF, _build/capslit-X.Y.Z.pdf (needs Chromium)
	$(BIN)/python book/pdf.py

archive: $(STAMP)  ## the built book as one file, _build/capslit-X.Y.Z-book.zip, to be read without a network
	$(BIN)/python book/archive.py

site: $(STAMP)  ## the built book and those of the releases in the folder ARCHIVES as they are published, _build/site
	$(BIN)/python book/publish.py _build/site $(ARCHIVES)

test: $(STAMP)  ## run the tests, and the notebooks that have changed since they were executed (those of the built book too, if it was built)
	$(BIN)/python -m pytest -n auto --dist worksteal

fuzz: $(STAMP)  ## run the tests that draw examples with other ones and twenty times as many; a failure says how to repeat it
	$(BIN)/python -m pytest -n auto --dist worksteal -m hypothesis --hypothesis-profile=fuzz

bench: $(STAMP)  ## speed, as a table of ratios; writes results/bench.json
	$(BIN)/python benchmarks/run.py

bench-gpu: $(STAMP)  ## speed on a graphics card, where there is one
	$(BIN)/python benchmarks/gpu.py

reproduce: $(STAMP)  ## the full-scale experiments behind results/
	$(BIN)/capslit reproduce all

export: $(STAMP)  ## write capslit/ from nbs/
	$(BIN)/nbdev_clean
	$(BIN)/nbdev_export

format: $(STAMP)  ## lay out all code, notebooks too (ruff format)
	$(BIN)/ruff format

lint: $(STAMP)  ## look for mistakes in code, and for code that is not laid out (ruff)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

hooks: $(STAMP)  ## git: compare notebooks as text, merge them cell by cell, check before each commit
	git config diff.notebook.textconv "python3 book/as_text.py"
	git config merge.notebook.driver "$(BIN)/nbdev_merge %O %A %B %P"
	$(BIN)/pre-commit install

picture: $(STAMP)  ## draw the pictures of the README and of links to the book anew
	$(BIN)/python book/picture.py

links: $(STAMP)  ## ask whether the outside addresses in the book still answer
	$(BIN)/jupyter-book build . --builder linkcheck

dist: $(STAMP)  ## the distribution for the package index, in dist/
	$(BIN)/python -m build --no-isolation --outdir dist .

notebooks: $(STAMP)  ## commit copies of the notebooks that run elsewhere to the branch `notebooks` of origin
	$(BIN)/python book/elsewhere.py --push

COMPILE := $(BIN)/uv pip compile setup.py --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" --refresh --quiet

lock: $(STAMP)  ## resolve the lock files anew from settings.ini (but for PyTorch's, which is kept by hand)
	$(COMPILE) --extra dev -o requirements.lock
	$(COMPILE) --extra dask --extra zarr --extra parquet --extra tables -c requirements.lock -c requirements-torch.lock -o requirements-dask.lock

clean:  ## remove what was built (not the environment)
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find nbs capslit tests -name __pycache__ -prune -exec rm -rf {} +
