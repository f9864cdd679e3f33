# One target for each thing that people do. Every target sets up what it needs on a machine that has
# only Python 3.11 or later and make.

PYTHON ?= python3
# Another version than python3's has an environment of its own, so that neither is taken for the other: .venv-3.13.
# pyenv starts its python3.13 only where PYENV_VERSION names it.
interpreter = $(if $(filter python3.%,$(1)),PYENV_VERSION=$(1:python%=%)) $(1)
version = $(shell $(call interpreter,$(1)) -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)
minor = $(basename $(1))
VERSION := $(call version,$(PYTHON))
DEFAULT_VERSION := $(if $(filter python3,$(PYTHON)),$(VERSION),$(call version,python3))
VENV := .venv$(if $(filter-out $(call minor,$(DEFAULT_VERSION)),$(call minor,$(VERSION))),-$(call minor,$(VERSION)))
BIN := $(VENV)/bin
# The name carries the version: an environment of another one is set up again.
READY := $(VENV)/.ready-$(VERSION)
WORKERS ?= 2
# The newest Python here that the package supports, and what is tested on it: the statistics, gradients and one fit.
NEWEST = $(firstword $(foreach one,python3.13 python3.12,$(if $(call version,$(one)),$(one))))
NEWEST_TESTS := tests/data tests/smc tests/gradients tests/objectives tests/cli/test_fit.py

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-newest verify fuzz bench docs lint format lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Create .venv with the locked dependencies and this package; PYTHON=python3.13 makes .venv-3.13

$(READY): requirements.lock pyproject.toml
	@test -n "$(VERSION)" || { echo "mcfo needs Python 3.11 or later, but $(PYTHON) does not start. Try: make PYTHON=python3.12" >&2; exit 1; }
	@$(call interpreter,$(PYTHON)) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcfo needs Python 3.11 or later, but $(PYTHON) is $(VERSION). Try: make PYTHON=python3.12")'
	@echo "Setting up $(VENV) with Python $(VERSION) (once; a few minutes on a slow network)"
	@$(call interpreter,$(PYTHON)) -m venv --clear $(VENV)
	@# The lock names every package. Left to resolve extras such as etils[epy] by itself, pip takes a newer release that has no hash.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(READY) ## See it learn: two objectives, the exact answer beside them, a report (a minute)
	@$(BIN)/mcfo demo --force

test: $(READY) ## Run the fast tests; with CI=true all that CI runs
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "not verify and not slow$(if $(CI),, and not ci)" $(ARGS)

test-newest: ## Run the fast tests of statistics, gradients and fits on the newest Python here, which brings the newest JAX
	@$(if $(filter-out $(call minor,$(VERSION)),$(call minor,$(call version,$(NEWEST)))),\
	  $(MAKE) --no-print-directory test PYTHON=$(NEWEST) CI= ARGS="$(NEWEST_TESTS)",\
	  echo "Skipped: only Python $(VERSION) is here. Install 3.13, for example with pyenv, to test with the newest JAX.")

verify: $(READY) ## Run what is too long for CI: the slow tests and the long studies (hours); ARGS="-m slow" the first alone
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadgroup -m "slow or verify" $(ARGS)

fuzz: $(READY) ## Read random files and run folders, hostile ones too; ARGS="--minutes 30" for longer than 5
	@PYTHONPATH=tests $(BIN)/python -m fuzz $(ARGS)

bench: $(READY) ## Compare with the peers and write results/bench; ARGS=quick takes under five minutes
	@$(BIN)/python benchmarks/run.py $(ARGS)

docs: $(READY) ## Build the pages and the reference of every public name into site/
	@$(BIN)/mkdocs build --quiet
	@echo "Docs: site/index.html"

lint: $(READY) ## Check format, style and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(READY) ## Rewrite the sources in the project's format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock: $(READY) ## Resolve the dependencies again and write requirements.lock
	@$(BIN)/python -m pip install --quiet uv
	@$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --upgrade \
	  --generate-hashes --no-header --no-emit-index-url --quiet -o requirements.lock

clean: ## Remove the environments and everything that tools cached
	rm -rf .venv .venv-* benchmarks/.envs .pytest_cache .ruff_cache dist site
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +
