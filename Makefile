# Everything a person does here. Each target sets up what it needs, says so, and is quick to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test faults check fix bench clean help

help:
	@echo "make demo    train a Transformer on dates and use it (about two minutes)"
	@echo "make test    run all tests"
	@echo "make faults  kill training 200 times and look what is lost (nothing; ten minutes)"
	@echo "make check   lint and type-check"
	@echo "make fix     format, and mend what a linter can mend"
	@echo "make bench   measure us beside the peers that are installed"
	@echo "make clean   remove what the other targets made, runs excepted"

demo: $(VENV)/.core
	@$(BIN)/regard demo

test: $(VENV)/.dev
	@echo "Running the tests on two processes ..."
	@OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

faults: $(VENV)/.dev
	@REGARD_KILLS=200 OMP_NUM_THREADS=1 $(BIN)/pytest -v -n 2 tests/faults

check: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy

fix: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@$(BIN)/python benchmarks/train.py --attempts 3
	@$(BIN)/python benchmarks/decode.py --attempts 3

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.core: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; PyTorch is the large part) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "regard needs Python 3.11 or later: set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Adding what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@
