# Requires Python 3.11 or newer, Java 17 or newer and make. Real Kafka requires Maven or Docker. `make setup` installs the rest.
# `make help` prints the lines below.
#
#   make setup       install everything into .venv; the other targets run it if needed
#   make demo        stream into the embedded broker, read it back and compare; BROKER=kafka for real Kafka
#   make check       format, lint, types, layers
#   make count       compare instruction counts of hot paths with the baseline: under a minute; WRITE=1 renews the baseline
#   make format      fix what `make check` can fix automatically
#   make ci          what CI does, in a clean clone of the last commit: 15 minutes; then build/ci/passed has the commit
#   make test-quick  tests without Java, for use after each edit: a minute
#   make test        each behaviour on one kind of broker, newest and oldest PySpark: 10 minutes
#   make test-all    every test on both kinds of broker, every kill, the full model of exactly-once: an hour
#   make test-python-3.12  tests without Java and Spark's smoke tests with another Python; `make test-all` runs it for each that it finds
#   make test-minimal  tests with the lowest version of every dependency, 10 minutes; `make test-all` runs it too
#   make test-extras the wheel with each extra alone, in environments of their own, and one use of each; PYTHONS= for more
#   make docs        generate the reference pages and build the site in build/site; CHECK=1 fails if they are out of date
#   make api         compare names, options, codes and commands with docs/interface.txt; WRITE=1 renews it
#   make dist        wheel and sdist into dist/, checked with twine
#   make chaos       500 random kills of the processes of an exactly-once query; SEED= repeats a run; also KILLS=, BROKER=kafka
#   make soak        two streams for MINUTES=20 while brokers are killed: no row lost or doubled, nothing grows
#   make scale       many partitions, many workers, many tasks: 20 minutes; QUICK=1 takes 3; KEEP=1 updates the docs
#   make fuzz        coverage-guided fuzzing of the decoders, then lying peers: FRAMES=200000 of each; also SEED=, TARGETS=, KEEP=1
#   make audit       known vulnerabilities of the versions in constraints.txt; fails if the database cannot be asked
#   make bench       CPU time per row and rows/s beside other sinks: 45 minutes; QUICK=1 takes 10; KEEP=1 updates the docs
#   make bench-parts measure producers, exactly-once, memory, schemas and the embedded broker: 25 minutes; QUICK=1 takes 5
#   make constraints write the newest versions to constraints.txt
#   make clean       remove everything that make created

.DEFAULT_GOAL := help

PYTHON ?= $(shell command -v python3.11 || command -v python3)
PYTEST_ARGS ?=

VENV := .venv
# By default Spark starts the python3 on PATH for its workers.
export PYSPARK_PYTHON = $(CURDIR)/$(VENV)/bin/python
export PYSPARK_DRIVER_PYTHON = $(PYSPARK_PYTHON)
# Spark fails or waits on hosts whose own name does not resolve.
export SPARK_LOCAL_IP ?= 127.0.0.1
# Some machines disable byte code. Then each of the hundreds of Python processes that the tests start would compile everything,
# and pytest would rewrite 900 files at each start, which takes 18 s instead of 8.
unexport PYTHONDONTWRITEBYTECODE

OLDEST := 4.0.0
# Those between it and the newest, of which each has a smoke test in `make test-all`.
SPARKS := 4.1.4 4.2.1
VENV_OLDEST := .venv-spark-$(OLDEST)
VENV_MINIMAL := .venv-minimal
# What pyenv has comes first, because its command refuses a version that no file selects.
python = $(firstword $(wildcard $(HOME)/.pyenv/versions/$(1).*/bin/python$(1)) $(shell command -v python$(1)))
PYTHONS := $(foreach version,3.12 3.13 3.14,$(if $(call python,$(version)),$(version)))
CODE := spark_kafka_sink $(wildcard pyspark_kafka_sink pyspark_kafka_sink.py) jobs tests benchmarks docs

.PHONY: help setup java jars check ci count format test test-quick test-all test-newest test-all-newest test-all-oldest test-minimal test-extras fuzz audit demo docs api dist chaos soak scale bench bench-parts constraints clean

help:
	@sed -n 's/^#   make/make/p' $(firstword $(MAKEFILE_LIST))

setup: $(VENV)/.stamp

# Runs before the downloads, because Spark's own error comes after them and does not say what to install.
java:
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || \
		{ echo "Spark requires Java 17 or newer, which was not found: install Java 17 and put it on PATH, or set JAVA_HOME" >&2; exit 1; }

