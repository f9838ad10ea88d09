# gpuwatch: `make demo` shows it, `make test` proves it. Both set up all they need below .venv, from locked, hashed
# requirements. Another interpreter: make test PYTHON=python3.13 VENV=.venv-3.13

SHELL := /bin/sh
VENV ?= .venv
OFFICIAL := .venv-official
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then echo $$p; break; fi; done)
endif
BIN := $(VENV)/bin
PIP_INSTALL := -m pip --disable-pip-version-check -qq install --only-binary :all:
INSTALL_PROJECT := -m pip --disable-pip-version-check -qq install --no-deps --no-build-isolation --editable .
QUICK := tests/domain tests/providers/toolkit tests/providers/vastai tests/engine
# three times as many workers as cores: most of a daemon test is waiting; with four, the daemons starved each other
WORKERS := $(shell $(PYTHON) -c 'import os; print(3 * len(os.sched_getaffinity(0)))' 2>/dev/null || echo 6)
PYTEST_ARGS ?= -n $(WORKERS) --dist worksteal
# written, or each worker and each daemon would compile all of gpuwatch and of its tests anew
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check quick loaded soak trace bench evidence golden texts pictures docs lock dist clean python

help: ## This list
	@sed -n 's/^\([a-z]*\):.*## /make \1|/p' Makefile | awk -F'|' '{printf "%-12s %s\n", $$1, $$2}'

demo: $(VENV)/.demo-stamp ## The whole daemon against a marketplace on loopback: no key, no network, 30 seconds
	@$(BIN)/gpuwatch demo

# so written that `make -n test` runs nothing
QUIET_MAKE = $(MAKE) --no-print-directory

# The checks run beside the tests. Every test is loaded once before: each worker would else compile all of them for itself.
test: ## Set everything up, then all checks and all tests
	@$(QUIET_MAKE) $(OFFICIAL)/.stamp & official=$$!; \
	$(QUIET_MAKE) $(VENV)/.dev-stamp || exit; \
	$(QUIET_MAKE) check >$(VENV)/check.log 2>&1 & checks=$$!; \
	$(BIN)/pytest --collect-only -qq >/dev/null 2>&1; \
	wait $$official || exit; \
	echo "$(BIN)/pytest --again-alone $(PYTEST_ARGS)"; $(BIN)/pytest --again-alone $(PYTEST_ARGS); code=$$?; \
	if wait $$checks; then echo "make check: passed"; else code=1; cat $(VENV)/check.log; fi; \
	exit $$code

# without them, a heap for each of many threads, and another for pyarrow: 175 MB more in each worker
test quick loaded: export MALLOC_ARENA_MAX := 2
test quick loaded: export MALLOC_TRIM_THRESHOLD_ := 131072
test quick loaded: export ARROW_DEFAULT_MEMORY_POOL := system
# threads of BLAS wait by spinning, and the arrays of tests are small: a sixth of the processor time of tests/domain/history
test quick loaded: export OPENBLAS_NUM_THREADS := 1

check: $(VENV)/.dev-stamp ## Lint, format, types, import contracts, words, call counts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_words.py
	$(BIN)/python -m benchmarks.call_counts

quick: $(VENV)/.dev-stamp ## The pure core and the units, for the inner loop; stores are SQLite alone
	$(BIN)/pytest -n auto --dist worksteal -m "not slow" -k "not postgresql" --hypothesis-profile=quick $(QUICK)

loaded: $(VENV)/.dev-stamp $(OFFICIAL)/.stamp ## The whole suite three times while every core is busy with other work
	$(BIN)/python -m tests.under_load $(PYTEST_ARGS)

soak: $(VENV)/.dev-stamp ## 10,000 simulated launches at a cloud that lies, 500 real SIGKILLs, whole crash matrices, 400 days; SEED=1 for other ones
	$(BIN)/python -m tests.soak $(if $(SEED),--seed $(SEED))
	$(BIN)/python -m tests.soak.kills $(if $(SEED),--seed $(SEED))
	$(BIN)/pytest --whole $(PYTEST_ARGS) tests/process/test_crash_matrix.py tests/process/test_crash_worlds.py tests/jobs/test_crash_matrix.py tests/process/test_hosts.py tests/process/test_promoted_standby.py
	$(BIN)/python -m benchmarks.year.virtual_days

