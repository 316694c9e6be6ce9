# `make train` and `make test` first install everything into .venv. To change how:
# PYTHON=python3.12 TORCH=torch==2.12.0 TORCH_PIP_FLAGS="--index-url ..." (of torch alone)
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Options of `make train`: SEED=2 STEPS=5 DATA=/some/import MODEL=... PRESET=qwen3-0.6b SERVER=http://...
# RESUME=runs/...  PROCESSES=2 (training processes; default: one per CPU core for a small model).
# WARM_START=300 first fine-tunes MODEL on 300 demonstrations, and trains the result.
# Options of `make serve`: HOST=0.0.0.0 PORT=9000 DATA=/some/import
# a resumed run has had its warm start
WARM_UP := $(if $(RESUME),,$(if $(WARM_START),--rows $(WARM_START)))
SHARED_OPTIONS := $(if $(PRESET),--preset $(PRESET)) $(if $(SEED),--seed $(SEED)) $(if $(DATA),--data "$(DATA)") \
	$(if $(SERVER),--server "$(SERVER)")
CHOSEN_MODEL := $(if $(MODEL),--model "$(MODEL)")
TRAIN_OPTIONS := $(SHARED_OPTIONS) $(if $(STEPS),--steps $(STEPS)) \
	$(if $(WARM_UP),--model "$$(cd runs/latest && pwd -P)/model",$(CHOSEN_MODEL)) \
	$(if $(RESUME),--resume "$(RESUME)") $(if $(PROCESSES),--processes $(PROCESSES))
# tests at once: a process needs 1 GB
WORKERS ?= 3
HOST ?= 127.0.0.1
PORT ?= 8000

.PHONY: help install demo train improve figures notebook test test-all mutate bench serve lint clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(STAMP)  ## create .venv with the server, the trainer and the development tools

# torch is installed first, so that no other package chooses its build
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11) and \
		"SQLEnv needs Python 3.11 or newer: make PYTHON=python3.11")'
	@echo "installing torch and 160 packages into $(VENV) (2.3 GB with torch for the CPU): minutes"
	$(BIN)/pip install -q $(TORCH_PIP_FLAGS) $(TORCH)
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

demo: $(STAMP)  ## a short training: 8 steps, measured on 64 eval questions; results in runs/latest
	$(BIN)/python -m trainer train --seed 1 --steps 8 --eval-limit 64 --eval-every 4

train: $(STAMP)  ## train with GRPO and measure before and after; results in runs/latest
	$(if $(WARM_UP),$(BIN)/python -m trainer sft $(SHARED_OPTIONS) $(CHOSEN_MODEL) $(WARM_UP))
	$(BIN)/python -m trainer train $(TRAIN_OPTIONS)

improve: $(STAMP)  ## improve MODEL by expert iteration on DATA; LABELS=rewards, LABELS=agreement: without golds; in runs/improve
	$(BIN)/python -m trainer improve $(SHARED_OPTIONS) $(CHOSEN_MODEL) $(if $(LABELS),--labels $(LABELS))

figures: $(STAMP)  ## regenerate docs/learning_curve.png and the trained model that ships
	$(BIN)/python -m trainer train --seed 1 --out runs/seed1 --resume-or-new
	$(BIN)/python -m benchmarks.publish --run runs/seed1/latest
	cp runs/seed1/latest/learning_curve.png docs/learning_curve.png

notebook: $(STAMP)  ## run notebooks/train_grpo.ipynb and save its outputs
	$(BIN)/jupyter-execute --inplace --timeout=-1 notebooks/train_grpo.ipynb
	$(BIN)/python -m trainer.runtime.notebook notebooks/train_grpo.ipynb

test: $(STAMP)  ## run the tests, except the slow ones
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow"

test-all: $(STAMP)  ## run the slow tests, which `make test` skips
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m slow

mutate: $(STAMP)  ## mutate modules and list what no test notices: FILES=env_server/rewards.py
	nice $(BIN)/python -m tests.mutation $(FILES)

bench: $(STAMP)  ## compare a step's cost with OpenEnv and TRL; results in runs/peers.json
	$(BIN)/python -m benchmarks.peers --json runs/peers.json

serve: $(STAMP)  ## start an environment server on HOST:PORT
	$(BIN)/python -m env_server --host $(HOST) --port $(PORT) $(if $(DATA),--data "$(DATA)")

lint: $(STAMP)  ## run ruff and mypy
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

clean:  ## remove .venv and caches, but not runs/
	rm -rf $(VENV) benchmarks/peers/.environments build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
