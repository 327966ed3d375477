# `make` prints the targets. `make demo` and `make test` need only Python 3.11+ and pip.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV ?= .venv
ONLY ?=
# A file or a server goes to one process of the run, the longest first (tests/tiers.py). A crash of a
# process ends the run: pytest-xdist would run the same test for ever.
PYTEST := -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --max-worker-restart=0
BIN := $(VENV)/bin
TESTS := OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)
LONG := -o faulthandler_timeout=0  # a case may take hours
CHECKED := .ci/*.py checker src reproductions tests examples benchmarks docs/conf.py docs/site
INSTALL := bin/python -m pip install --quiet --disable-pip-version-check
TEST_PACKAGES := 'pytest>=9,<9.2' pytest-xdist hypothesis mpmath

.PHONY: $(shell sed -nE 's/^([a-z][a-z-]*):.*/\1/p' $(firstword $(MAKEFILE_LIST)))

help:  ## Print these lines.
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo "More, some of hours: make test-*, record-*, study-*, dist-* (Makefile)."

demo: $(VENV)/.release  ## Publish tables about 42,008,942 records, and verify them.
	$(BIN)/neyman demo --out build/demo

# Minutes, 4 GB of memory, 8 GB of disk. A run that was interrupted goes on. Other states:
# STATES="--states VT WY --blocks VT" CENSUS=build/two (docs/census.md).
CENSUS ?= build/census
STATES ?= --blocks WY
census: $(VENV)/.release  ## Publish census tables of 331 million simulated people.
	OMP_NUM_THREADS=1 $(BIN)/python -m reproductions.census_2020.nation --out $(CENSUS) $(STATES)

# Skips the tests that need what the machine lacks, and prints why (NEYMAN_SKIPS=refuse: fails).
# BEYOND=test leaves out what `make test` has run.
test: TIER ?= test
test:  ## Run the tests: 15 minutes of two cores, with the set-up. ONLY=PATH takes some.
	$(MAKE) -j2 packages $(VENV)/.dev
	$(TESTS) --tier $(TIER) $(if $(BEYOND),--beyond $(BEYOND)) $(ONLY)

packages:
	.ci/packages

fast: $(VENV)/.dev  ## Run the tests of a minute, without Java, a server, or a browser.
	$(TESTS) --tier fast $(ONLY)

check: $(VENV)/.dev  ## Check format, lint, types, layers, names, prose, and weight.
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python docs/site/import_picture.py --check
	$(BIN)/python docs/site/names_check.py
	$(BIN)/python docs/site/prose_check.py
	$(BIN)/python .ci/weight.py

docs: $(VENV)/.dev  ## Build the documentation. The tests run its code.
	$(BIN)/sphinx-build -q -W --keep-going docs build/docs

# At SIZE=1, which is what `make test` runs of them, some minutes; random attacks make SIZE times as
# many attempts.
SIZE ?= 5
attack: $(VENV)/.dev  ## Attack the product, and summarize what held (docs/trust.md).
	.ci/packages
	NEYMAN_ATTACK=$(SIZE) $(TESTS) -m attack $(LONG)

# Plans, receipts and ledgers changed at random, curves of random mechanisms, and every test that
# Hypothesis draws examples for; more than an hour.
INPUTS ?= 50000
fuzz: $(VENV)/.dev  ## Draw new random inputs for hours.
	NEYMAN_FUZZ=$(INPUTS) $(TESTS) -m random $(LONG)

# NUMBER faults, one at a time, of every class and package of src; those of torch in its environment.
# The first run, and one after a change of src, records what each test reaches. It goes on where it
# was stopped.
SEED ?= 1
NUMBER ?= 100
mutants: $(VENV)/.dev  ## Plant faults, and count those that the tests find.
	$(MAKE) $(TORCH)/.installed
	TORCH=$(TORCH) $(BIN)/python tests/mutants.py --seed $(SEED) --number $(NUMBER) $(if $(SCORES),--append $(SCORES))

bench: $(VENV)/.dev  ## Measure speed and accuracy beside other libraries.
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
	$(BIN)/python benchmarks/engine.py cluster
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/estimates.py

night: $(VENV)/.dev  ## Run everything at full size: hours.
	.ci/packages
	$(TESTS)
	$(TESTS) --reverse --tier test
	$(MAKE) test-connect test-cluster test-coverage test-torch test-jax test-lowest test-portable test-shelf test-questions test-audits
	$(MAKE) attack fuzz
	$(MAKE) mutants SEED=$$(date +%Y%m%d) SCORES=tests/mutants.jsonl

