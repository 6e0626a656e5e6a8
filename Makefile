.DEFAULT_GOAL := help
.PHONY: help demo test matrix ray chaos check lint types docs bench hot-path designs signals recordings screenshots format clean

# the newest that has venv; a pyenv shim may exist and not run, so each is tried
PYTHON ?= $(shell for python in python3.14 python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo $$python && break; done)

BIN := .venv/bin
READY := .venv/ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# hundreds of processes that the tests start would each compile the whole package
unexport PYTHONDONTWRITEBYTECODE

help: ## say what there is
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:.*## /\t/' | expand -t 10

demo: $(READY) ## run the main job on an embedded PostgreSQL
	$(BIN)/rxjobs demo

# most tests wait for something, so more of them run at once than there are cores; in the order of their names, since the files with
# the fewest tests are those that take longest
WORKERS ?= 5
# up to five tests that fail are tried once more, and their first failure is told at the end: a fault of the test or of rxjobs, to be mended
AGAIN := --reruns 1 --max-suite-reruns 5 --rerun-show-tracebacks

test: $(READY) ## run the whole suite; RXJOBS_TEST_DSN chooses another PostgreSQL
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(AGAIN)

matrix: $(READY) ## try the built package on every Python found here, and with the lowest versions: ten minutes, not in .ci/run
	$(BIN)/python -m tests.matrix

ray: $(READY) ## run the tests of jobs on Ray, which takes 300 MB to install and is not in `make test`
	$(BIN)/python -m pip install --quiet --editable '.[dev,ray]'
	$(BIN)/python -m pytest tests/executors/test_ray.py

MINUTES ?= 30

chaos: $(READY) ## break everything at length, then at random, MINUTES=30 of it; SEED=… does the same faults again
	$(BIN)/python -m pytest -m long -s tests/chaos
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

check: types docs lint ## lint, formatting, types, layers, docs; make -j2 check does two at once

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: $(READY)
	$(BIN)/mypy --strict rxjobs

docs: $(READY) ## build the site into build/site; a link that leads nowhere, or a name that is not there, fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs --quiet build --strict --site-dir build/site

hot-path: $(READY) ## measure where the microseconds of a job go
	$(BIN)/python -m tests.hot_path

designs: $(READY) ## measure the table designs that docs/design/storage.md compares
	$(BIN)/python -m tests.designs --rounds 3

bench: $(READY) ## measure this machine, in about a minute; BENCH="--full --rounds 3" measures all there is
	$(BIN)/rxjobs bench $(BENCH)

signals: $(READY) ## write the table of signals and the dashboards anew
	$(BIN)/python -m observability.signals
	$(BIN)/python -m grafana.dashboards

recordings: $(READY) ## record rxjobs top and rxjobs demo anew for docs/operating.md, on the server at RXJOBS_RECORDING_DSN
	$(BIN)/python -m docs.recordings

screenshots: $(READY) ## take the screenshots of docs/telemetry.md anew; says what it needs
	$(BIN)/python -m observability.screenshots

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove what make and the tools made
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "rxjobs needs Python 3.11 or newer with venv; install one or give: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "setting up .venv with $(PYTHON) (the first time takes a minute)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(READY)
