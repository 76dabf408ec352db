# One command each for set-up, running, checks and tests; .ci/run and pre-commit call the same ones.
# Needs make and Python 3.11, 3.12 or 3.13. Everything else goes into .venv and ~/.cache/headrace.

export PYTHON ?= python3
BIN := .venv/bin
PYTEST ?= $(BIN)/pytest
MODULE := $(BIN)/python -P -m
CACHE := $(or $(HEADRACE_CACHE),$(HOME)/.cache/headrace)
REAL_WORKERS ?= 3

# The repository's root is never on sys.path: its folder triton/ would shadow the package that torch
# imports.
export PYTHONSAFEPATH = 1
unexport PYTHONPATH
unexport PYTHONDONTWRITEBYTECODE

CODE := contracts measures preprocess service gateway registry rollout stats dashboards controller headrace bench examples docs tests
# Programs outside of packages. hatch_build.py is not among them: it runs on a build's own packages.
SCRIPTS := .ci/krew.py .ci/release.py .ci/sbom.py charts/crd.py charts/values.py docker/conversion/strip_cuda.py docker/kafka/jars.py docker/mlflow/start.py docker/requirements.py

.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' Makefile)

help:  ## says what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

up: .venv/.local  ## sets up and starts the local stack; UP_FLAGS="--port-mlflow 5001" passes flags
	@exec $(BIN)/headrace up $(UP_FLAGS)

setup: .venv/.dev  ## installs what checks and tests need

# Environments. A file records that one is made; it is made again when its lock changes.

.venv/.uv:
	@.ci/environment base && touch $@

# What `headrace up` runs on; .dev holds that too.
.venv/.local: .venv/.uv locks/local.txt locks/build.txt pyproject.toml
	@test -e .venv/.dev || .ci/environment code local
	@touch $@

.venv/.dev: .venv/.uv locks/dev.txt locks/build.txt pyproject.toml
	@.ci/environment code dev && touch $@ .venv/.local

.venv/.parts: .venv/.dev locks/triton.txt locks/export.txt locks/minilm.txt locks/gliner.txt locks/vectors.txt
	@.ci/environment parts && touch $@

# Clients of the gateway, MkDocs and tools of a release: each in an environment of its own.
.venv/.clients .venv/.nemo .venv/.docs .venv/.release: .venv/.%: .venv/.uv locks/%.txt
	@.ci/environment $* && touch $@

# Checks and tests

# Side by side: mypy keeps only one core busy.
check: .venv/.dev  ## ruff, mypy, import-linter and the quick unit tests: 45 seconds
	@$(MAKE) --no-print-directory -j 3 lint types quick

lint: .venv/.dev  ## ruff (rules and format) and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

size:  ## lines of code and words of documents, and their bounds
	@.ci/size

types: .venv/.dev  ## strict type checking
	$(BIN)/mypy $(CODE) $(SCRIPTS)

UNIT := not real and not export and not soak and not cluster and not gpu
# No plugin of a tool that no quick test uses: importing Schemathesis takes each process a second.
quick: .venv/.dev  ## the unit tests that are quick, with fewer random examples
	$(PYTEST) -n auto --dist worksteal -m "not slow and $(UNIT)" --hypothesis-profile=quick -p no:schemathesis -p no:anyio $(PYTEST_FLAGS)

unit: .venv/.dev  ## the tests that need no other process
	$(PYTEST) -n auto --dist worksteal -m "$(UNIT)" $(PYTEST_FLAGS)

# Those with torch beside those with real components, which wait more than they compute.
test: unit  ## all tests but the soak
	@$(MAKE) --no-print-directory -j 2 --output-sync=line real export

clients: .venv/.dev .venv/.clients .venv/.nemo  ## the tests with clients that people have: LangChain, LlamaIndex, Haystack, Cohere, LiteLLM, NeMo Guardrails
	$(PYTEST) tests/clients $(PYTEST_FLAGS)

