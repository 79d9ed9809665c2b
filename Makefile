# Two commands do everything on a fresh machine:
#   make demo   sets up, then teaches and tests the whole embedded benchmark
#   make test   sets up, then checks style, types, room layers and behaviour
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check setup clean

demo: setup
	$(BIN)/masil run characters

test: check
	$(BIN)/pytest -q

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

setup:
	@$(PYTHON) scripts/setup.py

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
