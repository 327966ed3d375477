# The project's own commands. `make demo` and `make test` need only Python 3.11+ and pip.
PYTHON ?= python3
VENV ?= .venv
ONLY ?=
PYTEST := -m pytest -n 2 --dist worksteal
BIN := $(VENV)/bin
CHECKED := src reproductions tests examples benchmarks docs/conf.py docs/site

.PHONY: groups regression test-torch demo test test-others test-base test-lowest constraints test-portable sbom wheel fast coverage attack check bench map questions fuzz shelf docs screens golden audits clean

demo: $(VENV)/.release
	$(BIN)/neyman demo --out build/demo

# Skips the tests that need what the machine lacks, and prints why (NEYMAN_SKIPS=refuse: fails).
test: $(VENV)/.dev
	.ci/packages
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(ONLY)

# What `make coverage` does not run. CI runs both, so that each test runs once on this Python.
test-others: $(VENV)/.dev
	.ci/packages
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) $(addprefix --ignore=,$(COVERED)) $(ONLY)

# The integrations with torch and Opacus, which take 6 GB: an environment of their own.
# CI runs the first of both folders, with the real libraries.
TORCH ?= .venv-torch
TORCH_TESTS ?= tests/with_torch tests/training
test-torch:
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check '.[release,opacus]' pytest hypothesis mpmath scikit-learn
	OMP_NUM_THREADS=1 PYTHONPATH=src $(TORCH)/bin/python -m pytest $(TORCH_TESTS)

# Accuracy against power, and by group, of trainings with fresh noise: some minutes.
RUNS ?= 5
groups: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m reproductions.dp_sgd.private_training --runs $(RUNS)

# What needs no extra, Java, PostgreSQL, or browser.
CORE := tests/numerics tests/core/test_closed_forms.py tests/core/test_order.py \
  tests/core/test_engine_selection.py tests/test_public.py

# Core tests in under a minute on a quiet machine.
fast: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "not slow" $(CORE) tests/mechanisms/test_mechanisms.py

# The same in an environment with what `pip install neyman` installs, and no extra.
BASE ?= .venv-base
test-base:
	rm -rf $(BASE)
	$(PYTHON) -m venv $(BASE)
	$(BASE)/bin/python -m pip install --quiet --disable-pip-version-check . pytest pytest-xdist hypothesis mpmath
	NEYMAN_SKIPS= OMP_NUM_THREADS=1 $(BASE)/bin/python $(PYTEST) -m "not slow" $(CORE)

# The lowest versions that pyproject.toml declares for an install with neyman[release], on the oldest
# Python that it declares, and the tests of the core and of releases on them.
LOWEST ?= .venv-lowest
LOWEST_TESTS := $(CORE) tests/release/test_plan.py tests/release/test_run.py \
  tests/release/test_signing.py tests/release/test_source.py tests/show/test_plots.py
test-lowest:
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) .ci/lowest.py >$(LOWEST)/lowest.txt
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(LOWEST)/lowest.txt '.[release,dp-accounting]' \
	  pytest pytest-xdist hypothesis mpmath 'psycopg[binary]' packaging click
	NEYMAN_SKIPS= OMP_NUM_THREADS=1 $(LOWEST)/bin/python $(PYTEST) -W ignore::DeprecationWarning \
	  -m "not slow" -k "not spark and not postgresql" $(LOWEST_TESTS)

# constraints.txt: the versions of the environment in which `make test` has passed.
constraints: $(VENV)/.dev
	{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip list --format=freeze --exclude-editable \
	  --exclude neyman --exclude pip --exclude setuptools --exclude nodeenv | sort -f; } >build-constraints.txt
	mv build-constraints.txt constraints.txt

# A bill of materials of what `pip install neyman[release]` brings, in CycloneDX, from the metadata
# of an environment that has this and nothing else.
SBOM ?= .venv-sbom
sbom:
	rm -rf $(SBOM)
	$(PYTHON) -m venv $(SBOM)/neyman
	$(SBOM)/neyman/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[release]'
	$(SBOM)/neyman/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(PYTHON) -m venv $(SBOM)/tool
	$(SBOM)/tool/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7'
	mkdir -p build
	$(SBOM)/tool/bin/cyclonedx-py environment --spec-version 1.6 --output-reproducible \
	  --pyproject pyproject.toml --mc-type library --of JSON -o build/sbom.cdx.json $(SBOM)/neyman/bin/python

# The wheel and the source distribution, whose metadata have the README without relative links.
wheel: $(VENV)/.dev
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w dist .

# What can depend on the version of Python: the public names, types, commands, texts, plans, stored
# forms, ledgers, and releases on DuckDB. The numbers of the other tests come from NumPy and SciPy.
PORTABLE := $(CORE) tests/mechanisms/test_mechanisms.py tests/typing tests/compatibility \
  tests/semantics/test_words.py tests/show/test_cli.py tests/show/test_demo.py \
  tests/show/test_plan_commands.py tests/show/test_ledger_commands.py \
  tests/show/test_data_commands.py tests/release/test_plan.py \
  tests/release/test_plan_in_python.py tests/release/test_bad_input.py \
  tests/release/test_ledger.py tests/release/test_ledger_sqlite.py tests/release/test_run.py \
  tests/release/test_source.py tests/release/test_verify.py tests/release/test_signing.py \
  tests/release/test_table_files.py
