# Every duty of this project is one command here; CI calls `make check` and nothing else.
# PYTHON=python3.12 picks another interpreter, VENV another place for the environment.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# What is installed, by need. Each stamp stands for some of the optional dependencies of pyproject.toml.
READY  := $(VENV)/.demo
TESTS  := $(VENV)/.test
LINT   := $(VENV)/.lint
PLOT   := $(VENV)/.plot
ATHERIS := $(VENV)/.fuzz
ZIG    := $(VENV)/.portable
CUDA12 := build/clients/cuda12
PROGRAMS := build/clients/programs
HEADERS := build/headers
# Half the time of a test is waiting, for another process or for time to pass. A worker shares what all
# have imported, and adds 30 to 250 MB of its own. Two for a processor take a fifth longer.
WORKERS := $(shell echo $$(( $$(nproc) * 3 )))
C_FILES = $(shell find libvgpu benchmarks tests -name '*.[ch]')

# Where bytecode is not kept, every worker and every program of a test compiles all it imports again:
# half of their time. Images of Python often set this; empty is unset.
export PYTHONDONTWRITEBYTECODE :=
# What a user set for another Python would break this one.
unexport PYTHONHOME PYTHONPATH PYTHONWARNINGS

.DEFAULT_GOAL := help
.PHONY: help setup build demo quick coverage test hostile fuzz mutants tidy bench-check test-gpu e2e e2e-node claims node-parts model lint fmt fresh check check-long bench bench-gpu wheel image image-lock clean

help:  ## show the commands
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

setup: $(TESTS) $(LINT) $(CUDA12)/.ready $(HEADERS)/.ready  ## make .venv, install everything and build the native parts

# What a bare Debian or Ubuntu lacks is installed for root only, and only what is missing; anybody
# else is told the one command that does it. C compiles while packages are downloaded.
SET_UP = $(PYTHON) deploy/dev/set_up.py $(VENV)
# Not there, or of another Python: an upgrade of the system's puts one of another version in its place.
HERE := import os, site; os.stat(site.getsitepackages()[0])
STALE := $(shell $(BIN)/python -c '$(HERE)' 2>/dev/null || echo stale)
.PHONY: stale
$(READY): pyproject.toml $(STALE)
	@PYTHON="$(PYTHON)" sh deploy/dev/install-prerequisites.sh
	@$(SET_UP) agent demo
	@touch $@

$(TESTS): pyproject.toml | $(READY)
	@PYTHON="$(PYTHON)" sh deploy/dev/install-prerequisites.sh test
	@$(SET_UP) agent demo test
	@touch $@

$(LINT) $(PLOT) $(ZIG) $(ATHERIS): $(VENV)/.%: pyproject.toml | $(READY)
	@$(SET_UP) $*
	@touch $@

# More environments for the tests: one holds the bindings of one CUDA version only, and the compiler and
# the frameworks of the long form are 1.1 GB.
$(CUDA12)/.ready $(PROGRAMS)/.ready: build/clients/%/.ready: tests/clients/%.txt | $(READY)
	@$(SET_UP) --clients $(@D) $<
	@touch $@

# Headers of other CUDA versions side by side, since one environment holds one version of each wheel.
$(HEADERS)/.ready: tests/headers.txt | $(READY)
	@$(SET_UP) --headers $(HEADERS) $<
	@touch $@

build: $(READY)  ## rebuild the shim, the simulated driver and the cffi module if they changed
	@$(BIN)/python -m libvgpu._build

demo: build  ## run the main job on a simulated GPU: pods in, hard slices out
	@$(BIN)/python -m vgpuctl demo

PARALLEL := --workers $(WORKERS)

