# make demo | test | bench | lint | sanitize | clean. The first call makes .venv, installs the pinned dependencies and
# builds; later calls do only what a change asks for. PYTHON= chooses the interpreter, CXX= the compiler.
PYTHON ?= python3
export PYTHON

BIN := .venv/bin
# One stamp an interpreter: another PYTHON= makes the environment anew.
DEPENDENCIES := .venv/.dependencies-$(subst /,_,$(PYTHON))
CHECKING := .venv/.checking-$(subst /,_,$(PYTHON))
BUILT := .venv/.built
NATIVE := $(wildcard src/lowtide/kernels/*.cpp src/lowtide/kernels/*.hpp)

.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: build demo test pytest bench lint sanitize clean

build: $(BUILT)

$(DEPENDENCIES): pyproject.toml constraints.txt tools/environment.sh tools/requirements.py
	@tools/preflight.sh
	@echo "Making .venv and installing the pinned dependencies (the first time, minutes: torch is large)"
	@tools/environment.sh torch dev
	@rm -f .venv/.dependencies* .venv/.checking*
	@touch $@

# Beside these what only tests, checks and benchmarks want: a demo does without.
$(CHECKING): $(DEPENDENCIES)
	@echo "Installing what tests and benchmarks need"
	@tools/environment.sh torch dev test
	@touch $@

# PATH, so that the pinned cmake and ninja are taken.
$(BUILT): $(DEPENDENCIES) pyproject.toml CMakeLists.txt $(NATIVE)
	@echo "Building lowtide"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --no-deps --editable .
	@touch $@

demo: build
	@$(BIN)/python examples/character_lstm.py

test: lint pytest sanitize

pytest: build $(CHECKING)
	$(BIN)/python -m pytest -q --durations=10

bench: build $(CHECKING)
	$(BIN)/python -m benchmarks.layers
	$(BIN)/python -m benchmarks.stream
	$(BIN)/python -m benchmarks.data

lint: build $(CHECKING)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

sanitize: build $(CHECKING)
	tools/sanitize.sh

clean:
	rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} +
