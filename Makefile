# Every target works on a fresh machine with python3 and make; .venv is built on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCS := build/sphinx
STAMP := $(VENV)/.stamp-$(shell cksum pyproject.toml | cut -d' ' -f1)

.PHONY: venv wheel demo explore docs notebooks test test-all fuzz kill mutants test-two-hosts test-laws test-ways test-routings test-attention test-simgrid test-install test-container test-browser screenshots test-frameworks test-gpu test-opencl test-opencl-races test-nvshmem test-gpu-compile test-mpi lint figures ledger bench bench-peers clean

venv: $(STAMP)
	@$(BIN)/python -m umm_sim.build

$(STAMP): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --group dev --editable ".[mpi-wheels,perfetto,parquet,explore,bfloat16]"
	rm -f $(VENV)/.stamp-*
	touch $@

demo: venv  ## search MLP-1 on two machines, execute the winner, write build/demo.html
	@mkdir -p build
	$(BIN)/umm demo --html build/demo.html

explore: venv  ## open the page on which layouts are explored
	$(BIN)/umm explore

test: venv  ## every law, story and doctest, laws with fewer examples; on two cores
	$(BIN)/python -m tests

test-all: venv  ## the same with all examples of every law
	UMM_TESTS=all $(BIN)/python -m tests

test-mpi: venv  ## the part of the tests that starts several processes; wheels alone
	$(BIN)/python -m pytest -q -m "mpi and not two_hosts" tests

fuzz: venv  ## 100,000 cases of random input: each is refused in a line, or taken just as it says; half an hour
	PYTHONPATH=tests:tests/helpers:tests/campaigns nice $(BIN)/python -m fuzz --cases 100000

test-two-hosts: venv  ## run, compare and sweep across two hosts, one killed or frozen; network namespaces: Linux and root
	$(BIN)/python -m pytest -q -m two_hosts tests/hw/test_two_hosts.py

kill: venv  ## 1,000 kills of sweeps, runs, starts, saves, long commands and the page at random moments; nothing may be lost or left; half an hour
	PYTHONPATH=tests:tests/helpers $(BIN)/python -m tests.campaigns.kills

mutants: venv  ## 200 changes of one line each: which do the tests of its room not notice; hours, goes on where it ended
	nice $(BIN)/python -m tests.campaigns.mutants

test-routings: venv  ## 2,000 mixtures of experts of random routings, forward and backward, in NumPy; 200 more on MPI
	UMM_POISON=1 PYTHONPATH=tests:tests/helpers $(BIN)/python -m tests.campaigns.routings
	UMM_POISON=1 PYTHONPATH=tests:tests/helpers $(BIN)/python -m tests.campaigns.routings --mpi --first 2000 --cases 200

test-attention: venv  ## 1,000 random fused attentions, gradients and caches included, in NumPy, and 100 on MPI: exact, race-free
	UMM_POISON=1 PYTHONPATH=tests:tests/helpers $(BIN)/python -m tests.campaigns.attention
	UMM_POISON=1 PYTHONPATH=tests:tests/helpers $(BIN)/python -m tests.campaigns.attention --mpi --seed 1 --cases 100

test-ways: venv  ## 2,000 random chains by every way that operands come and sums go, 100 of them on processes: lawful, race-free, right
	UMM_POISON=1 PYTHONPATH=tests:tests/helpers $(BIN)/python -m tests.campaigns.ways

test-laws: venv  ## laws over whole answers of 300 random questions, and bounds of random points; or CASES=1000 SEED=7
	PYTHONPATH=tests:tests/helpers nice $(BIN)/python -m tests.campaigns.laws --cases $(or $(CASES),300) --seed $(or $(SEED),0)

test-simgrid: venv  ## makespans against SimGrid's; installs it where it is missing (apt-get, root or sudo)
	sh tests/campaigns/simgrid/install.sh || { echo "SimGrid is missing and cannot be installed here: it takes Debian's python3-simgrid, apt-get, and root or sudo"; exit 1; }
	$(BIN)/python -m tests.campaigns.simgrid

