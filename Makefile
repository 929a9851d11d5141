# One entry point for people, hooks and CI. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMPS := .cache/stamps
# Tests and benches reach only this machine: an inherited proxy would answer for it.
export NO_PROXY := 127.0.0.1,localhost
export no_proxy := 127.0.0.1,localhost

MANIFESTS := pyproject.toml gateway/pyproject.toml manager/pyproject.toml
RUST := Cargo.toml Cargo.lock $(shell find router_core gateway/dataplane python -name '*.rs' -o -name Cargo.toml -o -name build.rs)
DEMO_ARGS ?=
PYTEST_ARGS ?=
RAY_PYTEST := PYTHONPATH=python:gateway/src:manager/src TRIMTAB_REQUIRE_RAY=1 .venvs/ray/bin/python -m pytest tests/ray_cluster

.PHONY: help setup dev demo test test-rust test-fast test-slow test-sglang test-ray lint format bench-router bench-growth bench-lease bench-update bench-gateway bench-balance bench-smoke wheel ci clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

setup: $(STAMPS)/installed ## Create .venv, build the extension, install the three packages (editable)

dev: $(STAMPS)/dev ## The same, with the tools for tests and lints

$(BIN)/python:
	@echo "creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "trimtab needs Python >= 3.10; set PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(STAMPS)/installed: $(MANIFESTS) $(RUST) | $(BIN)/python
	@command -v cargo >/dev/null || { echo "trimtab needs a Rust toolchain (cargo) on PATH to build its extension" >&2; exit 1; }
	@echo "building and installing trimtab, trimtab-gateway and trimtab-manager into $(VENV) (first time: a few minutes)"
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'  # the first with dependency groups
	@$(BIN)/python -m pip install -e . -e gateway -e manager | { grep -E 'Building|Built|built|running|Success' || true; }
	@mkdir -p $(@D) && touch $@

$(STAMPS)/dev: $(STAMPS)/installed
	@echo "installing the development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --group dev
	@touch $@

demo: setup ## Run the main job on simulated engines (DEMO_ARGS="--engines 6 --seconds 30")
	@$(BIN)/trimtab demo $(DEMO_ARGS)

test: dev test-rust ## All tests but those on real SGLang and real Ray
	$(BIN)/python -m pytest -m "not sglang and not ray" $(PYTEST_ARGS)

test-rust: ## The Rust tests
	cargo test --workspace --exclude trimtab-python --locked

test-fast: dev ## Core and fast Python tests, under two minutes
	cargo test --package router_core --lib --locked
	$(BIN)/python -m pytest -m "not sglang and not ray and not slow" $(PYTEST_ARGS)

# 3,000 cases of 350 operations, 25,000 of 40 steps, and the soak's pairs: a million of each.
test-slow: dev ## A million steps of each property test and of the soak (half an hour)
	TRIMTAB_PROPERTY_CASES=3000 cargo test --package router_core --locked --test control
	TRIMTAB_STATEFUL_EXAMPLES=25000 $(BIN)/python -m pytest tests/router/test_stateful.py $(PYTEST_ARGS)
	TRIMTAB_SOAK_PAIRS=1000000 $(BIN)/python -m pytest tests/router/soak $(PYTEST_ARGS)

test-sglang: dev ## Real SGLang servers on the CPU, in a venv of their own (4.7 GB)
	$(PYTHON) tests/sglang_cpu/install.py
	$(PYTHON) tests/ray_cluster/install.py
	TRIMTAB_REQUIRE_SGLANG=1 $(BIN)/python -m pytest -m "sglang and not ray" $(PYTEST_ARGS)
	TRIMTAB_REQUIRE_SGLANG=1 $(RAY_PYTEST) -m "ray and sglang" $(PYTEST_ARGS)

test-ray: dev ## A real Ray cluster on this machine, in a venv of its own
	$(PYTHON) tests/ray_cluster/install.py
	$(RAY_PYTEST) -m "ray and not sglang" $(PYTEST_ARGS)

lint: dev ## Formats, lints, types, stubs and import rules; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --workspace --no-deps --locked --quiet
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy python/trimtab gateway/src manager/src tests benches
	$(BIN)/python -m mypy.stubtest trimtab._core --mypy-config-file pyproject.toml
	$(BIN)/lint-imports

format: dev ## Apply the formatters
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-router: dev ## acquire + settle, in Rust (criterion) and from Python (pytest-benchmark)
	cargo bench --package router_core --locked
	$(BIN)/python -m pytest benches/router --benchmark-only --benchmark-columns=min,median,ops

bench-growth: dev ## The gate on growth: instructions with little and with much in the pool (needs valgrind)
	$(BIN)/python -m benches.router.growth

bench-smoke: dev ## Every bench once, to see that it runs
	cargo bench --package router_core --locked -- --test
	$(BIN)/python -m pytest benches/router --benchmark-disable --quiet
	$(BIN)/python -m benches.lease --smoke
	$(BIN)/python -m benches.update --smoke
	$(BIN)/python -m benches.gateway --smoke
	$(BIN)/python -m benches.balance --smoke
	$(BIN)/python -m benches.balance.http --smoke

bench-lease: dev ## Lease API against a FastAPI router of the same function, in a venv of its own
	$(BIN)/python -m benches.lease --write

bench-update: dev ## What an update of weights takes beyond the time of the engines, by their number
	$(BIN)/python -m benches.update --write

bench-gateway: dev ## CPU per request beside haproxy, nginx and the LLM routers (needs haproxy, nginx-light, wrk)
	$(BIN)/python -m benches.gateway --write

bench-balance: dev ## What routing does to rollouts, beside the policies of its peers: simulated, and over HTTP
	$(BIN)/python -m benches.balance --write
	$(BIN)/python -m benches.balance.http --write

wheel: dev ## Build the three wheels into dist/ and smoke-test them in a clean venv
	.ci/wheels $(PYTHON)

ci: lint test wheel bench-smoke bench-growth test-ray test-sglang ## What CI runs
	@echo "ci: lints, tests, wheels, benches, the gate on growth, real Ray and real SGLang passed"

clean: ## Remove build outputs (not the venvs)
	rm -rf dist target .cache/stamps python/trimtab/*.so
