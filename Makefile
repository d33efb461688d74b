# PYTHON  the interpreter that .venv is made with
# TORCH   the torch to install; constraints.txt has the default
# PY      the interpreter that runs; any but the default is used as it is, without setup
# ARGS    more arguments for pytest
# JOBS    how many processes run the tests; 0 for this one alone, as a debugger asks for
PYTHON ?= python3
TORCH  ?= $(shell sed -n 's/^torch==//p' constraints.txt)
VENV   := .venv
PY     ?= $(VENV)/bin/python
ARGS   ?=
JOBS   ?= 2

# Two stamps, so that another TORCH reinstalls into the same .venv and another PYTHON starts anew.
MADE   := $(VENV)/.made-with-$(subst /,-,$(PYTHON))
READY  := $(VENV)/.ready-with-torch-$(TORCH)
ifeq ($(PY),$(VENV)/bin/python)
SETUP  := $(READY)
else
export PYTHONPATH := $(CURDIR)/src$(if $(PYTHONPATH),:$(PYTHONPATH))
endif

EXAMPLES := examples $(patsubst %/model.py,%,$(wildcard examples/*/model.py))

.DEFAULT_GOAL := help
.PHONY: help setup compiler headers demo test test-gpu soak fuzz reproducible lint bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: compiler $(SETUP) ## make .venv with tcbuild and all it needs (TORCH=2.12.0, PYTHON=python3.12)

$(MADE):
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(READY): pyproject.toml constraints.txt $(MADE) | compiler
	@rm -f $(VENV)/.ready-with-torch-*
	@sed 's/^torch==.*/torch==$(TORCH)/' constraints.txt > $(VENV)/constraints.txt
	$(VENV)/bin/python -m pip install -c $(VENV)/constraints.txt -e '.[build,dev]'
	@touch $@

compiler:
	@command -v $(firstword $(CXX)) > /dev/null || { \
	  if command -v apt-get > /dev/null; then get='apt-get install g++'; \
	  elif command -v dnf > /dev/null; then get='dnf install gcc-c++'; \
	  else get='xcode-select --install'; fi; \
	  echo "No C++ compiler: '$(CXX)' is not on the PATH. Get one with: $$get"; exit 1; } >&2

# torch.compile builds Python extensions on the CPU, and Inductor warns where it finds no headers.
headers:
	@$(PYTHON) -c 'import os, sysconfig; \
	  os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2> /dev/null || { \
	  echo "No Python.h for $(PYTHON). Get it with:" \
	    "apt-get install python3-dev (or: dnf install python3-devel)"; exit 1; } >&2

demo: compiler headers $(SETUP) ## build an encoder, serve it, miss, and compare the speed (4 minutes)
	$(PY) examples/demo.py

# Threads that wait for each other leave the processor to the other process. A PY of your own may be without
# xdist.
test: compiler headers $(SETUP) ## run the tests that need no GPU (ARGS='-k guard')
	@set -- -v -m 'not gpu'; \
	  ! $(PY) -c 'import xdist' 2> /dev/null || set -- "$$@" -n $(JOBS) --dist worksteal; \
	  set -x; OMP_WAIT_POLICY=passive $(PY) -m pytest "$$@" $(ARGS)

test-gpu: compiler $(SETUP) ## run the tests that need a GPU (PY=python3 runs without .venv)
	$(PY) -m pytest -v -m gpu $(ARGS)

soak: compiler $(SETUP) ## threads, misses and weight swaps at once, for SECONDS=60
	$(PY) -m tests.conformance.soak --seconds $(or $(SECONDS),60)

fuzz: compiler $(SETUP) ## draw calls at random for SECONDS=600 and hold every answer against eager
	$(PY) -m tests.runtime.fuzz --seconds $(or $(SECONDS),600)

reproducible: compiler $(SETUP) ## build in two folders with clean caches, and compare the bytes
	$(PY) -m tests.conformance.reproducible

lint: $(SETUP) ## check style and types
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy
	@for folder in $(EXAMPLES); do \
	  echo "mypy $$folder"; MYPYPATH=$$folder $(PY) -m mypy $$folder/*.py || exit 1; done

bench: compiler headers $(SETUP) ## measure the start, the dispatch and the buckets
	$(PY) benchmarks/start.py
	$(PY) benchmarks/dispatch.py
	$(PY) benchmarks/buckets.py

clean: ## remove .venv, caches and all that was built
	rm -rf $(VENV) build dist src/tcbuild.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
