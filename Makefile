# make repro   everything: environment, pipeline, headline, where the report is
# make test    the same environment, then style checks and tests
# make bench   speed of training and of writing against the textbook's loops, as ratios
# make lint    style checks alone; make format mends what can be mended

PYTHON ?= python3
BIN := $(CURDIR)/.venv/bin
INSTALLED := .venv/installed

# dvc runs the stages as `python -m …`: the environment's python must come first.
export PATH := $(BIN):$(PATH)
export PYTHONUTF8 := 1

.PHONY: repro test bench lint format

repro: $(INSTALLED)
	@# an unpacked archive is no git repository; dvc wants to be told
	@git rev-parse --is-inside-work-tree >/dev/null 2>&1 || $(BIN)/dvc config --local core.no_scm true
	$(BIN)/dvc repro
	@echo
	@sed -n 3p reports/report.md
	@echo "The report: reports/report.md, or reports/report.html as one file; to look into the model: reports/explorer.html"

test: lint
	$(BIN)/python -m pytest

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks.training
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.generation

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(0 if sys.version_info >= (3, 10) else "Python 3.10 or newer is needed, $(PYTHON) is " + v + "; try: make PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@# the command tinygpt; all that it needs is there already
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@
