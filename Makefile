# One target for each thing that people do. Every target sets up what it needs on a machine that has
# only Python 3.11 or later and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help setup demo test bench docs lint format lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with the locked dependencies and this package

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcfo needs Python 3.11 or later, but $(PYTHON) is %d.%d. Try: make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "Setting up $(VENV) (once; a few minutes on a slow network)"
	@$(PYTHON) -m venv --clear $(VENV)
	@# The lock names every package. Left to resolve extras such as etils[epy] by itself, pip takes a newer release that has no hash.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## See it learn: two objectives, the exact answer beside them, a report (a minute)
	@$(BIN)/mcfo demo --force

test: $(READY) ## Run the tests; with CI=true in the environment the slow ones too
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup $(if $(CI),,-m "not slow") $(ARGS)

bench: $(READY) ## Compare with the peers and write results/bench; ARGS=quick takes under five minutes
	@$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(READY) ## Build the pages and the reference of every public name into site/
	@$(BIN)/mkdocs build --quiet
	@echo "Docs: site/index.html"

lint: $(READY) ## Check format, style and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright

format: $(READY) ## Rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(READY) ## Resolve the dependencies again and write requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --upgrade \
	  --generate-hashes --no-header --no-emit-index-url --quiet -o requirements.lock

clean: ## Remove the environment and everything that tools cached
	rm -rf $(VENV) benchmarks/.envs .pytest_cache .ruff_cache dist site
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
