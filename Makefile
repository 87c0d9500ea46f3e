# All commands of developers and CI. `make` without a target lists them.
SHELL := /bin/bash -euo pipefail
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
MVN    ?= mvn
VENV   := .venv
BIN    := $(VENV)/bin
# Builds use only the packages of locks/build.txt, so no build downloads anything.
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JARS   := .slackwater-jars
ARGS   ?=
SEEDS  ?= 1000
FROM   ?= 0

# All tests of a file run on one worker, since they share processes. Files start in the order of collection.
SIDE_BY_SIDE := --numprocesses auto --dist loadfile --no-loadscope-reorder
# Number of test files with real processes that run in parallel. On two cores two deployments overload each
# other: they answer late, correct what they answered, and two tests took 504 s which take 297 s one by one.
INTEGRATION_WORKERS ?= 1
ON_PROCESSES := --numprocesses $(INTEGRATION_WORKERS) --dist loadfile --no-loadscope-reorder
# Two workers: one for the docker compose test, which takes longest, one for all others.
BESIDE_CONTAINERS := --numprocesses 2 --dist loadfile --no-loadscope-reorder

# With BESIDE, make runs units beside the others, and each line of output begins with the target's name.
LABELLED = $(if $(BESIDE),2>&1 | sed --unbuffered 's/^/$@: /')

# Tests start hundreds of processes. With bytecode files each module is compiled once.
unexport PYTHONDONTWRITEBYTECODE
# The JVMs of a test run for seconds: compiling quickly costs less than compiling well.
unit integration containers: export JDK_JAVA_OPTIONS := -XX:TieredStopAtLevel=1

