# Everything a person or CI runs here. `make` alone explains it.
SHELL := /bin/bash -euo pipefail
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
MVN    ?= mvn
VENV   := .venv
BIN    := $(VENV)/bin
# Whatever is built is built with what locks/build.txt names, so that no build fetches anything.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JARS   := .slackwater-jars
ARGS   ?=
SEEDS  ?= 1000
FROM   ?= 0

# A file stays on one worker, for its tests share what they have started; files go in their order.
SIDE_BY_SIDE := --numprocesses auto --dist loadfile --no-loadscope-reorder
# How many tests on real processes run beside each other.
INTEGRATION_WORKERS ?= auto
ON_PROCESSES := --numprocesses $(INTEGRATION_WORKERS) --dist loadfile --no-loadscope-reorder
# The story of docker compose, which takes longest, and all else beside it.
BESIDE_CONTAINERS := --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Tests start processes by the hundred: what they import is compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

# One stamp a part: written last, so that an interrupted run is simply done again.
VENV_STAMP   := $(VENV)/.installed
BROKER_STAMP := $(JARS)/broker/.complete
SPARK_STAMP  := $(JARS)/spark/.complete
SPARK_CLASSES := $(JARS)/spark/classes.jsa
BROKER_CLASSES := $(JARS)/broker/classes.jsa
SCANNER_STAMP := $(VENV)/.scanner-compiled
SCANNER_FILES := $(wildcard services/slackwater/proxy/scan/*.py)
BROKER_POM   := services/slackwater/runtime/local/broker-pom/pom.xml
SPARK_POM    := spark/pom.xml

.PHONY: help setup lock demo test check fmt lint types arch unit integration images pin-images containers drills sim sim-iads mutants bench bench-queries bench-peers paper-dpc docs graph clean

help: ## this list
	@echo "slackwater: windows over sensor streams: a first answer in bounded time, an exact one in the end"
	@echo
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' \
	  | column -t -s '|'
	@echo
	@echo "Begin with 'make setup' (needs Python 3.11 or newer, Java 17 and Maven), then 'make demo'."

setup: $(VENV_STAMP) $(SCANNER_STAMP) $(BROKER_CLASSES) $(SPARK_CLASSES) ## create .venv, install the locked dependencies, fetch the jars

$(VENV_STAMP): pyproject.toml locks/python.txt locks/build.txt
	@command -v $(PYTHON) >/dev/null || { echo "setup: no $(PYTHON); install Python 3.11 or newer" >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "setup: $(PYTHON) is older than 3.11; say make setup PYTHON=python3.11" >&2; exit 3; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "setup: $(PYTHON) cannot make a venv; on Debian: apt-get install python3-venv" >&2; exit 3; }
	@echo "setup: installing Python packages (PySpark is large: a minute the first time)"
	@$(PIP) --require-hashes --requirement locks/build.txt
	@$(PIP) --require-hashes --no-build-isolation --requirement locks/python.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# $(call fetch,POM,FOLDER,LIST): into a new folder first, then swapped in, so that no half-filled or
# mixed set of jars can be taken for a whole one, and none that is not on the list.
define fetch
	@command -v $(MVN) >/dev/null || { echo "setup: no $(MVN); on Debian: apt-get install maven" >&2; exit 3; }
	@echo "setup: fetching the jars of $(1)"
	@rm -rf $(2).part && mkdir -p $(JARS)
	@$(MVN) --quiet --batch-mode --file $(1) dependency:copy-dependencies \
	  -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(2).part
	@locks/check-jars $(2).part $(3)
	@touch $(2).part/.complete
	@rm -rf $(2) && mv $(2).part $(2)
endef

$(BROKER_STAMP): $(BROKER_POM) locks/broker-jars.sha256
	$(call fetch,$<,$(JARS)/broker,locks/broker-jars.sha256)

$(SPARK_STAMP): $(SPARK_POM) locks/spark-jars.sha256
	$(call fetch,$<,$(JARS)/spark,locks/spark-jars.sha256)

lock: ## write locks/ anew, after a change of pyproject.toml, constraints.txt or a pom.xml
	@locks/write $(PYTHON) $(MVN)

# Half the time of each start of a JVM; without these all works, only later.
$(BROKER_CLASSES): $(VENV_STAMP) $(BROKER_STAMP)
	@echo "setup: archiving the broker's classes, for a quick start"
	@$(BIN)/python -m slackwater.runtime.local.warm \
	  || echo "setup: no class archive; brokers will start more slowly" >&2

$(SPARK_CLASSES): $(VENV_STAMP) $(SPARK_STAMP)
	@echo "setup: archiving the aggregator's classes, for a quick start"
	@$(BIN)/python -m slackwater_spark.warm \
	  || echo "setup: no class archive; aggregators will start more slowly" >&2

# Seven seconds of the first proxy that reads a topic; without it all works, only later.
$(SCANNER_STAMP): $(VENV_STAMP) $(SCANNER_FILES)
	@echo "setup: compiling the scanner of JSON messages"
	@$(BIN)/python -m slackwater.proxy.scan.warm && touch $@ \
	  || echo "setup: no scanner; JSON topics will be read at a lower rate" >&2

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
	@$(BIN)/mypy services spark tests docs $(wildcard bench)

arch: setup ## import-linter: imports run one way, protocols do no I/O
	@$(BIN)/lint-imports

unit: setup ## tests without processes: units, papers, scenarios, simulator, properties
	@$(BIN)/pytest --ignore tests/integration --ignore tests/e2e $(SIDE_BY_SIDE) $(ARGS)

integration: setup ## tests on a real broker and real processes
	@$(BIN)/pytest tests/integration -m "not containers and not drill" $(ON_PROCESSES) $(ARGS)

images: ## build the container images, with stand-ins for public ones that cannot be pulled
	@compose/offline/prepare.sh
	@docker compose -f compose/compose.yaml --progress quiet build

pin-images: ## write the public images' digests to compose/pinned.env, where a registry is reached
	@compose/pin-images

containers: setup ## tests on containers; need Docker, and the images of make images
	@$(BIN)/pytest tests/e2e tests/integration -m "containers and not drill" $(BESIDE_CONTAINERS) $(ARGS)

drills: setup ## the tests of full size: minutes to hours; make drills ARGS="-k hostile" for one
	@$(BIN)/pytest -m drill $(ARGS)

sim: setup ## the whole system in virtual time under SEEDS=1000 seeds, FROM=0 on
	@$(BIN)/python -m tests.simulator --seeds $(SEEDS) --from $(FROM) $(ARGS)

sim-iads: setup ## the control plane's protocol on a network of its own, SEEDS=1000, FROM=0 on
	@$(BIN)/python -m tests.iads_simulator --seeds $(SEEDS) --from $(FROM) $(ARGS)

mutants: setup ## deliberate mistakes in cores and hosts: who catches each, and how soon
	@$(BIN)/python -m tests.simulator.mutants $(ARGS)

bench: setup ## measure this machine; writes bench/README.md
	@$(BIN)/python bench/run.py $(ARGS)

bench-queries: setup ## what 1, 3, 10, 20, 30 queries cost on this machine, 15 minutes; ARGS="--queries 1,3"
	@$(BIN)/python -m bench.queries $(ARGS)

bench-peers: setup ## Kafka Streams, Flink, Spark, Quix beside slackwater, 40 minutes; fetches them; writes bench/peers/README.md
	@MVN=$(MVN) $(BIN)/python -m bench.peers.run $(ARGS)

paper-dpc: setup ## the DPC paper's experiments, 20 minutes; writes docs/results/dpc.md
	@$(BIN)/python -m bench.paper_dpc $(ARGS)

# mkdocs has a venv of its own, so that setup installs none of it.
DOCS_VENV  := build/docs/venv
DOCS_STAMP := $(DOCS_VENV)/.installed

docs: setup $(DOCS_STAMP) ## build the documentation site into build/docs/site, and check its links
	@$(BIN)/python docs/site/build.py $(DOCS_VENV)/bin/mkdocs

$(DOCS_STAMP): locks/docs.txt
	@$(PYTHON) -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  --requirement $<
	@touch $@

graph: setup ## draw docs/import-graph.svg anew, after a change of imports between packages
	@$(BIN)/python docs/import_graph.py

clean: ## remove what setup and the tools made here; data directories stay
	@rm -rf $(VENV) $(JARS) build bench/peers/build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