trace: $(VENV)/.dev-stamp ## The path of one offer from the search to the create request, as docs/architecture.md shows it
	@$(BIN)/python -m benchmarks.trace

bench: $(VENV)/.dev-stamp $(OFFICIAL)/.stamp ## The figures of docs/performance.md against their goals, on a quiet machine
	$(BIN)/python -m benchmarks

evidence: $(VENV)/.dev-stamp ## The claims and the sources of the documents; writes docs/evidence.md and docs/sources.md
	$(BIN)/python -m benchmarks.evidence --write docs/evidence.md
	$(BIN)/python -m benchmarks.sources --write docs/sources.md

golden: $(VENV)/.dev-stamp ## Write the golden files of the recorded answers anew; review the difference as code
	$(BIN)/python -m tests.golden

texts: $(VENV)/.dev-stamp ## Collect the texts that people see, update the translations, compile them, name what is missing
	$(BIN)/python -m tools.texts

pictures: $(VENV)/.dev-stamp ## The pictures of the documents, from what the program prints and the folders are
	$(BIN)/python -m docs.pictures.make

docs: $(VENV)/.dev-stamp ## The documentation as a site, in site/; fails on a broken link or a page that no menu names
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --clean && echo "in site/; to read it with its search: $(BIN)/mkdocs serve"

lock: $(VENV)/.dev-stamp ## Newest versions that pyproject.toml allows, with hashes (wants uv)
	PATH="$(abspath $(BIN)):$$PATH" requirements/lock

# Every file has the time of the last commit, so that two builds are equal, byte for byte.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
DIST ?= dist

dist: $(VENV)/.dev-stamp ## The sdist and the wheel, the same bytes for the same commit
	SOURCE_DATE_EPOCH=$(SOURCE_DATE_EPOCH) $(BIN)/python -m build --no-isolation --outdir $(DIST) .

clean: ## Everything that these targets made
	rm -rf .venv .venv-* dist build site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .grimp_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

python:
	@test -n "$(PYTHON)" || { echo "gpuwatch wants Python 3.11 or newer; name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is no Python 3.11 or newer; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make a venv; on Debian: apt-get install python3-venv" >&2; exit 1; }

# Made anew whenever what it holds changes: a library that left the locks must not stay behind and hide that it is needed.
define MAKE_VENV
	@$(MAKE) --no-print-directory python
	@echo "making $(1) with $(PYTHON)"; $(PYTHON) -m venv --clear $(1)
endef

# uv needs a fifth of pip's processor time. It does not read pip's settings: where only pip knows the mirror, pip installs.
# Nothing is resolved (--no-deps), because a lock names everything; nothing is compiled, because tests load a part of it.
define INSTALL_LOCKED
	$(1)/bin/python $(PIP_INSTALL) --require-hashes -r requirements/installer.txt
	$(1)/bin/uv pip install --quiet --python $(1)/bin/python --only-binary :all: --require-hashes --no-deps $(2) \
		|| $(1)/bin/python $(PIP_INSTALL) --no-compile --require-hashes --no-deps $(2)
endef

$(VENV)/.demo-stamp: requirements/runtime.txt requirements/build.txt pyproject.toml
	$(call MAKE_VENV,$(VENV))
	$(BIN)/python $(PIP_INSTALL) --require-hashes -r requirements/runtime.txt -r requirements/build.txt
	$(BIN)/python $(INSTALL_PROJECT)
	@touch $@

$(VENV)/.dev-stamp: requirements/dev.txt requirements/model.txt requirements/installer.txt pyproject.toml
	$(call MAKE_VENV,$(VENV))
	$(call INSTALL_LOCKED,$(VENV),-r requirements/dev.txt -r requirements/model.txt)
	$(BIN)/python $(INSTALL_PROJECT)
	@touch $@ $(VENV)/.demo-stamp

$(OFFICIAL)/.stamp: requirements/official-client.txt requirements/installer.txt
	$(call MAKE_VENV,$(OFFICIAL))
	$(call INSTALL_LOCKED,$(OFFICIAL),-r requirements/official-client.txt)
	@touch $@
