# Two commands on a fresh machine with Python 3.11 and make:  make demo   ·   make test
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin

.PHONY: help setup demo test check lint soak bench docs constraints clean
.DEFAULT_GOAL := help

help:            ## list the targets
	@grep -E '^[a-z]+: .*##|^[a-z]+:  +##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.run: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once)…"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try make PYTHON=python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing what tests and checks need (once)…"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[bench]'
	@touch $@

setup: $(VENV)/.dev ## make the virtual environment with everything for development

demo: $(VENV)/.run ## crawl the built-in site with the live display
	@$(BIN)/gossamer demo

test: $(VENV)/.dev ## run the tests
	$(BIN)/python -m pytest -n 2 -m 'not soak'

lint: $(VENV)/.dev $(VENV)/.bench
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test ## ruff, mypy, import-linter and the tests

soak: $(VENV)/.dev ## the long versions: many kills, long outages, fuzzing
	$(BIN)/python -m pytest -n 2 -m soak --timeout=1800 --hypothesis-profile=searching

bench: $(VENV)/.bench ## compare with other crawlers, in one run (needs nginx; Go where there is one)
	$(BIN)/python -m bench.run --rounds 5 --write-docs

docs: $(VENV)/.run ## write the pages that are made from the code
	$(BIN)/python -m gossamer.config.reference > docs/settings.md

constraints: ## pin the versions that are installed now
	@$(BIN)/python -m pip freeze --exclude-editable --disable-pip-version-check > constraints.txt

clean: ## remove what the targets made
	rm -rf $(VENV) gossamer-demo bench/out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
