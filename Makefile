# The entry point. Every target sets up what it needs, and does not repeat what is done: `tools/setup` compares stamps,
# cargo compares sources. The scripts in tools/ do the work; this file only connects them.

# Interpreter for .venv. Empty: python3.11, else a newer python3.
PYTHON ?=
# Arguments of `mez demo`, `mez bench` and `make fuzz`: make demo ARGS="--seconds 30 --headless".
ARGS ?=
# Features of the build beyond the usual: make build FEATURES=x264 (needs libx264-dev, and puts the build under the GPL).
FEATURES ?=
# All features but x264, whose library tests do not need. `make prove` adds x264 if pkg-config finds the library.
FEATURES_TESTED := --features mez-cli/bench
FEATURES_FOUND := $(shell pkg-config --exists x264 2>/dev/null && echo --features x264)
# In CI, a build must not choose new versions.
LOCKED := $(if $(CI),--locked)

export PYTHON
export FEATURES
# rustup adds cargo to the PATH of new shells only.
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-faces build wheel test test-rust test-x264 test-model test-python setup-tests kafka prove demo demo-video profile bench docs lint fmt fuzz clean

help: ## list the targets
	@echo 'Mez: camera frames for vision applications, on time. First: make demo, make test.'
	@echo
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 16
	@echo
	@echo 'Arguments go through ARGS: make demo ARGS="--seconds 30 --cameras 3 --headless"'

setup: ## install what is missing: system packages, Rust, .venv
	@tools/setup

setup-tests:
	@tools/setup --tests

setup-faces:
	@tools/setup --faces

build: setup ## build everything; afterwards .venv/bin/mez is the command
	@tools/build $(LOCKED)

wheel: setup ## build a wheel into out/wheel, for pip install in your own environment
	@tools/wheel $(LOCKED)

# test-rust and test-python, but the module for the second is compiled during the first.
test: ## run all tests
	@FEATURES_TESTED="$(FEATURES_TESTED)" tools/test $(LOCKED)

test-rust: setup ## run the tests of the Rust crates, the model check of the log, the inputs of the fuzz targets
	cargo test --workspace $(FEATURES_TESTED) $(LOCKED)

# Not part of `make test`: needs libx264 and its header (apt-get install libx264-dev).
test-x264: setup ## run the tests of H.264 also with x264, for which libx264-dev has to be there
	cargo test -p mez-media --features x264 $(LOCKED)
	cargo test -p mez-node --features x264 --lib $(LOCKED) -- codec
	cargo test -p mez-node --features x264 --test chains $(LOCKED)
	cargo test -p mez-cli --features x264 --test commands $(LOCKED) -- remedy

# All interleavings with up to this many preemptions. 2 takes seconds and is part of `make test`, 3 takes half a minute, no limit hours.
test-model: export LOOM_MAX_PREEMPTIONS ?= 3
test-model: setup ## run the log's readers against its writer in more orders than make test
	cargo test -p mez-core --release --test ring_model $(LOCKED)

test-python: build setup-tests ## run the tests of the Python package
	.venv/bin/python tools/python_tests.py

# The random tests of `make test` with many more seeds.
prove: export MEZ_SEEDS ?= 10000
prove: export MEZ_POWER_CUTS ?= 5000
prove: export MEZ_KILLS ?= 50
prove: export MEZ_DAMAGES ?= 10
prove: export MEZ_ROUND_TRIPS ?= 10000
prove: setup ## run the random tests at length: 10,000 worlds and streams, 5,000 power cuts, 50 kills of each broker
	cargo test --release -p mez-media $(FEATURES_FOUND) --test stream $(LOCKED)
	cargo test --release -p mez-testbed --test seeds --test groups --test derived --test answers --test power_cuts --test damaged_logs --test verified_logs --test planted $(LOCKED) -- --nocapture
	cargo test -p mez-cli --features bench --test logs $(LOCKED) -- --nocapture

kafka: setup-tests ## run a real Kafka on loopback, to try pipelines on it: ARGS="--brokers 3"
	@.venv/bin/python tools/kafka.py run $(ARGS)

# The pipeline for faces uses a photograph, everything else the demo's video.
demo: build $(if $(findstring --pipeline,$(ARGS)),setup-faces) $(if $(or $(findstring --video,$(ARGS)),$(findstring --pipeline faces,$(ARGS)),$(findstring --pipeline=faces,$(ARGS))),,demo-video) ## run cameras, edge and a people detector on a real video
	.venv/bin/mez demo $(ARGS)

demo-video: ## fetch the video of the demo into .cache/video
	@tools/demo-video

# Rungs that searches of the families found (make profile ARGS="--families h264,tiles,jpeg" searches again), and finer and coarser rungs of
# video: the accuracy must be known for every quality that a byte budget may choose.
PROFILE_RUNGS := h264/w320/q40 h264/w384/q40 h264/w384/q46 h264/w512/q36 h264/w512/q40 h264/w512/q44 h264/w512/q48 \
	h264/w640/q30 h264/w640/q34 h264/w640/q38 h264/w640/q42 h264/w640/q46 \
	h264/q18 h264/q22 h264/q26 h264/q30 h264/q34 h264/q38 h264/q42 h264/q46 \
	tiles/w384/q20/gray tiles/w512/q30/gray jpeg/w384/q20/gray jpeg/w512/q30/gray
empty :=
comma := ,

# Writes the shipped profile. Run this after a change of the detector, or of the pixels that a rung makes.
profile: build demo-video ## profile the people detector on the video of the demo: about 4 minutes on two cores
	.venv/bin/mez profile run --app pedestrian-hog --video .cache/video/vtest.avi --cache .cache/profile \
		--families '' --rungs $(subst $(empty) $(empty),$(comma),$(strip $(PROFILE_RUNGS))) \
		--out python/mez/profiles/pedestrian-hog-vtest.json --report out/profile $(ARGS)

bench: build ## run the experiments
	.venv/bin/mez bench $(ARGS)

docs: setup ## write docs/python.md from the docstrings of the package
	.venv/bin/python tools/python_page.py

lint: setup ## check format, lints, types, licences and dependencies
	@tools/lint $(LOCKED)

fmt: setup ## format Rust, Python and the page
	cargo fmt --all
	if [ -d web/node_modules ]; then npm --prefix web run --silent fmt; fi
	.venv/bin/ruff check --fix-only --quiet .
	.venv/bin/ruff format .

fuzz: setup ## build the fuzz targets and run each for a while
	@tools/fuzz $(ARGS)

clean: ## remove all that was built; keeps downloads in .cache
	rm -rf target .venv out python/mez/*.so web/dist web/node_modules
	find . -name __pycache__ -prune -exec rm -rf {} + -o -name node_modules -prune
