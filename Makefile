# `make demo` and `make test` set up everything they need: Python 3.11+ and PyPI, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test check check-static check-fast sim faults exactly-once spark-kills interop bench bench-quick bench-spark docs dist compile test-compiled clean-compiled clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## Create .venv with the `ottla` command

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Ottla needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..."; exit 1; }
	@echo "Setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade -c constraints.txt pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[spark,tier]' --group dev
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -m ottla.cli.module_cache
	@touch $@

demo: setup  ## Run the demo: real clients, a restart, a leader killed in a cluster, a stream and a load on Spark
	@$(BIN)/python examples/demo.py

test: setup  ## Run all tests: first all without Spark, then those with Spark in one session
	@$(BIN)/python -m pytest -q -n 2 --dist worksteal --ignore=tests/spark tests
	@$(BIN)/python -m pytest -q -p no:xdist tests/spark

check: check-static check-fast  ## Check lint, types and import direction, and run the fast tests: under two minutes

check-static: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

check-fast: setup
	@$(BIN)/python -m pytest -q -n 2 -m "not slow" tests/unit tests/property

SEEDS ?= 3000
sim: setup  ## Run thousands of seeds of a simulated cluster on all cores; SEEDS=N says how many
	@$(BIN)/ottla sim --seeds $(SEEDS) --profile all --seconds 10 --jobs $$(getconf _NPROCESSORS_ONLN)

FAULTS ?= 100
SEED ?= 1
faults: setup  ## Do many faults to a cluster of real processes under load; FAULTS=N, SEED=N
	@OTTLA_CLUSTER_FAULTS=$(FAULTS) OTTLA_CLUSTER_SEED=$(SEED) $(BIN)/python -m pytest -q -s -p no:xdist \
		tests/e2e/test_cluster_faults.py -k many_faults

exactly-once: setup  ## Do many faults while clients copy topics in transactions; FAULTS=N, SEED=N
	@OTTLA_EXACTLY_ONCE_FAULTS=$(FAULTS) OTTLA_CLUSTER_SEED=$(SEED) $(BIN)/python -m pytest -q -s -p no:xdist \
		tests/e2e/test_exactly_once.py -k many_faults

KILLS ?= 30
WHERE ?= many_kills
spark-kills: setup  ## Kill a stream from topic to topic many times; KILLS=N, SEED=N, WHERE=local or standalone
	@OTTLA_SPARK_KILLS=$(KILLS) OTTLA_CLUSTER_SEED=$(SEED) $(BIN)/python -m pytest -q -s -p no:xdist \
		tests/spark/test_stream_kills.py -k 'many_kills and $(WHERE)'

interop: setup  ## Run the tests with kcat and Apache Kafka's own tools
	@$(BIN)/python -m pytest -q -p no:xdist interop

bench: setup  ## Compare Ottla with Apache Kafka: a table of ratios
	@$(BIN)/python bench/run.py
	@$(BIN)/python bench/run.py --cluster

bench-quick: setup  ## Compare them in under three minutes
	@$(BIN)/python bench/run.py --quick

bench-spark: setup  ## Compare the Spark source with Spark's own Kafka connector: about twelve minutes
	@$(BIN)/python bench/run_spark.py --markdown docs/performance.md

COMPILED := build/compiled
compile: setup  ## Compile the modules of the hot paths, in a copy of src: build/compiled. Needs a C compiler
	@$(BIN)/python tools/compile_modules.py $(COMPILED)
	@$(BIN)/python -m compileall -q $(COMPILED)/ottla
	@PYTHONPATH=$(COMPILED) $(BIN)/python -m ottla.cli.module_cache
	@echo "Compiled. Run it with: PYTHONPATH=$(COMPILED) $(BIN)/ottla up"

test-compiled: compile  ## Run the tests of whole brokers, and most unit tests, with the compiled modules
	@OTTLA_TEST_COMPILED=1 PYTHONPATH=$(CURDIR)/$(COMPILED) $(BIN)/python -m pytest -q -n 2 --dist worksteal \
		-m "not interpreted" tests/e2e tests/interop tests/sim tests/unit tests/property

clean-compiled:  ## Remove the compiled modules
	rm -rf $(COMPILED)

docs: setup  ## Generate the reference pages from the code
	@$(BIN)/python tools/generate_docs.py

dist: setup  ## Build the wheel and the source distribution in dist/
	@$(BIN)/python -m build --outdir dist .

clean:  ## Remove all generated files
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