# $(1): constraints. Copies an environment that is kept outside the checkout, or installs it first.
environment = $(PYTHON) tests/environment.py $(@D) $(1) && touch $@

$(VENV)/.stamp: pyproject.toml constraints.txt tests/environment.py
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is required: make PYTHON=...")'
	@$(call environment,constraints.txt)

.PRECIOUS: .venv-spark-%/.stamp
.venv-spark-%/.stamp: pyproject.toml constraints.txt tests/environment.py
	@mkdir -p build && sed 's/^pyspark==.*/pyspark==$*/' constraints.txt > build/constraints-$*.txt
	@$(call environment,build/constraints-$*.txt)

.PRECIOUS: .venv-python-%/.stamp
.venv-python-%/.stamp: pyproject.toml constraints.txt tests/environment.py
	@test -n "$(call python,$*)" || { echo "Python $* was not found: install it, or put its python$* on PATH" >&2; exit 1; }
	@$(call python,$*) tests/environment.py $(@D) constraints.txt && touch $@

# The lower bounds of pyproject.toml, as a user with old libraries has them. Development tools keep their versions.
$(VENV_MINIMAL)/.stamp: $(VENV)/.stamp
	@mkdir -p build && $(VENV)/bin/python -m tests.package.minimal > build/constraints-minimal.txt
	@$(call environment,build/constraints-minimal.txt)

check: setup
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy --strict $(CODE)
	$(VENV)/bin/lint-imports

count: setup
	$(VENV)/bin/python -m benchmarks.instructions $(if $(WRITE),--write --runs 2)

format: setup
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

# tests/tiers.py lists the contents of each tier. Tests that share a Spark session or a killed process stay on one worker.
# The tests wait more than they compute: two workers on two cores use only half of the processor time.
WORKERS ?= 3
# By default groups of many tests start first; here those that take longest do (tests/tiers.py).
PYTEST := -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# Each test of tests/spark runs on real Kafka with the newest pyspark, and on embedded brokers with the oldest: all of them in
# `make test-all`, and those marked `smoke` in `make test`, in one process with one Spark session. The versions between them also
# run those of Spark Connect, which take a server.
NEWEST := -m "not oldest"
OLDEST_TESTS := -m "spark and not kafka"
SMOKE = -m pytest --tier=test -m "smoke and not kafka" $(shell grep -rl mark.smoke tests/spark $(if $(filter $(SPARKS),$*),tests/spark_connect) --include=*.py)

test-quick: setup
	$(VENV)/bin/python $(PYTEST) --tier=quick $(PYTEST_ARGS)

test: test-newest test-spark-$(OLDEST)

test-all: test-all-newest test-all-oldest $(SPARKS:%=test-spark-%) $(PYTHONS:%=test-python-%) test-minimal

