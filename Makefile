# Everything runs in .venv. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
IMAGE ?= airbyte/destination-s3-spark:dev
COMPILE := $(BIN)/python -m uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url --no-annotate --universal --python-version 3.11
export PYTHON

.DEFAULT_GOAL := help
.PHONY: help install demo test check spec lock image test-image

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

install: $(STAMP) ## Make .venv with the locked packages (skipped when up to date)

$(STAMP): requirements-dev.lock pyproject.toml scripts/install scripts/system-packages
	@scripts/install
	@touch $@

demo: install ## Run a sync of an invented shop into a local S3 server and read the tables back
	@$(BIN)/destination-s3-spark demo

test: install ## Run all tests but those of the image
	@echo "==> running the tests"
	@$(BIN)/python -m pytest -m "not image_tests" $(PYTEST_ARGS)

check: install ## Lint, formatting, types
	@echo "==> ruff check"
	@$(BIN)/ruff check .
	@echo "==> ruff format --check"
	@$(BIN)/ruff format --check .
	@echo "==> mypy --strict"
	@$(BIN)/mypy --strict

spec: install ## Write spec.json anew from the configuration models
	@$(BIN)/python -m destination_s3_spark.specification
	@echo "==> wrote destination_s3_spark/spec.json"

lock: install ## Write both lock files anew from pyproject.toml
	@echo "==> resolving requirements.lock and requirements-dev.lock"
	@$(COMPILE) --output-file requirements.lock pyproject.toml
	@$(COMPILE) --extra dev --output-file requirements-dev.lock pyproject.toml

image: ## Build the Docker image
	docker build --tag $(IMAGE) .

test-image: install image ## Run Airbyte's standard tests against the image
	@$(BIN)/python -m pytest -m image_tests --connector-image=$(IMAGE) integration_tests