clean:  ## Remove what these commands have built.
	rm -rf $(VENV) .venv-* build dist

# ---- more tests -----------------------------------------------------------------------------------

# The tests of Spark through a Spark Connect server: all of them, without those of Java.
test-connect: $(VENV)/.dev
	.ci/packages
	NEYMAN_SPARK=connect $(TESTS) -k spark $(LONG)

# A Spark cluster of two workers on this machine, one of which is killed, with 10^8 rows.
test-cluster: $(VENV)/.dev
	.ci/packages
	NEYMAN_CLUSTER_ROWS=100000000 $(TESTS) tests/publishing/release/test_spark_cluster.py $(LONG)

# Torch and Opacus take 6 GB: an environment of their own. CI runs the cases of a minute.
TORCH ?= .venv-torch
TORCH_TESTS ?= tests/with_torch tests/analysis/training
$(TORCH)/.installed: pyproject.toml
	$(PYTHON) -m venv $(TORCH)
	$(TORCH)/$(INSTALL) '.[release,opacus,torch]' $(TEST_PACKAGES) scikit-learn peft "triton; sys_platform == 'linux'"
	touch $@
test-torch: $(TORCH)/.installed
	OMP_NUM_THREADS=1 PYTHONPATH=src $(TORCH)/bin/python -m pytest $(TORCH_TESTS)

# jax_privacy, in an environment of its own: its versions are not those of torch's or ours.
JAX ?= .venv-jax
$(JAX)/.installed: pyproject.toml
	$(PYTHON) -m venv $(JAX)
	$(JAX)/$(INSTALL) '.[jax-privacy]' $(TEST_PACKAGES)
	touch $@
test-jax: $(JAX)/.installed
	OMP_NUM_THREADS=1 PYTHONPATH=src $(JAX)/bin/python -m pytest tests/with_jax

# In an environment that has what `pip install neyman` installs, and no extra: what it promises, and
# then every test whose file imports no more.
BASE ?= .venv-base
test-base test-lowest test-portable: TIER ?= fast
test-base: $(VENV)/.dev
	rm -rf $(BASE)
	$(PYTHON) -m venv $(BASE)
	$(BASE)/$(INSTALL) .
	NEYMAN_BASE=$(BASE)/bin/python $(TESTS) tests/cli/test_base_install.py
	$(BASE)/$(INSTALL) $(TEST_PACKAGES)
	NEYMAN_SKIPS= OMP_NUM_THREADS=1 $(BASE)/bin/python $(PYTEST) --tier $(TIER)

# The lowest versions that pyproject.toml declares for an install with neyman[release], on the oldest
# Python that it declares.
LOWEST ?= .venv-lowest
test-lowest:
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(PYTHON) .ci/lowest.py >$(LOWEST)/lowest.txt
	$(LOWEST)/$(INSTALL) -c $(LOWEST)/lowest.txt '.[release,dp-accounting]' \
	  $(TEST_PACKAGES) 'psycopg[binary]' packaging click
	NEYMAN_SKIPS= OMP_NUM_THREADS=1 $(LOWEST)/bin/python $(PYTEST) -W ignore::DeprecationWarning \
	  --tier $(TIER) -k "not spark and not postgresql"

# On another Python: VENV=.venv-newest PYTHON=python3.14.
test-portable: $(VENV)/.dev
	$(TESTS) --tier $(TIER) -k "not spark and not postgresql"

# The share of the branches that `make test` takes, and a floor (pyproject.toml).
test-coverage: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m coverage run $(PYTEST) --tier test
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --skip-covered --sort=cover

# Each table of tests/shelf from each source, with all rows, by each group: an hour of one core.
test-shelf: $(VENV)/.dev
	.ci/packages
	NEYMAN_SHELF=all $(TESTS) tests/shelf $(LONG)

# Operations of each public question of each public mechanism: an hour or so. CI asks some of them.
test-questions: $(VENV)/.dev
	NEYMAN_QUESTIONS=all $(TESTS) tests/golden/test_operations.py $(LONG)

# The coverage of audits, by 20,000 simulated ones, planted faults that audits find, and releases
# of other libraries that are known to be wrong, each in an environment of its own.
PEERS ?= .venv-peers
test-audits: $(VENV)/.dev $(PEERS)/.installed
	NEYMAN_AUDITS=20000 NEYMAN_PEERS=$(CURDIR)/$(PEERS) $(TESTS) tests/auditing tests/with_peers $(LONG)

