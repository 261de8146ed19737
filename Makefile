# `make serve` on a machine with Python 3.11+ and make does all set-up, then serves. Needs no Node.
#
#   make install         set-up alone: .venv, Python packages, browser libraries, default weights
#   make serve           set-up, then http://127.0.0.1:8000 (another port: make serve PORT=9000)
#   make test            set-up, then all tests (some: make test ARGS="tests/render -k equations")
#   make check           format, lint, types, known weaknesses of what is installed
#   make bench           how fast it is, beside other libraries, which get an environment of their own (.venv-peers);
#                        make bench ARGS=--quick only shows that it works
#   make soak            50 readers for 5 minutes, then 20 kills: `make soak ARGS="--minutes 1 --kills 3"`
#   make clean           forget the set-up; weights and runs stay in the user's cache
#
# PYTHON    the interpreter that .venv is made with; by default the first that is new enough
# PIP_ARGS  options for pip. On Linux, plain pip brings a torch with CUDA, several GB. Where that is not wanted, name
#           the package index of PyTorch's CPU builds (PyTorch's "Get started" page says it):
#               make serve PIP_ARGS="--extra-index-url ADDRESS"
# ARGS      more options for `atlas serve`, pytest or the benchmarks
# CHROMIUM  the browser that the tests drive; by default /usr/bin/chromium

PORT ?= 8000
ARGS ?=
PIP_ARGS ?=
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
# Stamps: what they stand for is there, and newer than what it was made from. A second start finds nothing to do.
PACKAGES := .venv/packages
VENDOR := static/vendor/manifest.json
PEERS := .venv-peers/packages

.PHONY: install serve test check bench soak clean

serve: $(VENDOR)
	@exec $(BIN)/atlas serve --port $(PORT) $(ARGS)

install: $(VENDOR)
	@$(BIN)/atlas weights fetch

test: install
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(VENDOR)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(BIN)/python .ci/audit.py

bench: install $(PEERS)
	@$(BIN)/python -m benchmarks.bench_engine $(ARGS)

soak: install
	$(BIN)/python -m benchmarks.soak $(ARGS)

clean:
	rm -rf .venv .venv-peers static/vendor build dist

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found." \
		"Install it, or name it: make serve PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv || { rm -rf .venv; echo "$(PYTHON) could not make a virtual environment." \
		"On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }

# The package's own build fetches the browser libraries, so one pip command brings both.
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check $(PIP_ARGS)
FAILED := { echo "Set-up did not finish: the lines above say why. It needs the network once (Python packages and two" \
	"browser libraries) and some GB of disk; run make again and it goes on." >&2; exit 1; }

$(PACKAGES): pyproject.toml constraints.txt hatch_build.py package.json package-lock.json .npmrc | $(BIN)/python
	$(INSTALL) --constraint constraints.txt --editable '.[dev]' || $(FAILED)
	@touch $@

$(PEERS): benchmarks/peers.txt constraints.txt | $(BIN)/python
	@test -x .venv-peers/bin/python || $(BIN)/python -m venv .venv-peers || { rm -rf .venv-peers; exit 1; }
	.venv-peers/bin/python -m pip install --disable-pip-version-check $(PIP_ARGS) --constraint constraints.txt \
		--requirement benchmarks/peers.txt || $(FAILED)
	@touch $@

# As a rule of its own, so that a vendor folder that was deleted comes back.
$(VENDOR): $(PACKAGES)
	@test -f $@ || $(INSTALL) --no-deps --editable . || $(FAILED)
	@touch $@