# hatch_build.py says which modules are compiled, and how. The tests fail where Python loads the source
# of one. They are those of what is compiled, and of what calls it; how long the loop is held and what
# bodies take in memory the unit tests have said of the source, which is no quicker.
COMPILED := $(CURDIR)/.venv/compiled
COMPILED_TESTS := tests/test_compiled_modules.py $(addprefix tests/,gateway preprocess bench/test_core.py \
	$(addprefix registry/,convert/parity convert/tables convert/test_tokeniser.py \
	conversions/test_publication.py loading/test_fixed_shapes.py packages/test_triton_config.py))
NOT_COMPILED := $(addprefix --ignore=tests/gateway/dialects/,test_loop_time.py test_worst_bodies.py)
.venv/.compiled: .venv/.dev hatch_build.py pyproject.toml locks/build.txt $(shell find $(filter-out bench examples docs tests,$(CODE)) -name '*.py')
	@rm -rf $(COMPILED)
	HEADRACE_COMPILE=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --build-constraints locks/build.txt --target $(COMPILED) .
	@touch $@
compiled: .venv/.compiled  ## the gateway's unit tests on its compiled modules, as in the images; needs a C compiler
	HEADRACE_COMPILE=1 PYTHONPATH=$(COMPILED) $(PYTEST) -n auto --dist worksteal -m "$(UNIT)" --hypothesis-profile=quick $(NOT_COMPILED) $(COMPILED_TESTS) $(PYTEST_FLAGS)

real: .venv/.dev .venv/.parts  ## the tests on a real Triton, Kafka and MLflow
	$(PYTEST) -n $(REAL_WORKERS) --dist loadfile --no-loadscope-reorder -m "real and not export and not soak and not cluster" $(PYTEST_FLAGS)

export: .venv/.dev .venv/.parts  ## the tests that need torch, in its own environment
	PYTHONPATH="$$(cat .venv/.export):$(CURDIR)/.venv/minilm:$(CURDIR)/.venv/gliner" $(PYTEST) -m "export and not soak" $(PYTEST_FLAGS)

durations: .venv/.dev .venv/.parts  ## each part of the tests by itself, with the slowest of it: for docs/testing.md
	@for part in quick unit real export charts; do $(MAKE) $$part PYTEST_FLAGS="--durations=40 --durations-min=0.5 $(PYTEST_FLAGS)" || exit 1; done

object-store: $(CACHE)/object-store/versitygw  ## builds the S3 server that tests of the package store run on (without it they skip); needs Go
%/versitygw:
	@echo "Building an S3 server into $(CACHE) (minutes)"
	@CGO_ENABLED=0 GOBIN="$(@D)" go install -trimpath -ldflags '-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0

soak: .venv/.dev .venv/.parts  ## the hardest tests in full size, and all examples of properties: long
	@# 5: PYTEST_FLAGS select no property, but a test of the soak, as -k random_kills does.
	$(PYTEST) -n auto --dist worksteal -m "hypothesis and $(UNIT)" --hypothesis-profile=full $(PYTEST_FLAGS) || test $$? -eq 5
	$(PYTEST) -m "soak and not export" --hypothesis-profile=full --timeout 7200 $(PYTEST_FLAGS)

soak-export: .venv/.dev .venv/.parts  ## random checkpoints, in torch's own environment: an hour
	PYTHONPATH="$$(cat .venv/.export)" $(PYTEST) -m "soak and export" --hypothesis-profile=full --timeout 7200 $(PYTEST_FLAGS)

# As root the home gets a file system of its own, which can be full; with the S3 server, a package
# store that can hang.
SECONDS ?= 7200
SEED ?= 1
chaos: .venv/.dev .venv/.parts  ## random faults on a local stack for SECONDS, by SEED: long
	PYTHONPATH=tests/support:examples/rollouts MLFLOW_DISABLE_TELEMETRY=true $(MODULE) chaos --seconds $(SECONDS) --seed $(SEED) $(CHAOS_FLAGS)