# The tests fetch these when they need them: only make test-all does.
WHOLE_POMS := $(patsubst %,tests/kafka/poms/kafka-%.xml,2.8 3.3 4.0) tests/spark_yarn/pom.xml
# Runs before the tests, which would not show the download. The files are kept outside the repository and downloaded once.
jars: java setup
	@$(VENV)/bin/python -m tests.kafka.jars $(filter-out $(WHOLE_POMS),$(wildcard tests/*/pom.xml tests/kafka/poms/*.xml))

test-newest: jars
	$(VENV)/bin/python $(PYTEST) --tier=test $(NEWEST) $(PYTEST_ARGS)

test-all-newest: jars
	$(VENV)/bin/python $(PYTEST) --tier=all $(NEWEST) $(PYTEST_ARGS)

test-spark-%: export PYSPARK_PYTHON = $(CURDIR)/.venv-spark-$*/bin/python
test-spark-%: java .venv-spark-%/.stamp
	.venv-spark-$*/bin/python $(SMOKE) $(PYTEST_ARGS)

test-all-oldest: export PYSPARK_PYTHON = $(CURDIR)/$(VENV_OLDEST)/bin/python
test-all-oldest: java $(VENV_OLDEST)/.stamp
	$(VENV_OLDEST)/bin/python $(PYTEST) --tier=all tests/spark tests/spark_connect $(OLDEST_TESTS) $(PYTEST_ARGS)

test-python-%: export PYSPARK_PYTHON = $(CURDIR)/.venv-python-$*/bin/python
test-python-%: java .venv-python-%/.stamp
	.venv-python-$*/bin/python $(PYTEST) --tier=quick $(PYTEST_ARGS)
	.venv-python-$*/bin/python $(SMOKE) $(PYTEST_ARGS)

# The libraries decide what fails here, not the brokers.
test-minimal: export PYSPARK_PYTHON = $(CURDIR)/$(VENV_MINIMAL)/bin/python
test-minimal: java $(VENV_MINIMAL)/.stamp
	$(VENV_MINIMAL)/bin/python $(PYTEST) --tier=test -m "not (kafka or spark or java or chaos)" $(PYTEST_ARGS)
	$(VENV_MINIMAL)/bin/python $(SMOKE) $(PYTEST_ARGS)

# `make test` has every library, so it does not see an extra that lacks one.
test-extras: java dist
	$(VENV)/bin/python -m tests.extras dist/*.whl --python $(PYTHON) $(foreach each,$(PYTHONS),$(call python,$(each)))

# What this make exports and an active environment would reach from the checkout into the clone.
OWN_VARIABLES := PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON SPARK_LOCAL_IP MAKEFLAGS MFLAGS MAKELEVEL PYTHON VIRTUAL_ENV PYTHONPATH PROMTOOL
ci:
	@git diff --quiet HEAD || echo "Changes that are not committed are not in this run" >&2
	rm -rf build/ci && mkdir -p build/ci && git clone --quiet . build/ci/clone
	cd build/ci/clone && env $(patsubst %,-u %,$(OWN_VARIABLES)) CI=true bash .ci/run < /dev/null
	git -C build/ci/clone rev-parse HEAD > build/ci/passed
	rm -rf build/ci/clone

# atheris has wheels for Linux and macOS only, so that it is no development dependency.
fuzz: export FRAMES := $(FRAMES)
fuzz: export SEED := $(SEED)
fuzz: export TARGETS := $(TARGETS)
fuzz: export KEEP := $(KEEP)
fuzz: setup
	$(VENV)/bin/python -m pip install --quiet 'atheris>=3'
	$(VENV)/bin/python -m tests.fuzz

# Has its own environment, because pip-audit must not add to what it audits.
audit: setup
	rm -rf build/audit
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet 'pip-audit>=2.9'
	build/audit/bin/python tests/package/audit.py

demo: export BROKER := $(BROKER)
demo: java setup
	$(VENV)/bin/python jobs/demo.py

docs: setup
	$(VENV)/bin/python -m docs $(if $(CHECK),--check)
	$(VENV)/bin/python -m tests.fault_table $(if $(CHECK),--check)
	$(VENV)/bin/python -m sphinx -E -W --keep-going -q -b html -d build/doctrees docs build/site
	@echo "build/site/index.html"

api: setup
	$(VENV)/bin/python -m docs.interface $(if $(WRITE),--write)

# Builds in an isolated environment, like a user's pip. Files of an earlier version are removed, so they are not uploaded.
dist: setup
	rm -rf dist
	$(VENV)/bin/python -m build --outdir dist .
	$(VENV)/bin/python -m twine check --strict dist/*

chaos: export SEED := $(SEED)
chaos: export KILLS := $(KILLS)
chaos: export BROKER := $(BROKER)
chaos: java setup
	$(VENV)/bin/python -m tests.faults.exactly_once

soak: export MINUTES := $(MINUTES)
soak: java setup
	$(VENV)/bin/python -m benchmarks.soak $(if $(KEEP),--keep)

scale: export QUICK := $(QUICK)
scale: java setup
	$(VENV)/bin/python -m benchmarks.scale $(if $(KEEP),--keep)

bench bench-parts: export QUICK := $(QUICK)
bench: java setup
	$(VENV)/bin/python -m benchmarks.cost $(if $(KEEP),--keep)

bench-parts: java setup
	$(VENV)/bin/python -m benchmarks

# The exact versions for development and CI, resolved from the newest releases.
constraints:
	rm -rf build/constraints
	$(PYTHON) -m venv build/constraints
	build/constraints/bin/python -m pip install --quiet -e '.[dev]'
	build/constraints/bin/python -m pip freeze --exclude-editable > constraints.txt

clean:
	rm -rf $(VENV) .venv-spark-* .venv-python-* $(VENV_MINIMAL) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -rf artifacts spark-warehouse metastore_db derby.log