test-gpu: venv  ## the executors' conformance suite on the GPUs of this host, a process for all ranks
	$(BIN)/python -m pip install --quiet --editable ".[cuda]"
	UMM_TEST_GPU=1 $(BIN)/python -m pytest -q tests/conformance/test_cuda_executor.py tests/conformance/test_cuda_transport.py tests/conformance/test_algorithms.py::TestRealDevices tests/hw/test_cupy_device.py

test-opencl: venv  ## the executors' conformance suites by OpenCL, on PoCL's CPU: wheels alone
	$(BIN)/python -m pip install --quiet --editable ".[mpi-wheels,opencl]"
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/conformance/test_opencl.py

test-opencl-races: venv  ## its kernels under oclgrind (apt-get install oclgrind): no data race, and a planted one is found
	$(BIN)/python -m pip install --quiet --editable ".[mpi-wheels,opencl]"
	$(BIN)/python -m tests.campaigns.oclgrind

test-nvshmem: venv  ## the same with a process per rank, joined by NVSHMEM
	$(BIN)/python -m pip install --quiet --editable ".[mpi-wheels,nvshmem]"
	UMM_TEST_GPU=nvshmem $(BIN)/python -m pytest -q tests/conformance/test_nvshmem_executor.py

test-gpu-compile: venv  ## the kernels' machine code, and every call of CuPy and NVSHMEM4Py; needs no GPU
	$(BIN)/python -m pip install --quiet --editable ".[mpi-wheels,cuda,nvshmem]"
	$(BIN)/python -m pytest -q tests/hw/test_accumulate_kernels.py tests/hw/test_cupy_device.py tests/hw/test_nvshmem4py.py

figures: venv  ## figures, tables and ledger of the documents at full size, and other images; ONLY=universal for figures 2 and 3
	sh tests/campaigns/browser/install.sh || echo "Chromium, which makes the images, is missing and cannot be installed here: data alone are written"
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m experiments $(or $(ONLY),--all)
	$(BIN)/python -m experiments.cpu.figure
	$(BIN)/python -m tests.docs.pictures

ledger: venv  ## whether the ledger, figures and data of the documents are what the code gives; a sample of points
	$(BIN)/python -m experiments --all --size smoke

lint: venv  ## format, lint, types, import layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

wheel:  ## a wheel in dist/, for every Python from 3.11 on; takes a C compiler
	$(PYTHON) -m pip wheel --quiet --no-deps -w dist .

test-install: venv  ## the wheel as a user installs it: a fresh environment, another folder, pip check, the demo
	UMM_TESTS=all $(BIN)/python -m pytest -q tests/test_wheel.py
	rm -rf build/install && $(PYTHON) -m venv build/install
	build/install/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/install/bin/python -m pip wheel --quiet --no-deps -w build/install/dist .
	build/install/bin/python -m pip install --quiet build/install/dist/umm_sim-*.whl
	build/install/bin/python -m pip check
	cd build/install && bin/umm doctor && bin/umm demo

test-container: wheel  ## the wheel on Debian's Python 3.11, 3.13 and 3.14, no compiler there; root, debootstrap, 1 GB a system
	sh tests/campaigns/container.sh dist/umm_sim-*.whl $(or $(SUITES),bookworm trixie sid)

bench: venv  ## ratios against peers and floors measured in the same run
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m tests.benchmarks

build/peers/bin/python:
	$(PYTHON) -m venv build/peers
	build/peers/bin/pip install --quiet "torch==2.13.0" "jax>=0.10,<0.11" "dask[array]>=2026.1"

# umm and its tests beside torch and JAX; a stamp for each pyproject.toml.
build/peers/.umm: build/peers/bin/python pyproject.toml
	build/peers/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/peers/bin/python -m pip install --quiet --group test --editable ".[mcp]" threadpoolctl "transformers>=5,<6"
	touch $@

