# Everything runs in .venv, which `setup` makes; every other target needs it and gets it for nothing when it is fresh.
VENV := .venv
BIN := $(VENV)/bin
KILLS ?= 50

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format torture bench-engine bench-windows bench-adaptive lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  %-16s%s\n' "$$name" "$$text"; done

setup: $(VENV)/.java ## make .venv, install the pinned dependencies, find (or install) Java 17+

# Stamps, not the folder: a folder's date says nothing about what is in it.
$(VENV)/.installed: requirements.lock pyproject.toml scripts/setup.sh
	@bash scripts/setup.sh

$(VENV)/.java: $(VENV)/.installed scripts/ensure_java.py
	@$(BIN)/python scripts/ensure_java.py && touch $@

demo: setup ## run the demonstration
	@$(BIN)/penstock demo

test: setup ## run all tests and doctests (ARGS="-k name" to choose)
	@bash scripts/test.sh $(ARGS)

# Every check runs even after one failed: one round shows all there is to mend.
check: setup ## check format, lint, types and the layer rule
	@failed=0; for step in "ruff format --check --output-format=concise ." "ruff check --output-format=concise ." "mypy" "lint-imports --no-logo"; do \
		echo "check: $$step"; $(BIN)/$$step || failed=1; done; exit $$failed

format: setup ## format the code and mend what ruff can mend safely
	@$(BIN)/ruff check --fix-only --quiet . ; $(BIN)/ruff format .

torture: setup ## kill a running job again and again (KILLS=50) and check that no result is lost or doubled
	@$(BIN)/penstock torture --kills $(KILLS)

bench-engine: setup ## measure the engine; figures go to out/bench-engine.json
	@mkdir -p out
	@$(BIN)/penstock bench engine --json out/bench-engine.json

bench-windows: setup ## measure windows against their peers; figures go to out/bench-windows.json
	@mkdir -p out
	@$(BIN)/penstock bench windows --json out/bench-windows.json

bench-adaptive: setup ## hold a latency live while the load changes; figures go to out/bench-adaptive.json
	@mkdir -p out
	@$(BIN)/penstock bench adaptive --json out/bench-adaptive.json

lock: setup ## resolve requirements.lock anew (UPGRADE=1 takes the newest allowed versions)
	@bash scripts/lock.sh $(if $(UPGRADE),--upgrade)

clean: ## remove caches, build products and out/ (keeps .venv)
	@rm -rf out build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache spark-warehouse metastore_db derby.log
	@find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +
