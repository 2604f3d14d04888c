# Every target makes .venv and installs what it needs first; only Python >= 3.11 must be there.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/gonogo/instrument/native/*)

.PHONY: demo test lint docs bench results clean

demo: .venv/.installed
	$(BIN)/gonogo reproduce

test: .venv/.installed
	$(BIN)/python -m pytest -n auto

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# MkDocs 2 knows no plugins; the pins stay below it, and need not say so at every build.
docs: .venv/.installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/.installed
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/error_scale.py
	$(BIN)/python benchmarks/campaign.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/verify.py
	$(BIN)/python benchmarks/false_alarms.py
	$(BIN)/python benchmarks/strangers.py

# All tables of the documents, from the committed records.
results: .venv/.installed
	$(BIN)/gonogo calibrate $(sort $(wildcard records/h200-*)) -o src/gonogo/limits/shipped.lock
	$(BIN)/gonogo reproduce $(addprefix --records ,$(sort $(wildcard records/h200-*))) --out docs/results/h200
	$(BIN)/gonogo reproduce --records records --out docs/results/all

# Re-installs when the metadata, the pins or the C sources change; Python sources are editable.
.venv/.installed: $(SOURCES)
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "gonogo needs Python 3.11 or later"'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,test,lint,report,docs]'
	touch $@

clean:
	rm -rf .venv build site src/*.egg-info src/gonogo/instrument/*.so