# The packages whose argument parsers read what --emit prints, without their dependencies. An sdist of vLLM has its
# metadata made by setup.py, which needs torch, and a version without a suffix for the device.
build/peers/parsers/.stamp: build/peers/.umm
	mkdir -p build/peers/parsers
	build/peers/bin/python -m pip install --quiet --no-deps --upgrade --target build/peers/parsers "sglang==0.5.23" "msgspec>=0.20" || \
		echo "SKIPPED: SGLang cannot be downloaded here; its parser did NOT read what --emit prints"
	build/peers/bin/python -m pip install --quiet --upgrade --target build/peers/parsers/build setuptools setuptools-scm setuptools-rust packaging jinja2 wheel && \
		PYTHONPATH=$(CURDIR)/build/peers/parsers/build VLLM_TARGET_DEVICE=empty VLLM_VERSION_OVERRIDE=0.33.0 build/peers/bin/python -m pip download --quiet \
		--no-deps --no-binary vllm --no-build-isolation --dest build/peers/parsers "vllm==0.33.0" && \
		tar xzf build/peers/parsers/vllm-0.33.0.tar.gz -C build/peers/parsers --strip-components=1 vllm-0.33.0/vllm || \
		echo "SKIPPED: vLLM cannot be downloaded here; its parser did NOT read what --emit prints"
	build/peers/bin/python -m pip install --quiet --no-deps --upgrade --target build/peers/parsers "torchtitan==0.2.2" tyro docstring-parser typeguard || \
		echo "SKIPPED: torchtitan cannot be downloaded here; its parser did NOT read what --emit prints"
	build/peers/bin/python -m pip install --quiet --no-deps --upgrade --target build/peers/parsers --only-binary :all: --python-version 3.12 "megatron-core==0.19.2" || \
		echo "SKIPPED: Megatron-LM cannot be downloaded here; its parser did NOT read what --emit prints"
	touch $@

test-browser: venv  ## the page in headless Chromium: by mouse and keyboard; installs Chromium where it can
	sh tests/campaigns/browser/install.sh || { echo "Chromium is missing and cannot be installed here: it takes apt-get, and root or sudo"; exit 1; }
	$(BIN)/python -m pip install --quiet --group browser
	$(BIN)/python -m pytest -q -s tests/campaigns/browser

screenshots: venv  ## the page's pictures in docs/images/explorer, anew
	sh tests/campaigns/browser/install.sh
	$(BIN)/python -m pip install --quiet --group browser
	UMM_SCREENSHOTS=write $(BIN)/python -m pytest -q tests/campaigns/browser/test_screens.py

docs: $(DOCS)/.stamp  ## the site in build/docs: its figures drawn, its samples run, its links checked; opens offline
	UMM_DOCS=1 $(BIN)/python -m pytest -q tests/docs/test_samples.py
	$(DOCS)/bin/python -m sphinx -q -E -W --keep-going -c docs . build/docs
	UMM_DOCS=1 $(BIN)/python -m pytest -q tests/docs/test_site.py

notebooks: $(DOCS)/.stamp  ## the notebooks, executed from beginning to end
	$(DOCS)/bin/jupyter execute docs/notebooks/*.ipynb

# Sphinx beside umm, in an environment of its own.
$(DOCS)/.stamp: venv pyproject.toml
	test -x $(DOCS)/bin/python || $(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(DOCS)/bin/python -m pip install --quiet --group docs --editable ".[mpi-wheels]"
	touch $@

test-frameworks: build/peers/.umm build/peers/parsers/.stamp  ## layouts, emitted programs and flags, modules, DTensor's choices and umm mcp against the real torch, JAX, parsers and SDK, on CPUs
	OMP_NUM_THREADS=1 build/peers/bin/python -m pytest -q -W default tests/frameworks

bench-peers: venv build/peers/bin/python  ## two ranks against DTensor, JAX and dask on the same problems
	$(BIN)/python -m experiments.cpu.peers $(CURDIR)/build/peers/bin/python

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -f $(shell find umm umm_sim -name "*.abi3.so")