charts: .venv/.dev  ## the tests of the chart; what it renders is tested where helm is on PATH, or in HELM
	$(PYTEST) tests/charts $(PYTEST_FLAGS)
cluster-walk: .venv/.dev  ## of the cluster's tests those that CI runs: install, predict, roll out, upgrade, uninstall
	$(PYTEST) -m "cluster and walk" tests/registry tests/cluster $(PYTEST_FLAGS)
cluster-test: .venv/.dev  ## the tests on the Kubernetes that KUBECONFIG names, which has the images
	$(PYTEST) -m cluster tests/registry tests/cluster $(PYTEST_FLAGS)

# With torch's own environment, whose libraries find the GPU.
test-gpu: .venv/.dev .venv/.parts  ## the tests that need a GPU (they skip without one): five minutes at most
	PYTHONPATH="$$(cat .venv/.export)" $(PYTEST) -m gpu tests/gpu $(PYTEST_FLAGS)

# Measuring

# docs/performance.md says how to go on from there ("Measure on your own GPU machine").
gpu-bundle: .venv/.dev .venv/.parts  ## all that measuring on a GPU machine without a network needs, in pieces under 58 MiB; BUNDLE_FLAGS="--without kafka --python PYTHON3.12"
	$(MODULE) bench.gpu.bundle $(BUNDLE_FLAGS)
bench: .venv/.dev .venv/.parts  ## measures; BENCH=core (or none): a request's time by part of the gateway, BENCH=gpu: on a GPU, BENCH=scale: many endpoints
	.ci/bench $(BENCH)

ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
simulate: .venv/.dev  ## whole rollouts simulated, in minutes; STUDY=NAME for one, STUDY=--small for a little of each; WORLDS=search looks for others, with SEARCH="--seed 1 --seconds 3600"
	PYTHONPATH=tests/support $(ONE_THREAD) $(MODULE) $(if $(filter search,$(WORLDS)),verdicts.search $(SEARCH),verdicts $(STUDY))

# What is built
images:  ## builds all images, or IMAGES="gateway stats"; docs/images.md tells of IMAGE_BUILD, IMAGE_TAG and IMAGE_LOAD
	@docker/build $(IMAGES)
docs: .venv/.dev .venv/.docs  ## builds the site into build/site: warnings, dead links and anchors are errors
	@rm -rf build/reference
	@$(BIN)/python -P docs/tools/reference.py build/reference
	@NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --quiet --clean && echo "The site is in build/site: open build/site/index.html"

# Needs a Chromium. What it writes is checked in.
screenshots: .venv/.dev .venv/.parts  ## takes the pictures of docs/images again from a local stack: ten minutes
	PYTHONPATH=tests/support MLFLOW_DISABLE_TELEMETRY=true $(BIN)/python -P docs/tools/screenshots.py $(SCREENSHOTS_FLAGS)
wheel: .venv/.dev  ## builds dist/headrace-*.whl
	$(BIN)/uv build --python $(BIN)/python --quiet --wheel --build-constraints locks/build.txt --out-dir dist .
sbom: .venv/.release  ## writes an SBOM (CycloneDX) of all that is released into dist/sbom, from the locks
	.venv/release/bin/python -P .ci/sbom.py dist/sbom
audit: .venv/.release  ## asks PyPI for known vulnerabilities of what the locks hold; needs the network
	.ci/audit
lock: .venv/.uv  ## makes the locks follow pyproject.toml; LOCK_FLAGS=--upgrade takes newer versions
	@LOCK_FLAGS="$(LOCK_FLAGS)" .ci/lock
lock-check: .venv/.uv  ## fails unless the locks follow pyproject.toml
	@.ci/lock --check
clean:  ## removes what was built; keeps ~/.headrace and the downloads
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