$(PEERS)/.installed: Makefile
	$(PYTHON) -m venv $(PEERS)/diffprivlib-0.6.6
	$(PEERS)/diffprivlib-0.6.6/$(INSTALL) diffprivlib==0.6.6 'scikit-learn<1.6'
	$(PYTHON) -m venv $(PEERS)/diffprivlib-0.1.1
	$(PEERS)/diffprivlib-0.1.1/$(INSTALL) diffprivlib==0.1.1 'scikit-learn<1.3' 'numpy<1.24'
	$(PYTHON) -m venv $(PEERS)/datasynthesizer-0.1.4
	$(PEERS)/datasynthesizer-0.1.4/$(INSTALL) DataSynthesizer==0.1.4 'pandas<2.2' 'numpy<2'
	touch $@

# ---- files that a run writes ----------------------------------------------------------------------

# The CPU seconds of each case, from which the tiers follow, on a quiet machine (tests/tiers.py).
record-durations: $(VENV)/.dev
	.ci/packages
	$(TESTS) --durations-file

# The golden file: certified numbers of many cases. Rewrite it only with a reason.
record-golden: $(VENV)/.dev
	$(BIN)/python tests/golden/record.py --write

# What `make census` took, and its errors, on the page of the census.
record-census: census
	cp $(CENSUS)/summary.json reproductions/data/census_nation.json
	$(BIN)/python -m reproductions.census_2020.page docs

# The pictures of the explorer and the report in docs/screens.
record-screens: $(VENV)/.dev
	$(BIN)/neyman demo --out build/demo
	NEYMAN_SCREENS=docs/screens NEYMAN_DEMO=$(CURDIR)/build/demo/plan.toml $(BIN)/python -m pytest tests/browser -k screen

# constraints.txt: the versions of the environment in which `make test` has passed.
record-constraints: $(VENV)/.dev
	{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip list --format=freeze --exclude-editable \
	  --exclude neyman --exclude pip --exclude setuptools --exclude nodeenv | sort -f; } >build-constraints.txt
	mv build-constraints.txt constraints.txt

# ---- studies --------------------------------------------------------------------------------------

# Accuracy against power, and by group, of trainings with fresh noise: some minutes.
RUNS ?= 5
study-groups: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m reproductions.dp_sgd.private_training --runs $(RUNS)

# Errors of private regressions beside diffprivlib's, with fresh noise: some minutes.
study-regression: $(VENV)/.dev $(PEERS)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m reproductions.regression.compare --runs 30 \
	  --python $(PEERS)/diffprivlib-0.6.6/bin/python
	$(BIN)/python -m reproductions.regression.page docs

# Widths, times, and errors at random points of every family: hours at the default size.
POINTS ?= 2000
study-map: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/map.py --points $(POINTS)

# ---- distributions --------------------------------------------------------------------------------

# The wheel, the source distribution, the bill of materials, and the checksums of a release, in dist/.
# The time of the last commit is the time of each file, so that two builds have the same bytes.
dist: dist-sbom
	rm -rf dist
	$(SBOM)/tool/bin/python -m pip install --quiet --disable-pip-version-check build
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(SBOM)/tool/bin/python -m build --outdir dist .
	cp build/sbom.cdx.json dist/
	cd dist && sha256sum *.whl *.tar.gz sbom.cdx.json >SHA256SUMS

# A bill of materials of what `pip install neyman[release]` brings, in CycloneDX, from the metadata
# of an environment that has this and nothing else.
SBOM ?= .venv-sbom
dist-sbom:
	rm -rf $(SBOM)
	$(PYTHON) -m venv $(SBOM)/neyman
	$(SBOM)/neyman/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt '.[release]'
	$(SBOM)/neyman/bin/python -m pip uninstall --quiet --yes pip setuptools
	$(PYTHON) -m venv $(SBOM)/tool
	$(SBOM)/tool/bin/python -m pip install --quiet --disable-pip-version-check 'cyclonedx-bom>=7'
	mkdir -p build
	$(SBOM)/tool/bin/cyclonedx-py environment --spec-version 1.6 --output-reproducible \
	  --pyproject pyproject.toml --mc-type library --of JSON -o build/sbom.cdx.json $(SBOM)/neyman/bin/python

# ---- environments ---------------------------------------------------------------------------------

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.release: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[release]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@ $(VENV)/.release