# T=deviceplugin/policy, or T=unit/libvgpu: the tests of one room. A run without any of its kind is none that failed.
T ?=
NONE = $(if $(T),5,0)
ROOM = $(if $(T),$(or $(wildcard tests/*/$(T) tests/$(T)),$(error T=$(T): there is no tests/*/$(T))))
PYTEST = $(BIN)/python -m pytest --durations=20 --durations-min=1
# What only the long check runs is left out, unless this is the long check.
NOT_LONG = $(if $(filter 1,$(VGPU_LONG)),, and not long)
CLIENTS := $(CUDA12)/.ready $(HEADERS)/.ready $(if $(filter 1,$(VGPU_LONG)),$(PROGRAMS)/.ready)

quick: build $(TESTS)  ## run the tests that start no process: a minute at most
	@$(PYTEST) $(PARALLEL) -m "not timing and not process$(NOT_LONG)" --junit-xml build/quick.xml tests/unit tests/model

# Always in the short form, with the same examples: the floors are those of that.
RAISE ?=
coverage: build $(TESTS)  ## run quick's tests, and say what they cover of each room; below its floor it fails (RAISE=1 lifts floors)
	@rm -rf build/coverage && mkdir -p build/coverage
	@VGPU_LONG= VGPU_RANDOM=0 $(BIN)/python -m coverage run -m pytest $(PARALLEL) -m "not timing and not process and not long" \
	    --junit-xml build/coverage/tests.xml tests/unit tests/model
	@$(BIN)/python -m coverage combine --quiet
	@PYTHONPATH=tests:. $(BIN)/python -m support.room_coverage $(if $(RAISE),--raise)

# Tests in their short form, 30 mutants of each room: half an hour of two cores.
MUTANTS ?=
mutants: build $(TESTS)  ## change a line at a time, and say what the tests of five rooms did not notice (MUTANTS="--only ledger --seed 2")
	@VGPU_LONG= PYTHONPATH=tests:. $(BIN)/python -m support.mutants $(MUTANTS)

test: build $(TESTS) $(CLIENTS)  ## run all tests (no GPU, no root and no network needed), or those of a room: T=deviceplugin/policy
	@$(PYTEST) $(PARALLEL) -m "not timing and not node and not network and not gpu and not hostile$(NOT_LONG)" --junit-xml build/tests.xml $(ROOM) \
	    || test $$? = $(NONE)

hostile: build $(TESTS) $(CLIENTS)  ## attack agent, arbiter and neighbours as a hostile tenant would (root)
	@$(PYTEST) --workers 3 -m "hostile$(NOT_LONG)" --junit-xml build/hostile.xml tests/hostile

# tests/fuzz/__main__.py has the other variables.
fuzz: build $(TESTS) $(ATHERIS)  ## look for inputs that break a parser of what others write (FUZZ_SECONDS=60 a target)
	@PYTHONPATH=tests:. $(BIN)/python -m fuzz

bench-check: build $(TESTS) $(CLIENTS)  ## run the tests that measure time, on a machine that does nothing else
	@$(PYTEST) $(PARALLEL) -m "timing and not gpu$(NOT_LONG)" --junit-xml build/timing.xml $(ROOM) || test $$? = $(NONE)

# One after the other: they look at what the whole GPU has given. GPU_TESTS picks some of them.
GPU_TESTS ?= gpu
test-gpu: build $(TESTS)  ## run the exercises of every hooked function on this machine's GPU
	@$(BIN)/python -m pytest -m "$(GPU_TESTS)" tests/gpu

# What tests with real parts of Kubernetes need besides Go: containerd, runc, etcd. Installed for root;
# where it is missing they say so and skip.
node-parts: $(TESTS)
	@PYTHON="$(PYTHON)" sh deploy/dev/install-prerequisites.sh node

# A step of its own, since these tests compare the whole machine before and after: nothing of ours may
# run next to them.
e2e-node: build $(TESTS) node-parts $(ZIG)  ## run the example pods on a real kubelet, containerd and runc (root, Go)
	@$(PYTEST) -m "node$(NOT_LONG)" --junit-xml build/node.xml tests/e2e

