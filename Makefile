# Everything runs in .venv. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TEST_WORKERS ?= 2
FUZZ_SECONDS ?= 600
IMAGE ?= airbyte/destination-s3-spark:dev
# Empty: the base that the Dockerfile names. `make base-image` makes the other one.
BASE_IMAGE ?=
LOCAL_BASE := destination-s3-spark-base:local
COMPILE := $(BIN)/python -m uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-annotate --universal --python-version 3.11
# What builds the image's packages. pyproject.toml and kernel/pyproject.toml name the same.
BUILD_TOOLS := 'setuptools>=77' wheel 'maturin>=1.9,<2'
CYCLONEDX := 11.12.0
# A test that hangs fails after a while, and ends its process. The others run what they have begun. With new processes xdist would wait for ever.
LIMIT := --timeout=900 --timeout-method=thread --max-worker-restart=0
PYTEST := $(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadgroup --no-loadscope-reorder $(LIMIT)
# Every test has one lane. A nightly run has a seed, and takes the tests of the first three.
ELSEWHERE := image_tests or reader_tests or trino_tests or clusters
ALL := $(if $(TEST_SEED),not ($(ELSEWHERE)),not (nightly or $(ELSEWHERE)))
KERNEL := kernel/Cargo.toml kernel/Cargo.lock kernel/pyproject.toml $(wildcard kernel/src/*.rs)
export PYTHON
# Or each of the many processes of a test run would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-nightly test-readers test-trino test-kubernetes test-yarn test-without-kernel coverage check check-kernel fuzz wheels spec lock sbom audit base-image image image-test

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 28

install: $(STAMP) ## Make .venv with the locked packages (skipped when up to date)

$(STAMP): requirements-dev.lock pyproject.toml scripts/install scripts/install-cargo scripts/install-kernel scripts/system-packages $(KERNEL)
	@scripts/install
	@touch $@

demo: install ## Run a sync of an invented shop into a local S3 server and read the tables back
	@$(BIN)/python -m demo

test: install ## Run the unit tests but the slow ones, and the main job on a real S3 server and Spark (five minutes)
	@echo "==> running the tests of the product's logic"
	@$(PYTEST) unit_tests integration_tests/test_main_job.py -m "not slow and $(ALL)" $(PYTEST_ARGS)

test-all: install ## Run all tests but those of the image, of other readers and of clusters (twelve minutes)
	@scripts/install-sources || echo "==> the sources that tests read from could not be installed; those tests are skipped"
	@echo "==> running all tests"
	@$(PYTEST) -m "$(ALL)" $(PYTEST_ARGS)

test-nightly: install ## Run all there is, with random cases from a seed that is printed (hours)
	@scripts/nightly

test-readers: install ## Read published tables with Spark 4.1, ClickHouse, DuckDB and Daft (some 900 MB once; six minutes)
	@scripts/install-readers
	@echo "==> reading published tables with Spark 4.1, ClickHouse, DuckDB and Daft"
	@$(BIN)/python -m pytest --timeout=900 -m reader_tests integration_tests/readers $(PYTEST_ARGS)

test-trino: install ## Read published tables with Trino, before a release (some 850 MB once; five minutes)
	@scripts/install-trino
	@echo "==> reading published tables with Trino"
	@$(BIN)/python -m pytest -m trino_tests integration_tests/trino $(PYTEST_ARGS)

test-kubernetes: install ## Merge on Kubernetes with all that can go wrong, before a release (as root, with Go; five minutes, once fifteen)
	@scripts/install-control-plane
	@echo "==> merging on Kubernetes, with its own API server"
	@KUBERNETES_CONTROL_PLANE=.cache/control-plane/control-plane $(BIN)/python -m pytest integration_tests/test_kubernetes.py $(PYTEST_ARGS)

test-yarn: install ## Merge on YARN and HDFS, before a release (some 65 MB once; five minutes)
	@echo "==> merging on YARN"
	@$(BIN)/python -m pytest integration_tests/test_yarn.py $(PYTEST_ARGS)

coverage: install ## Run the unit tests, the slow ones too, and fail when they run less of the package than they did
	@echo "==> measuring what the unit tests run"
	@$(PYTEST) unit_tests --cov --cov-report=term:skip-covered

check: install ## Lint, formatting, types
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy --strict

fuzz: install ## Compare the native and the Python typer over spoilt lines for FUZZ_SECONDS (ten minutes), from TEST_SEED
	@$(BIN)/python -m unit_tests.decoding.fuzz --seconds $(FUZZ_SECONDS) --seed $(or $(TEST_SEED),1)

test-without-kernel: install ## Run the tests of typing and of bad input with all lines typed in Python
	@DESTINATION_S3_SPARK_KERNEL=off $(BIN)/python -m pytest unit_tests/decoding unit_tests/protocol unit_tests/sync/test_bad_input.py $(PYTEST_ARGS)

check-kernel: ## Lint, formatting and tests of the native kernel, where cargo is to be had
	@echo "==> cargo fmt --check"
	@cd kernel && cargo fmt --check
	@echo "==> cargo clippy"
	@cd kernel && cargo clippy --quiet --locked --all-targets -- --deny warnings
	@echo "==> cargo test"
	@cd kernel && cargo test --quiet --locked --release

wheels: install ## Build the wheels of the connector and of its kernel (for this machine's kind) into dist
	@$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	@$(BIN)/python -m maturin build --quiet --release --locked --manifest-path kernel/Cargo.toml --out dist
	@ls dist

spec: install ## Write spec.json, docs/options.md and metadata.json anew from the configuration models and metadata.yaml
	@$(BIN)/python -m scripts.specification
	@scripts/metadata-json
	@echo "==> wrote destination_s3_spark/spec.json and metadata.json, and docs/options.md"

lock: install ## Write the lock files anew from pyproject.toml and the build tools
	@echo "==> resolving requirements.lock, requirements-dev.lock and requirements-build.lock"
	@$(COMPILE) --extra iceberg --output-file requirements.lock pyproject.toml
	@$(COMPILE) --extra iceberg --extra dev --output-file requirements-dev.lock pyproject.toml
	@printf '%s\n' $(BUILD_TOOLS) | $(COMPILE) --output-file requirements-build.lock -

sbom: install ## Write what the connector is made of (Python, Rust, Spark's jars) as CycloneDX to dist/sbom.cdx.json
	@$(BIN)/python -m uv tool run --python $(BIN)/python --from 'cyclonedx-python-lib[json-validation]==$(CYCLONEDX)' python scripts/sbom dist/sbom.cdx.json

audit: install ## Ask for known vulnerabilities of the locked packages and crates; needs the network
	@scripts/audit

base-image: ## Make a base image from this machine's Debian packages, for where none can be pulled
	@scripts/base-image $(LOCAL_BASE)
	@echo "==> made $(LOCAL_BASE); build on it with: make image BASE_IMAGE=$(LOCAL_BASE)"

image: ## Build the Docker image
	@scripts/image $(IMAGE) $(BASE_IMAGE)

# Docker's client leaves its sockets to the garbage collector.
image-test: install ## Run the tests that need the image
	@$(BIN)/python -m pytest -W ignore::ResourceWarning -m image_tests --connector-image=$(IMAGE) integration_tests $(PYTEST_ARGS)
