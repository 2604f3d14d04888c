# Every target makes .venv and installs what it needs first; only Python >= 3.11 must be there.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/gonogo/*/native/*)
# Tests start many a Python: with this set, as containers have it, each compiles all of gonogo again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test hostile quick lint docs reference bench results report screenshots clean

demo: .venv/.installed
	$(BIN)/gonogo reproduce

test: .venv/.installed .venv/.browser
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not hostile"

# Files that attack the judge: most of the time is spent on those that hang.
hostile: .venv/.installed
	$(BIN)/python -m pytest -n auto --dist worksteal -m hostile tests/hostile

# Every stage, without what is marked slow.
quick: .venv/.installed .venv/.browser
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not hostile"

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: .venv/.installed report
	$(BIN)/mkdocs build --strict

# docs/reference, from docstrings, commands and the pytest plugin; a test says when it is due.
reference: .venv/.installed
	$(BIN)/python docs/_site/make_reference.py

bench: .venv/.installed
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/error_scale.py
	$(BIN)/python benchmarks/campaign.py
	$(BIN)/python benchmarks/evaluate.py
	$(BIN)/python benchmarks/object_store.py
	$(BIN)/python benchmarks/report.py
	$(BIN)/python benchmarks/verify.py
	$(BIN)/python benchmarks/false_alarms.py
	$(BIN)/python benchmarks/strangers.py
	$(BIN)/python benchmarks/isolation.py
	$(BIN)/python benchmarks/service.py
	$(BIN)/python benchmarks/engines.py

# All tables of the documents, from the committed records.
results: .venv/.installed
	$(BIN)/gonogo calibrate $(sort $(wildcard records/h200-*)) --replace -o src/gonogo/limits/shipped.lock
	$(BIN)/gonogo reproduce $(addprefix --records ,$(sort $(wildcard records/h200-*))) --out docs/results/h200
	$(BIN)/gonogo reproduce --records records --out docs/results/all

# The page of the committed records; make docs puts it into the site.
report: .venv/.installed
	$(BIN)/gonogo report records --atlas records/atlas/h200 --atlas records/atlas/cpu -o report.html

# What the documents show of it.
screenshots: .venv/.installed .venv/.browser report
	$(BIN)/python docs/_site/take_screenshots.py report.html docs/images

# Pages are tested in Debian's browser. Where it cannot be installed, these tests skip and say so; in CI they fail.
.venv/.browser: .venv/.installed
	command -v chromium > /dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } \
		|| echo "chromium is not there, and apt-get cannot install it: tests of pages skip"
	touch $@

# Re-installs when the metadata, the pins or the C sources change; Python sources are editable.
.venv/.installed: $(SOURCES)
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "gonogo needs Python 3.11 or later"'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[torch,test,lint,report,docs,serve,atlas,ray,s3]'
	touch $@

clean:
	rm -rf .venv build site src/*.egg-info src/gonogo/instrument/*.so