# One stamp file for each part, written last: an interrupted part is built again.
VENV_STAMP   := $(VENV)/.installed
BROKER_STAMP := $(JARS)/broker/.complete
SPARK_STAMP  := $(JARS)/spark/.complete
SPARK_CLASSES := $(JARS)/spark/classes.jsa
SPARK_CLASS_PATH := spark/slackwater_spark/class_path.py spark/slackwater_spark/unused-jars
BROKER_CLASSES := $(JARS)/broker/classes.jsa
BROKER_FEATURES := $(JARS)/broker/bootstrap.checkpoint
SCANNER_STAMP := $(VENV)/.scanner-compiled
SCANNER_FILES := $(wildcard services/slackwater/formats/scan/*.py)
BROKER_POM   := services/slackwater/machine/broker-pom/pom.xml
SPARK_POM    := spark/pom.xml

.PHONY: help setup lock demo test check fmt lint types arch unit integration images pin-images containers browser drills sim sim-iads mutants bench bench-queries bench-peers paper-dpc paper-flux paper-iads docs graph clean

help: ## list the targets
	@echo "slackwater: window aggregates over sensor streams on Kafka: a first answer within a bound, then the exact one"
	@echo
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' \
	  | column -t -s '|'
	@echo
	@echo "Begin with 'make setup' (needs Python 3.11 or newer, Java 17 and Maven), then 'make demo'."

setup: $(VENV_STAMP) $(SCANNER_STAMP) $(BROKER_CLASSES) $(BROKER_FEATURES) $(SPARK_CLASSES) ## create .venv, install the locked dependencies, fetch the jars

$(VENV_STAMP): pyproject.toml locks/python.txt locks/build.txt
	@command -v $(PYTHON) >/dev/null || { echo "setup: no $(PYTHON); install Python 3.11 or newer" >&2; exit 3; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "setup: $(PYTHON) is older than 3.11; run make setup PYTHON=python3.11" >&2; exit 3; }
	@# Before the packages, which take a minute: whatever the jars and the pipeline need.
	@command -v java >/dev/null || [ -n "$(JAVA_HOME)" -a -x "$(JAVA_HOME)/bin/java" ] \
	  || { echo "setup: no java; on Debian: apt-get install openjdk-17-jre-headless" >&2; exit 3; }
	@[ -e $(BROKER_STAMP) -a -e $(SPARK_STAMP) ] || command -v $(MVN) >/dev/null \
	  || { echo "setup: no $(MVN); on Debian: apt-get install maven" >&2; exit 3; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) \
	  || { echo "setup: $(PYTHON) cannot make a venv; on Debian: apt-get install python3-venv" >&2; exit 3; }
	@echo "setup: installing Python packages (PySpark is large: a minute the first time)"
	@$(PIP) --require-hashes --requirement locks/build.txt
	@locks/with-elapsed "setup: packages" $(PIP) --require-hashes --no-build-isolation --requirement locks/python.txt
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# $(call fetch,POM,FOLDER,LIST) fetches the jars into a new folder, compares them with LIST, and then
# renames the folder. An incomplete or mixed set of jars is therefore never used.
define fetch
	@command -v $(MVN) >/dev/null || { echo "setup: no $(MVN); on Debian: apt-get install maven" >&2; exit 3; }
	@echo "setup: fetching the jars of $(1)"
	@rm -rf $(2).part && mkdir -p $(JARS)
	@locks/with-elapsed "setup: jars" $(MVN) --quiet --batch-mode -Dstyle.color=never --file $(1) dependency:copy-dependencies \
	  -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(2).part
	@locks/check-jars $(2).part $(3)
	@touch $(2).part/.complete
	@rm -rf $(2) && mv $(2).part $(2)
endef

$(BROKER_STAMP): $(BROKER_POM) locks/broker-jars.sha256
	$(call fetch,$<,$(JARS)/broker,locks/broker-jars.sha256)

$(SPARK_STAMP): $(SPARK_POM) locks/spark-jars.sha256
	$(call fetch,$<,$(JARS)/spark,locks/spark-jars.sha256)

lock: ## rewrite locks/ after a change of pyproject.toml, constraints.txt or a pom.xml
	@locks/write $(PYTHON) $(MVN)

# Class archives halve the start time of a JVM. They are optional.
$(BROKER_CLASSES): $(VENV_STAMP) $(BROKER_STAMP)
	@echo "setup: archiving the broker's classes, for a faster start"
	@$(BIN)/python -m slackwater.machine.warm \
	  || echo "setup: no class archive; brokers will start more slowly" >&2

# Made with the archive. Where an archive of before is left, both are made again.
$(BROKER_FEATURES): | $(BROKER_CLASSES)
	@$(BIN)/python -m slackwater.machine.warm || echo "setup: brokers will start more slowly" >&2

$(SPARK_CLASSES): $(VENV_STAMP) $(SPARK_STAMP) $(SPARK_CLASS_PATH)
	@echo "setup: archiving the aggregator's classes, for a faster start"
	@$(BIN)/python -m slackwater_spark.warm \
	  || echo "setup: no class archive; aggregators will start more slowly" >&2

# Saves the first proxy that reads a topic 7 s of compilation. Optional.
$(SCANNER_STAMP): $(VENV_STAMP) $(SCANNER_FILES)
	@echo "setup: compiling the scanner of JSON messages"
	@$(BIN)/python -m slackwater.formats.scan.warm && touch $@ \
	  || echo "setup: no scanner; JSON topics will be read at a lower rate" >&2

demo: setup ## run a pipeline on Kafka, Faust and Spark while a source is silent; under two minutes
	@$(BIN)/slackwater demo $(ARGS)

# Import rules, types and the tests without processes take what one deployment leaves of two cores, at the lowest
# priority. A failure does not end the others: one run shows all that fail.
test: lint ## run all tests: make check, make integration and make containers
	@$(MAKE) --no-print-directory --jobs 2 --keep-going BESIDE=1 deployments arch types unit

.PHONY: deployments
deployments: # tests on processes, then on containers; CI holds the lock while it builds the images
	@if [[ -n "$${SLACKWATER_IMAGES_LOCK:-}" ]]; then flock --shared "$$SLACKWATER_IMAGES_LOCK" true; fi
	@first=0; $(MAKE) --no-print-directory integration || first=$$?; \
	  $(MAKE) --no-print-directory containers || first=$$?; exit $$first

check: lint types arch unit ## run lint, types, arch and unit; needs no broker

fmt: setup ## format the code and apply ruff's automatic fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lint: setup ## check ruff's rules and the format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: setup ## run mypy --strict over code and tests
	@$(if $(BESIDE),nice -n 19) $(BIN)/mypy services spark tests docs $(wildcard bench) $(LABELLED)

arch: setup ## check the import rules: one direction, no I/O in protocols
	@$(BIN)/lint-imports $(LABELLED)

ifdef BESIDE
types: | arch
endif
unit: setup ## run the tests without processes: units, papers, scenarios, simulator, properties
	@$(if $(BESIDE),nice -n 19) $(BIN)/pytest --ignore tests/integration --ignore tests/e2e $(SIDE_BY_SIDE) $(ARGS) $(LABELLED)

integration: setup ## run the tests on a real broker and real processes
	@$(BIN)/pytest tests/integration -m "not containers and not drill" $(ON_PROCESSES) $(ARGS) $(LABELLED)

images: ## build the container images; public images that cannot be pulled are replaced by local builds
	@locks/with-elapsed "images: engine and public images" compose/offline/prepare.sh
	@echo "images: building (four minutes the first time)"
	@locks/with-elapsed "images: building" docker compose -f compose/compose.yaml --progress quiet build

pin-images: ## write the public images' digests to compose/pinned.env; needs a registry
	@compose/pin-images

containers: setup ## run the tests on containers; needs Docker and the images of make images
	@$(BIN)/pytest tests/e2e tests/integration -m "containers and not drill" $(BESIDE_CONTAINERS) $(ARGS) $(LABELLED)

# Playwright has its own venv, of which the tests use the packages. It drives Debian's Chromium.
BROWSER_VENV  := build/browser/venv
BROWSER_STAMP := $(BROWSER_VENV)/.installed

browser: setup $(BROWSER_STAMP) ## test the page in Chromium; on Debian: apt-get install chromium
	@command -v chromium >/dev/null || { echo "browser: no chromium; on Debian: apt-get install chromium" >&2; exit 3; }
	@PYTHONPATH=$$($(BROWSER_VENV)/bin/python -c 'import site; print(site.getsitepackages()[0])') \
	  $(BIN)/pytest tests/browser -m "browser and not drill" $(ARGS)

$(BROWSER_STAMP): locks/browser.txt
	@rm -rf $(BROWSER_VENV) && $(PYTHON) -m venv $(BROWSER_VENV)
	@$(BROWSER_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: \
	  --requirement $<
	@touch $@

drills: setup ## run the full-size tests: minutes to hours each; one: make drills ARGS="-k hostile"
	@$(BIN)/pytest -m drill $(ARGS)

sim: setup ## simulate the whole system in virtual time with SEEDS=1000 seeds from FROM=0
	@$(BIN)/python -m tests.simulator --seeds $(SEEDS) --from $(FROM) $(ARGS)

sim-iads: setup ## simulate the control plane's protocol on a network of its own with SEEDS=1000 seeds from FROM=0
	@$(BIN)/python -m tests.iads_simulator --seeds $(SEEDS) --from $(FROM) $(ARGS)

mutants: setup ## plant known faults in cores and hosts; print the test that finds each, and after how long
	@$(BIN)/python -m tests.simulator.mutants $(ARGS)
	@$(BIN)/python -m tests.iads_simulator.mutants

bench: setup ## measure throughput and latency on this machine; writes bench/README.md
	@$(BIN)/python bench/run.py $(ARGS)

bench-queries: setup ## measure CPU, memory and latency of 1, 3, 10, 20 and 30 queries, 15 minutes; ARGS="--queries 1,3"
	@$(BIN)/python -m bench.queries $(ARGS)

bench-peers: setup ## measure Kafka Streams, Flink, Spark, Quix and slackwater, 40 minutes, with downloads; writes bench/peers/README.md
	@MVN=$(MVN) $(BIN)/python -m bench.peers.run $(ARGS)

paper-dpc: setup ## repeat the DPC paper's experiments, 20 minutes; writes docs/results/dpc.md
	@$(BIN)/python -m bench.paper_dpc $(ARGS)

paper-fargo: setup ## repeat the Fargo thesis's experiment on latency, some 25 minutes; writes docs/results/fargo.md
	@$(BIN)/python -m bench.paper_fargo $(ARGS)

paper-flux: setup ## repeat the Flux paper's analysis and experiments, some 80 minutes; writes docs/results/flux.md
	@$(BIN)/python -m bench.paper_flux $(ARGS)

paper-iads: setup ## repeat the IADS paper's claims on latencies; writes docs/results/iads.md
	@$(BIN)/python -m bench.paper_iads $(ARGS)

# mkdocs has its own venv. make setup does not install it.
DOCS_VENV  := build/docs/venv
DOCS_STAMP := $(DOCS_VENV)/.installed

docs: setup $(DOCS_STAMP) ## build the documentation site in build/docs/site and check its links
	@$(BIN)/python docs/site/build.py $(DOCS_VENV)/bin/mkdocs

$(DOCS_STAMP): locks/docs.txt
	@$(PYTHON) -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes \
	  --requirement $<
	@touch $@

graph: setup ## redraw docs/import-graph.svg after a change of imports between packages
	@$(BIN)/python docs/import_graph.py

clean: ## remove files made by setup and by the tools; keeps data directories
	@rm -rf $(VENV) $(JARS) build bench/peers/build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@find . -name '*.egg-info' -type d -prune -exec rm -rf {} +
