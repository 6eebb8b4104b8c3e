# Every target sets itself up. The set-up is skipped while pyproject.toml is older than its stamp.
PYTHON ?= python3
VENV   := .venv
PEERS  := .venv-peers
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.ready
export OMP_NUM_THREADS ?= 1

.PHONY: setup protos demo browser js pictures test quick check bench learn chaos mutants clean peers peers-train peers-gateway peers-replay peers-offpolicy

setup: $(STAMP)

$(STAMP): pyproject.toml
	@echo "Setting up $(VENV); this takes about three minutes, once."
	$(PYTHON) -m venv $(VENV)
	@echo "1 of 2: torch, the largest part"
	$(BIN)/pip install --disable-pip-version-check torch==2.13.0
	@echo "2 of 2: Ludus and what its demo and tests use"
	$(BIN)/pip install --disable-pip-version-check -e '.[dev]'
	touch $@
	@echo "$(VENV) is ready."

# Messages and stubs of all .proto files. They are in the repository, and a test fails when they are stale.
protos: setup
	$(BIN)/python -m ludus.grpc.generate src examples

demo: setup
	$(BIN)/ludus demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The page is tested in a real browser. Where there is none, and nobody may install one, those tests are skipped.
browser:
	@command -v chromium >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	    echo "Installing Chromium for the tests of the page"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      chromium fonts-dejavu-core; } >/dev/null || echo "Chromium could not be installed; its tests are skipped"; \
	  else echo "There is no Chromium: the browser tests of the page are skipped. Install it: apt-get install chromium"; fi; }

# The client of clients/js-grpc is tested with the libraries of npm. Where these cannot be had, that test is skipped.
js:
	@command -v npm >/dev/null 2>&1 && $(MAKE) -s .js-grpc/.ready || echo "There is no npm: the JavaScript client of gRPC is not tested"

.js-grpc/.ready: clients/js-grpc/package.json
	mkdir -p $(@D) && cp $< $(@D)
	cd $(@D) && npm install --silent --no-audit --no-fund --ignore-scripts >/dev/null || echo "npm cannot install what the JavaScript client of gRPC needs"
	touch $@

# What docs/page.md shows.
pictures: setup browser
	LUDUS_PICTURES=docs $(BIN)/pytest -q -n 0 tests/page/test_browser.py

test: check browser js
	$(BIN)/pytest -q -n 4 --dist worksteal --durations=15 --cov --cov-report=
	@echo "branch coverage of src, without what tests start as processes: $$($(BIN)/coverage report --format=total) %"

# What a person runs while working: under a minute on two cores. Other folders: make quick QUICK=tests/gateway
QUICK ?= tests/data tests/learn tests/services tests/rpc tests/workers tests/telemetry tests/program \
  tests/test_project_rules.py tests/test_glossary.py tests/test_files.py
quick: setup
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/pytest -q -n 2 --dist worksteal $(QUICK)

chaos: setup
	$(BIN)/python benchmarks/chaos.py
	$(BIN)/python benchmarks/sessions.py
	$(BIN)/python benchmarks/soak.py
	$(BIN)/python benchmarks/fuzz_http.py
	$(BIN)/python benchmarks/nemesis.py --faults 300
	$(BIN)/python benchmarks/league_chaos.py --faults 40

mutants: setup
	$(BIN)/python benchmarks/mutants.py --jobs 2

peers: $(PEERS)/.ready

$(PEERS)/.ready: benchmarks/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install -q --disable-pip-version-check -r benchmarks/peers.txt
	touch $@

# Those of training want versions that exclude each other. torch first: anything looser pulls in gigabytes of CUDA.
peers-train: $(PEERS)-sb3/.ready $(PEERS)-sf/.ready $(PEERS)-rllib/.ready

peers-gateway: $(PEERS)-gateway/.ready

peers-replay: $(PEERS)-reverb/.ready $(PEERS)-replay/.ready

peers-offpolicy: $(PEERS)-sbx/.ready

# Its own recipe, because Reverb runs beside TensorFlow and NumPy 1, and has no use for torch.
$(PEERS)-reverb/.ready: benchmarks/peers/reverb.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

$(PEERS)-%/.ready: benchmarks/peers/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install -q --disable-pip-version-check torch==2.13.0
	$(@D)/bin/pip install -q --disable-pip-version-check -r $<
	touch $@

bench: setup peers peers-train peers-gateway peers-replay peers-offpolicy
	$(BIN)/python benchmarks/rpc.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/gateway.py
	$(BIN)/python benchmarks/replay.py
	$(BIN)/python benchmarks/offpolicy.py
	$(BIN)/python benchmarks/league.py
	$(BIN)/python benchmarks/pool.py

# What leagues reach first: both cores are theirs for the fifteen minutes of Connect Four.
learn: setup
	$(BIN)/python benchmarks/board_games.py
	$(BIN)/python benchmarks/equilibria.py --plot docs --report
	$(BIN)/python benchmarks/learn.py --jobs 2

clean:
	rm -rf $(VENV) .js-grpc $(PEERS) $(PEERS)-sb3 $(PEERS)-sf $(PEERS)-rllib $(PEERS)-gateway $(PEERS)-reverb $(PEERS)-replay $(PEERS)-sbx .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .import_linter_cache build dist
