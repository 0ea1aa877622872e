# Everything a person needs, in one word each. Set-up goes to .venv and is done once.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/.ready

.PHONY: setup help demo test quick check bench docs lock clean

setup: $(READY)  ## .venv with everything, once

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "trimtab needs Python 3.11; $(PYTHON) is $$($(PYTHON) --version). Say: make PYTHON=/path/to/python3.11" >&2; exit 2; }
	@echo "setting up .venv (once; a minute or so)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@

help:  ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST)

demo: $(READY)  ## the main job: a fleet, Spark, people, trouble; make demo FAST=1 for the short one
	@$(BIN)/trimtab demo $(if $(FAST),--fast)

test: $(READY)  ## all tests
	@$(BIN)/python -m pytest

quick: $(READY)  ## the pure tests: no server, no Spark, on all cores
	@$(BIN)/python -m pytest -q -n auto -m "not live and not spark and not slow" --hypothesis-profile=quick

check: $(READY)  ## style and types
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

bench: $(READY)  ## the measured claims of docs/benchmarks.md, on this machine
	@$(BIN)/python -m benchmarks

docs: $(READY)  ## the documentation site, in site/
	@$(BIN)/mkdocs build --strict --quiet && echo "docs: site/index.html"

lock: $(READY)  ## pin the newest versions pyproject.toml allows (needs uv)
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-header -U -o requirements.lock

clean:  ## remove what was made
	rm -rf .venv site .pytest_cache .mypy_cache .ruff_cache .hypothesis
