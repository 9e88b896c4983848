# The two commands are `make cluster` and `make test`; both set up what they need.
PYTHON ?= python3
TOX := .tools/tox/bin/tox
STOCKADE := .venv/bin/stockade

.PHONY: cluster demo test attacks simulate chaos endurance chaos-mutants spark-zip spark-kill bench pairs fuzz docs lint types format lock audit dist image release clean

# NODES nodes with their data in DATA: HTTP ports count up from PORT, Raft ports from PORT + 100. For a second cluster beside
# the first: make cluster PORT=7501 DATA=/tmp/other
PORT = 7101
NODES = 3
cluster: .venv/.ready
	@exec $(STOCKADE) cluster --nodes $(NODES) --port-base $(PORT) --data "$(or $(DATA),./data)"

# Writes the text files of the folder DATA.
demo: .venv/.ready
	@exec $(STOCKADE) demo --data "$(or $(DATA),examples/data)"

test: $(TOX)
	@$(TOX) run

# The attacks of the tests with as much as the promises of docs/deploying.md are about; needs 30,000 open files.
attacks: $(TOX)
	@ATTACK_SOCKETS=5000 ATTACK_FRAMES=100000 ATTACK_REQUESTS=100000 ATTACK_APPENDS=3000 $(TOX) run -qq -e attacks

# SEEDS schedules of simulated faults, beginning at seed FROM, on all cores. A failure is one line that replays it.
SEEDS ?= 10000
FROM ?= 0
simulate: $(TOX)
	@$(TOX) run -qq -e simulate -- --seeds $(SEEDS) --from $(FROM) --failures simulation-failures.txt

# All faults that this machine can have, and all workloads, for MINUTES; what it cannot have says what it needs. As root
# it has most. SEED is that of the first round.
MINUTES ?= 60
SEED ?= 1
chaos: .venv/.ready
	@exec $(STOCKADE) chaos soak --minutes $(MINUTES) --seed $(SEED) --results chaos-soak-$(SEED)

# One cluster for HOURS, with everything on; RESULTS/endurance.html shows what it uses over time, and whether that grows.
HOURS ?= 24
RESULTS ?= chaos-endurance
endurance: .venv/.ready
	@exec $(STOCKADE) chaos endurance --hours $(HOURS) --seed $(SEED) --results $(RESULTS)

# Every checker must catch the server that is broken in the way it is there for, and the test of upgrades a release that
# does not mind the older one. Minutes, not seconds.
chaos-mutants: $(TOX)
	@$(TOX) run -qq -e chaos -- tests/chaos/mutants.py tests/integration/upgrade_mutants.py

# The Spark data source as one file, for spark-submit --py-files where Stockade is not installed.
ZIP ?= stockade.zip
spark-zip: .venv/.ready
	@.venv/bin/python -m stockade.spark.package $(ZIP)

# Kills what writes from Spark at every step, loses an executor, speculates; counts duplicates and losses. About 10 minutes.
spark-kill: $(TOX)
	@$(TOX) run -qq -e spark-kill

# Stockade beside the peers that this machine has or can install, in ROUNDS turns; writes docs/benchmarks.md. An hour; a short run:
# make bench ROUNDS=1 SECONDS=2. PEERS=etcd,kafka (or none), ONLY=producer,requests and PARTITIONS=1,16 measure less;
# AGAIN=bench/results/<run>.json only writes the page of that run again.
bench: $(TOX)
	@$(TOX) run -q -e bench -- main.py $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(SECONDS),--seconds $(SECONDS)) \
	    $(if $(PEERS),--peers $(PEERS)) $(if $(ONLY),--only $(ONLY)) $(if $(PARTITIONS),--partitions $(PARTITIONS)) \
	    $(if $(AGAIN),--again $(AGAIN))

# Is this tree slower than the revision BASE? WORKLOAD=producer and PARTITIONS=16 measure that, in place of single requests to one.
pairs: $(TOX)
	@$(TOX) run -q -e bench -- pairs.py $(BASE) $(if $(WORKLOAD),--workload $(WORKLOAD)) \
	    $(if $(PARTITIONS),--partitions $(PARTITIONS))

# requirements/*.txt: what a container and CI install, with hashes. UPGRADE=1 takes the newest versions that are allowed.
lock: $(TOX)
	@$(TOX) run -qq -e lock -- $(if $(UPGRADE),--upgrade)

# SERVICE=osv asks OSV instead of the registry.
audit: $(TOX)
	@$(TOX) run -qq -e audit -- $(if $(SERVICE),-s $(SERVICE))

fuzz docs lint types format dist: $(TOX)
	@$(TOX) run -q -e $@

# The image of a node, with the wheel that `make dist` builds of this commit. ENGINE=podman, TAG=registry/stockade:1
ENGINE ?= docker
TAG ?= stockade:local
image:
	@$(ENGINE) build --build-arg COMMIT=$$(git rev-parse HEAD) --build-arg SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) \
	    --tag $(TAG) .

# What a tag releases: the tag is the version's, the changelog has it, nothing is left uncommitted; then `make dist`.
release: $(TOX)
	@$(TOX) run -q -e dist -- --release

# The environment that runs a cluster. tox makes it once; after that a start needs neither tox nor the network.
.venv/.ready: pyproject.toml tox.ini requirements/run.txt | $(TOX)
	@echo "Setting up .venv (once)"
	@$(TOX) run -qq --notest -e cluster
	@touch $@

$(TOX):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Stockade needs Python 3.11 or newer: make PYTHON=...")'
	@$(PYTHON) -m venv .tools/tox
	@.tools/tox/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tox.txt

# Leaves ./data, the clusters' own data, alone.
clean:
	@rm -rf .venv .tox .tools build dist site src/stockade.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +
