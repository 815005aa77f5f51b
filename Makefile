# `make help` lists the commands. Each of them first sets up whatever it needs; the second time that takes no time.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

BIN := .venv/bin
INSTALLED := .venv/.installed
DEMO := $(CURDIR)/demo
PORT ?= 3000
ARGS ?=
# Tests run in so many processes, two of which have a Spark session; 0 runs them in one. With 4 on two cores, they take
# as long, and 3 % more CPU.
PROCESSES ?= 3
# What is imported is compiled once, not by every process that is started, whatever the shell says: tests start hundreds.
unexport PYTHONDONTWRITEBYTECODE
# Expands to a shell prefix: stops when there is no Java for Spark and it cannot be installed either.
WITH_JAVA = home="$$(scripts/ensure-java)" && export JAVA_HOME="$$home" &&

.PHONY: help setup demo demo-s3 ui test test-fast test-long test-browser test-postgresql test-cluster test-matrix test-soak docs reference lint format formats golden mutants bench bench-against lock dist clean

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## Make .venv with everything in requirements.lock, find or install Java, and prepare Spark's start
	@$(WITH_JAVA) $(BIN)/python -c "from metastore_assets.spark.jvm import local_jvm_options; local_jvm_options()"

$(INSTALLED): requirements.lock pyproject.toml scripts/setup
	@scripts/setup

demo: $(INSTALLED) ## Build a lakehouse in ./demo, commit to it, and show what is recomputed (3 minutes)
	@$(WITH_JAVA) $(BIN)/python -m scripts.demo $(ARGS)

demo-s3: $(INSTALLED) ## The same with tables and root in a bucket, on an S3 server on this machine
	@$(WITH_JAVA) $(BIN)/python -m scripts.demo --s3 $(ARGS)

ui: $(INSTALLED) ## Open Dagster's UI and daemon on the demo's result, with a warm Spark (PORT=3000)
	@test -d "$(DEMO)/dagster_home" || { echo "There is no demo yet: run 'make demo' first." >&2; exit 1; }
	@$(WITH_JAVA) export DAGSTER_HOME="$(DEMO)/dagster_home" METASTORE_CONFIG="$(CURDIR)/metastore.yaml" \
	  SPARK_REMOTE="local[*]" PYTHONSAFEPATH=1 && $(BIN)/python -m metastore_assets spark-server start && \
	  trap '$(BIN)/python -m metastore_assets spark-server stop' EXIT && \
	  PYTHONWARNINGS=ignore $(BIN)/dagster dev --workspace workspace.yaml --port $(PORT)

# The setup prepares Spark's start. Otherwise, the first tests that need Spark would all wait until one of them has done it.
test: setup ## Run the tests (ARGS="-k name" for some of them)
	@$(WITH_JAVA) $(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

test-fast: $(INSTALLED) ## Run the tests without Spark, servers and slow files: the inner loop, 90 seconds (ARGS=tests/formats)
	@HYPOTHESIS_PROFILE=fast $(BIN)/python -m pytest -n 2 --dist loadfile \
	  -m "not slow and not spark and not s3 and not long and not browser and not postgresql and not cluster and not soak" $(ARGS)

test-long: setup ## Run the long tests too, with many more examples each
	@$(WITH_JAVA) HYPOTHESIS_PROFILE=long $(BIN)/python -m pytest -m "not browser and not postgresql and not cluster and not soak" --timeout 3600 $(ARGS)

test-browser: $(INSTALLED) ## Look at Dagster's UI in a headless Chromium (installed when missing)
	@$(WITH_JAVA) scripts/ensure-chromium && $(BIN)/python -m pytest -m browser $(ARGS)

test-postgresql: $(INSTALLED) ## Report to Dagster on PostgreSQL (apt-get install postgresql)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m postgresql $(ARGS)

test-cluster: $(INSTALLED) ## Kill workers of a standalone Spark cluster at their work
	@$(WITH_JAVA) $(BIN)/python -m pytest -m cluster $(ARGS)

test-matrix: $(INSTALLED) ## Try the lowest and the newest supported versions, and some between (ARGS="--write": into the docs)
	@$(WITH_JAVA) $(BIN)/python -m scripts.matrix $(ARGS)

test-soak: $(INSTALLED) ## Commit at random to tables of four formats, and kill daemon, runs and Spark (METASTORE_SOAK=200)
	@$(WITH_JAVA) $(BIN)/python -m pytest -m soak $(ARGS)

docs: $(INSTALLED) reference ## Build the documentation as a site in build/site
	@$(BIN)/zensical build --strict

reference: $(INSTALLED) ## Write the generated pages and tables of the docs
	@$(BIN)/python -m scripts.reference

lint: $(INSTALLED) ## Check style, types, which package imports which, and the links of the docs
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check . || { echo "run 'make format'" >&2; exit 1; }
	@$(BIN)/mypy --no-error-summary
	@mkdir -p .import_linter_cache
	@$(BIN)/lint-imports --no-logo >.import_linter_cache/report 2>&1 || { cat .import_linter_cache/report; exit 1; }
	@$(BIN)/zensical build --strict >.import_linter_cache/docs 2>&1 || { cat .import_linter_cache/docs; exit 1; }
	@echo "lint: clean"

format: $(INSTALLED) ## Format the code and sort its imports
	@$(BIN)/ruff check --quiet --fix . ; $(BIN)/ruff format --quiet .

formats: $(INSTALLED) ## Profile real tables of every format, compare with what is known of them, write docs/reference/real-tables.md
	@$(WITH_JAVA) $(BIN)/python -m scripts.realtables $(ARGS)

golden: $(INSTALLED) ## Write the roots of tests/golden with this code, after FORMAT_VERSION was raised
	@$(BIN)/python -m tests.golden.writing

mutants: $(INSTALLED) ## Make mistakes in a copy of the produce/reduce layer, and see that its tests find each
	@$(BIN)/python -m scripts.mutants $(ARGS)

bench: $(INSTALLED) ## Measure against Spark's ANALYZE TABLE and DuckDB's SUMMARIZE
	@$(WITH_JAVA) $(BIN)/python -m benchmarks $(ARGS)

bench-against: $(INSTALLED) ## Compare the speed with an earlier commit, in 20 pairs (ARGS=COMMIT; a quiet machine, 30 minutes)
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.against $(ARGS)

dist: $(INSTALLED) ## Build sdist and wheel in ./dist, and run the tutorial with the wheel on each Python (ARGS="3.11 3.13")
	@$(BIN)/python -m scripts.dist $(ARGS)

lock: ## Renew requirements.lock from pyproject.toml
	@scripts/lock

clean: ## Remove the demo and the tools' caches (.venv stays)
	@rm -rf demo demo-s3 build dist .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis spark-warehouse
