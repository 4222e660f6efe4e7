# All developer commands. Each target sets up what it needs, prints what it does, and is fast to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow test-all coverage faults fuzz soak check lock fix bench pictures docs engine web wheels clean help

help:
	@echo "make demo       train a Transformer on dates and use it (about three minutes, longer on a busy machine)"
	@echo "make test       run the quick tests (less than five minutes on two cores)"
	@echo "make test-slow  run the other tests: every variant, longer training, more processes"
	@echo "make test-all   run both"
	@echo "make coverage   run both, and count the lines of src/ that they run (about an hour)"
	@echo "make faults     kill training 200 times and try every state a crash can leave (half an hour)"
	@echo "make fuzz       open 100,000 damaged folders and send damaged requests (about half an hour)"
	@echo "make soak       put a server under hostile load for thirty minutes and check every answer"
	@echo "make check      lint, type-check, and ask the package index for known vulnerabilities"
	@echo "make lock       write requirements/*.txt from constraints.txt and pyproject.toml"
	@echo "make fix        format, and apply the automatic fixes of the linter"
	@echo "make bench      measure regard and the installed peers side by side"
	@echo "make pictures   train a small model per task on the CPU and draw the pictures of the docs (about ten minutes)"
	@echo "make docs       build the pages of regard learn in site/; a broken link is an error"
	@echo "make engine     compile the engine in C again, after its sources have changed"
	@echo "make web        compile it to WebAssembly, for the pages of regard export --to web"
	@echo "make wheels     build wheels for Linux on x86-64 and aarch64 in dist/, as far as compilers are installed"
	@echo "make clean      remove what the other targets created, except runs"

demo: $(VENV)/.core
	@$(BIN)/regard demo

# Tests start many processes, which would all compile the package if no bytecode were kept. They also wait for them, so that
# three workers keep two cores busy; four take as long.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n 3 --dist worksteal

test: $(VENV)/.dev engine
	@echo "Running the quick tests in three processes ..."
	@$(PYTEST) --quick

test-slow: $(VENV)/.dev engine
	@echo "Running the slow tests in three processes (about 18 minutes) ..."
	@$(PYTEST) --slow

test-all: test test-slow

coverage: $(VENV)/.dev engine
	@rm -rf build/coverage && mkdir -p build/coverage
	@OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/coverage run -m pytest -n 3 --dist worksteal; status=$$?; \
		$(BIN)/coverage combine --quiet && $(BIN)/coverage report --skip-covered; exit $$status

faults: $(VENV)/.dev
	@REGARD_KILLS=200 REGARD_CRASHES=all OMP_NUM_THREADS=1 $(BIN)/pytest -v -rP -n 2 tests/faults

fuzz: $(VENV)/.dev
	@$(BIN)/python -m tests.fuzz --cases 100000 --seed 1 --out fuzz.json

soak: $(VENV)/.dev
	@REGARD_SOAK=1800 $(BIN)/pytest -v tests/serve/test_load.py -k hostile

check: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy --num-workers auto
	@$(BIN)/python scripts/audit.py

lock:
	@$(PYTHON) scripts/lock.py

fix: $(VENV)/.dev
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	@$(BIN)/python benchmarks/train.py --attempts 3
	@$(BIN)/python benchmarks/decode.py --attempts 3

pictures: $(VENV)/.dev
	@echo "Training in runs/pictures what is not trained yet, and drawing docs/pictures (ten minutes at first) ..."
	@OMP_NUM_THREADS=2 $(BIN)/python scripts/pictures.py

docs: $(VENV)/.core engine
	@$(BIN)/python -W error::UserWarning -m regard learn --out site

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis

# All packages are locked with hashes; nothing else is fetched. A CPU build of PyTorch is installed if pip's find-links provide
# one. Otherwise it comes from the index; on Linux that build needs CUDA libraries, and only then does `pip check` fail.
# What every command imports is compiled to bytecode on all cores, which pip does on one; what tests import, when it is imported.
# Some files of packages are for later versions of Python and cannot be compiled.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile
LOCKED = $(INSTALL) --require-hashes --only-binary :all: -r requirements

$(VENV)/.core: pyproject.toml $(wildcard requirements/*.txt)
	@echo "Setting up $(VENV) (once; PyTorch is the large part) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "regard needs Python 3.11 or later: set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(LOCKED)/core.txt
	@$(LOCKED)/torch-cpu.txt --no-index 2> /dev/null || $(LOCKED)/torch.txt
	@$(BIN)/python -m pip check > /dev/null || $(LOCKED)/cuda.txt
	@$(INSTALL) --no-build-isolation -e .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

# The library of the engine follows its sources; installing the package has compiled it once.
engine: $(VENV)/.core
	@$(PYTHON) src/regard/engine/build.py

# The committed file is made by Debian 12's packages clang, lld, wasi-libc and libclang-rt-14-dev-wasm32, byte for byte.
web:
	@$(PYTHON) scripts/web.py

wheels: $(VENV)/.core
	@$(BIN)/python scripts/wheels.py dist

$(VENV)/.dev: $(VENV)/.core
	@echo "Installing what the tests need ..."
	@$(LOCKED)/dev.txt
	@touch $@
