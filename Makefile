# Two commands do everything on a fresh machine:
#   make demo   sets up, then teaches and tests the whole embedded benchmark
#   make test   sets up, then checks style, types, room layers and behaviour
# and one is for changes to numeric code:
#   make test-portable   runs its tests as other processors would compute them
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-portable check setup setup-demo clean

demo: setup-demo
	$(BIN)/masil run characters --out runs/demo

# A process a core and a thread a process: tests are small, and threads that wait for one another cost more than they bring.
test: check
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto --dist loadgroup

test-portable: setup
	$(BIN)/python scripts/portable.py

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/masil report results --check docs/results.md
	$(BIN)/python scripts/api_reference.py --check

setup:
	@$(PYTHON) scripts/setup.py dev

setup-demo:
	@$(PYTHON) scripts/setup.py demo

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