e2e: e2e-node  ## run the end-to-end tests: also the chart, judged by helm and the API server's admission (Go)
	@$(PYTEST) $(PARALLEL) -m "network$(NOT_LONG)" --junit-xml build/network.xml tests/e2e

# After these, since it reads their reports.
claims: $(TESTS)  ## say whether the tests that SECURITY.md names ran, after test, hostile and e2e
	@PYTHONPATH=tests:. $(BIN)/python -m support.named_tests $(patsubst %,build/%.xml,tests hostile node network)

model:  ## search every state of the ledger's model (some minutes, 2 GiB)
	@mkdir -p build
	@$(CC) -std=gnu11 -O2 tests/model/*.c -o build/ledger_model
	@build/ledger_model all

lint: build $(LINT) $(TESTS) $(PLOT)  ## check style, types and layering; C warnings are errors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/clang-format --dry-run --Werror $(C_FILES)  # their names would fill a screen
	$(BIN)/mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m libvgpu._build --werror
	@$(BIN)/towncrier build --draft --version next >build/changelog.md 2>&1 || { cat build/changelog.md; false; }

tidy: $(LINT)  ## have clang-tidy look for mistakes in the C code (some minutes)
	@PYTHONPATH=tests:. $(BIN)/python -m support.tidy

fmt: $(LINT)  ## format the Python and the C code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(C_FILES)
	$(BIN)/python -m libvgpu.json_rows $$(find benchmarks deploy docs -name '*.json')

fresh: build $(TESTS)  ## make every generated file from its source again (Go for the manifests)
	@PYTHONPATH=tests:. $(BIN)/python -m support.generated

check: lint node-parts test  ## what CI runs before a merge: lint, all tests in their short form, one version of Kubernetes
	@$(MAKE) --no-print-directory hostile
	@FUZZ_SHORT=1 $(MAKE) --no-print-directory fuzz
	@$(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory claims

# One step after the other, and all of them: the first that fails hides nothing of the rest.
LONG_STEPS = tidy test hostile fuzz coverage mutants bench-check e2e claims wheel image model
check-long: export VGPU_LONG = 1
check-long: export VGPU_KUBERNETES = all
check-long: lint $(ZIG) node-parts  ## run everything in its long form, what measures time too, on all versions of Kubernetes (hours)
	@failed=; \
	for step in $(LONG_STEPS); do $(MAKE) --no-print-directory $$step || failed="$$failed $$step"; done; \
	test -z "$$failed" || { echo "failed:$$failed" >&2; exit 1; }

bench: build $(TESTS)  ## measure what docs/benchmarks.md shows
	$(BIN)/python -m benchmarks run hooks allocate reload extender cli

# Not of `build`: a machine with a GPU may reach no package index, and its own Python and C compiler do.
bench-gpu:  ## measure on this machine's GPU what an H100 showed (nothing is downloaded)
	@mkdir -p build
	@python=$(BIN)/python; test -x "$$python" || python="$(PYTHON)"; \
	$$python -m benchmarks run silicon --json build/silicon.json --markdown build/silicon.md \
	    --earlier benchmarks/results/silicon-simulated-2026-11-27.json

wheel: $(ZIG)  ## build the wheel into dist/, for every glibc from 2.17 on
	VGPU_PORTABLE=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
	    --no-build-isolation --no-deps -w dist .

# IMAGE_OPTIONS are those of `python -m deploy.image build`: --name, --mirror, …
IMAGE_OPTIONS ?=
image: $(ZIG) $(TESTS)  ## build the container image into build/image, without a container engine
	@$(BIN)/python -m deploy.image build $(IMAGE_OPTIONS)

image-lock: $(TESTS)  ## find the newest packages for the image and lock them (needs Python 3.11)
	$(BIN)/python -m deploy.image lock

clean:  ## remove what was built, kept Go programs too (not .venv)
	rm -rf build dist *.egg-info libvgpu/*.so libvgpu/sim/lib
	find . -name __pycache__ -not -path "./$(VENV)/*" -prune -exec rm -rf {} +