test-portable: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "not slow" -k "not spark and not postgresql" \
	  $(PORTABLE)

# Branches that tests of a few minutes take, and a floor under their share (pyproject.toml). What
# is counted slows them by about two thirds, so that other tests run without it.
COVERED := $(CORE) tests/core/test_exact_pairs.py tests/core/test_group.py \
  tests/core/test_garbling.py tests/mechanisms/test_mechanisms.py tests/mechanisms/test_local.py \
  tests/mechanisms/test_selection.py tests/mechanisms/test_sgd.py tests/mechanisms/test_shuffle.py \
  tests/core/test_few_steps.py tests/core/test_largest_step.py tests/core/test_cascade.py \
  tests/core/test_continuous_parts.py tests/mechanisms/test_federated.py \
  tests/mechanisms/test_posterior_sample.py tests/mechanisms/test_personal_budgets.py
coverage: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run $(PYTEST) $(COVERED)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --sort=cover

# The golden file: certified numbers of many cases, bit by bit. Rewrite it only with a reason.
golden: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/golden/record.py

# The tests that attack the product, and a summary of what held: docs/trust.md. At SIZE=1, which
# is what `make test` runs of them, some minutes; random attacks make SIZE times as many attempts.
SIZE ?= 5
attack: $(VENV)/.dev
	.ci/packages
	NEYMAN_ATTACK=$(SIZE) OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m attack

# The coverage of audits, by 20,000 simulated ones, planted faults that audits find, and releases
# of other libraries that are known to be wrong, each in an environment of its own.
PEERS ?= .venv-peers
audits: $(VENV)/.dev $(PEERS)/.installed
	NEYMAN_AUDITS=20000 NEYMAN_PEERS=$(CURDIR)/$(PEERS) OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) \
	  tests/auditing tests/with_peers

# Errors of private regressions beside diffprivlib's, with fresh noise: some minutes.
regression: $(VENV)/.dev $(PEERS)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m reproductions.regression.compare --runs 30 \
	  --python $(PEERS)/diffprivlib-0.6.6/bin/python
	$(BIN)/python -m reproductions.regression.page docs

INSTALL := bin/python -m pip install --quiet --disable-pip-version-check
$(PEERS)/.installed: Makefile
	$(PYTHON) -m venv $(PEERS)/diffprivlib-0.6.6
	$(PEERS)/diffprivlib-0.6.6/$(INSTALL) diffprivlib==0.6.6 'scikit-learn<1.6'
	$(PYTHON) -m venv $(PEERS)/diffprivlib-0.1.1
	$(PEERS)/diffprivlib-0.1.1/$(INSTALL) diffprivlib==0.1.1 'scikit-learn<1.3' 'numpy<1.24'
	$(PYTHON) -m venv $(PEERS)/datasynthesizer-0.1.4
	$(PEERS)/datasynthesizer-0.1.4/$(INSTALL) DataSynthesizer==0.1.4 'pandas<2.2' 'numpy<2'
	touch $@

check: $(VENV)/.dev
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python docs/site/import_picture.py --check
	$(BIN)/python docs/site/names_check.py
	$(BIN)/python docs/site/prose_check.py

# SPHINX="-t pages_only" leaves out the code of the pages, which the tests run too.
SPHINX ?=
docs: $(VENV)/.dev
	$(BIN)/sphinx-build -q -W --keep-going $(SPHINX) docs build/docs

# The pictures of the explorer and the report in docs/screens.
screens: $(VENV)/.dev
	NEYMAN_SCREENS=docs/screens $(BIN)/python -m pytest tests/browser -k screen

# Plans, receipts and ledgers changed at random, curves of random mechanisms, and laws of random
# rows and curves (tests/random_laws.py); more than an hour. `make test` runs 1,000 inputs, in about
# 80 s of one core, and the time grows with their number.
INPUTS ?= 50000
LAWS := tests/release/test_data_check.py tests/release/test_engine.py \
  tests/release/test_engine_units.py tests/release/test_engine_values.py \
  tests/release/test_key_values.py tests/core/test_few_steps.py tests/core/test_laws.py \
  tests/mechanisms/test_rounded_gaussian.py
fuzz: $(VENV)/.dev
	NEYMAN_FUZZ=$(INPUTS) $(BIN)/python $(PYTEST) tests/fuzz $(LAWS)

# Each table of tests/shelf from each source, with all rows, by each group: an hour of one core.
# `make test` compares every table from Parquet, two tables from every source, and at most 2,000 rows.
shelf: $(VENV)/.dev
	.ci/packages
	NEYMAN_SHELF=all OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) tests/shelf

# Operations of each public question of each public mechanism: an hour or so. CI asks some of them.
questions: $(VENV)/.dev
	NEYMAN_QUESTIONS=all OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 tests/golden/test_operations.py

# Widths, times, and errors at random points of every family: hours at the default size.
POINTS ?= 2000
map: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/map.py --points $(POINTS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/bench.py --keep
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/studies.py
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/explore.py
	$(BIN)/python benchmarks/noise.py
	$(BIN)/python benchmarks/consistent.py
	$(BIN)/python benchmarks/strategies.py
	$(BIN)/python benchmarks/release.py
	$(BIN)/python benchmarks/engine.py demo
	$(BIN)/python benchmarks/engine.py units
	$(BIN)/python benchmarks/engine.py spark
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/estimates.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.release: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.release

clean:
	rm -rf $(VENV) .venv-* build dist
