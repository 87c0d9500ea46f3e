# Everything a person or CI runs here. `make` alone explains it.
SHELL := /bin/bash -euo pipefail
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
MVN    ?= mvn
VENV   := .venv
BIN    := $(VENV)/bin
JARS   := .slackwater-jars
ARGS   ?=
SEEDS  ?= 1000
FROM   ?= 0

# A file stays on one worker, for its tests share what they have started; files go in their order.
SIDE_BY_SIDE := --numprocesses auto --dist loadfile --no-loadscope-reorder

# Tests start processes by the hundred: what they import is compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

# One stamp a part: written last, so that an interrupted run is simply done again.
VENV_STAMP   := $(VENV)/.installed
BROKER_STAMP := $(JARS)/broker/.complete
SPARK_STAMP  := $(JARS)/spark/.complete
SPARK_CLASSES := $(JARS)/spark/classes.jsa
BROKER_CLASSES := $(JARS)/broker/classes.jsa
BROKER_POM   := services/slackwater/runtime/broker-pom/pom.xml
SPARK_POM    := spark/pom.xml

.PHONY: help setup demo test check fmt lint types arch unit integration images containers sim mutants bench paper-dpc clean

help: ## this list
	@echo "slackwater: windows over sensor streams that never stall and never lie"
	@echo
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' \
	  | column -t -s '|'
	@echo
	@echo "Begin with 'make setup' (needs Python 3.11 or newer, Java 17 and Maven), then 'make demo'."

setup: $(VENV_STAMP) $(BROKER_CLASSES) $(SPARK_CLASSES) ## create .venv, install the locked dependencies, fetch the jars

$(VENV_STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "setup: no $(PYTHON); install Python 3.11 or newer" >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "setup: $(PYTHON) is older than 3.11; say make setup PYTHON=python3.11" >&2; exit 3; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "setup: $(PYTHON) cannot make a venv; on Debian: apt-get install python3-venv" >&2; exit 3; }
	@echo "setup: installing Python packages (PySpark is large: a minute the first time)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[dev]'
	@touch $@

# $(call fetch,POM,FOLDER): into a new folder first, then swapped in, so that no half-filled or
# mixed set of jars can be taken for a whole one.
define fetch
	@command -v $(MVN) >/dev/null || { echo "setup: no $(MVN); on Debian: apt-get install maven" >&2; exit 3; }
	@echo "setup: fetching the jars of $(1)"
	@rm -rf $(2).part && mkdir -p $(JARS)
	@$(MVN) --quiet --batch-mode --file $(1) dependency:copy-dependencies \
	  -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(2).part
	@touch $(2).part/.complete
	@rm -rf $(2) && mv $(2).part $(2)
endef

$(BROKER_STAMP): $(BROKER_POM)
	$(call fetch,$<,$(JARS)/broker)

$(SPARK_STAMP): $(SPARK_POM)
	$(call fetch,$<,$(JARS)/spark)

# Half the time of each start of a JVM; without these all works, only later.
$(BROKER_CLASSES): $(VENV_STAMP) $(BROKER_STAMP)
	@echo "setup: archiving the broker's classes, for a quick start"
	@$(BIN)/python -m slackwater.runtime.warm \
	  || echo "setup: no class archive; brokers will start more slowly" >&2

$(SPARK_CLASSES): $(VENV_STAMP) $(SPARK_STAMP)
	@echo "setup: archiving the aggregator's classes, for a quick start"
	@$(BIN)/python -m slackwater_spark.warm \
	  || echo "setup: no class archive; aggregators will start more slowly" >&2

demo: setup ## a source falls silent, on real Kafka, Faust and Spark; ends in under two minutes
	@$(BIN)/slackwater demo $(ARGS)

test: check integration containers ## all checks and all tests, also those on real processes and on containers

check: lint types arch unit ## all that needs no broker: lint, types, arch, unit

fmt: setup ## format the code and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: setup ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## mypy --strict over code and tests
	@$(BIN)/mypy services spark tests $(wildcard bench)

arch: setup ## import-linter: imports run one way, protocols do no I/O
	@$(BIN)/lint-imports

unit: setup ## tests without processes: units, papers, scenarios, simulator, properties
	@$(BIN)/pytest --ignore tests/integration --ignore tests/e2e $(SIDE_BY_SIDE) $(ARGS)

integration: setup ## tests on a real broker and real processes
	@$(BIN)/pytest tests/integration -m "not containers and not alone" $(SIDE_BY_SIDE) $(ARGS)
	@$(BIN)/pytest tests/integration -m "not containers and alone" $(ARGS)

images: ## build the container images, with stand-ins for public ones that cannot be pulled
	@compose/offline/prepare.sh
	@docker compose -f compose/compose.yaml --progress quiet build

containers: setup ## tests on containers; need Docker, and the images of make images
	@$(BIN)/pytest -m containers $(ARGS)

sim: setup ## the whole system in virtual time under SEEDS=1000 seeds, FROM=0 on
	@$(BIN)/python -m tests.simulator --seeds $(SEEDS) --from $(FROM) $(ARGS)

mutants: setup ## deliberate mistakes in the cores: who catches each, and how soon
	@$(BIN)/python -m tests.simulator.mutants $(ARGS)

bench: setup ## measure this machine; writes bench/README.md
	@$(BIN)/python bench/run.py $(ARGS)

paper-dpc: setup ## the DPC paper's experiments, 20 minutes; writes docs/results/dpc.md
	@$(BIN)/python -m bench.paper_dpc $(ARGS)

clean: ## remove what setup and the tools made here; data directories stay
	@rm -rf $(VENV) $(JARS) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
