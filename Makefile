# Every target sets up what it needs by itself and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done
PLOT := $(VENV)/.plot-done
SITE := $(VENV)/.site-done
PEERS := .peers
APACHE := $(PEERS)/apache/.fetched
NEWEST := 5.5.0
NEWEST_APACHE := $(PEERS)/apache-$(NEWEST)/.fetched
OLD_JAVA := $(PEERS)/java-4.9.8/.fetched
GO := $(PEERS)/go/driver
NODE := $(PEERS)/node/.fetched
CPP := $(PEERS)/cpp/.fetched
KAFKA := $(PEERS)/kafka/.fetched
OLDER_SPARKS := $(PEERS)/spark-4.0/.fetched $(PEERS)/spark-4.1/.fetched

# What also runs with the newest Apache release: its Java client and mqadmin on our servers, our client on its broker.
NEWEST_TESTS := $(addprefix tests/compat/,broker/test_java.py admin/test_mqadmin.py admin/test_commands.py \
	client/test_on_apache.py client/test_consumers_on_apache.py client/test_pop_on_apache.py)

# Most tests wait for something most of the time, so several files run at once.
WORKERS := --numprocesses 2 --dist loadfile

.PHONY: help setup quickstart test compat bench fuzz check docs format clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

setup: $(SETUP) ## create .venv with everything development needs

$(SETUP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "CometMQ needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing cometmq and its development tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev,server,spark]'
	@touch $@

$(PLOT): $(SETUP)
	@echo "installing what the plot of results needs into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

$(SITE): $(SETUP)
	@echo "installing the generator of the documentation site into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $@

quickstart: $(SETUP) ## start the system, use it end to end, show the result
	@$(BIN)/python examples/quickstart.py

test: $(SETUP) ## all tests that need no foreign peer
	$(BIN)/python -m pytest tests --ignore=tests/compat $(WORKERS)

compat: $(SETUP) $(APACHE) $(NEWEST_APACHE) $(OLD_JAVA) $(GO) $(NODE) $(CPP) $(OLDER_SPARKS) ## tests against other people's clients and servers
	$(BIN)/python -m pytest tests/compat $(WORKERS) --no-loadscope-reorder
	COMPAT_RELEASE=$(NEWEST) $(BIN)/python -m pytest $(NEWEST_TESTS) $(WORKERS) --no-loadscope-reorder

bench: $(PLOT) $(APACHE) $(CPP) $(KAFKA) ## measure beside Apache RocketMQ and Kafka; writes bench/RESULTS.md and a plot
	$(BIN)/python -m bench $(ARGS)

fuzz: $(SETUP) ## a million odd requests (a sample of them runs in `make test`)
	FUZZ_FRAMES=1000000 $(BIN)/python -m pytest tests/fuzz --timeout=3600 -rP

check: $(SETUP) ## format, lint, types and the import rule
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(SITE) ## build the documentation site in build/site
	$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --quiet -d build/doctrees docs build/site
	@echo "open build/site/index.html"

format: $(SETUP) ## format the sources
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

$(APACHE): tests/compat/peers/apache.xml
	@command -v mvn >/dev/null && command -v java >/dev/null \
		|| { echo "the peers need a JDK 17 or newer and Maven on the PATH"; exit 1; }
	@echo "fetching Apache RocketMQ's jars into $(PEERS)/apache (once, about 90 MB)"
	@mvn --quiet --batch-mode --file tests/compat/peers/apache.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$(PEERS)/apache/lib
	@touch $@

$(NEWEST_APACHE): tests/compat/peers/apache.xml $(APACHE)
	@echo "fetching the jars of Apache RocketMQ $(NEWEST) into $(@D) (once, about 110 MB)"
	@mvn --quiet --batch-mode --file $< -Drocketmq.version=$(NEWEST) dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$(@D)/lib
	@touch $@

$(OLD_JAVA): tests/compat/peers/java-4.9.8/pom.xml
	@command -v mvn >/dev/null && command -v java >/dev/null \
		|| { echo "the peers need a JDK 17 or newer and Maven on the PATH"; exit 1; }
	@echo "fetching the older Java client's jars into $(PEERS)/java-4.9.8 (once, about 20 MB)"
	@mvn --quiet --batch-mode --file $< dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$(PEERS)/java-4.9.8/lib
	@touch $@

$(GO): $(wildcard tests/compat/peers/go/*)
	@command -v go >/dev/null || { echo "the peers need Go 1.21 or newer on the PATH"; exit 1; }
	@echo "building the Go client's driver in $(PEERS)/go"
	@mkdir -p $(PEERS)/go && cp $^ $(PEERS)/go
	@cd $(PEERS)/go && go build -buildvcs=false -mod=mod -o driver .

$(NODE): tests/compat/peers/node/package.json
	@command -v npm >/dev/null || { echo "the peers need Node 18 or newer with npm on the PATH"; exit 1; }
	@echo "fetching the Node client into $(PEERS)/node"
	@mkdir -p $(PEERS)/node && cp $< $(PEERS)/node
	@npm install --prefix $(PEERS)/node --no-package-lock --no-audit --no-fund --silent
	@touch $@

$(CPP): tests/compat/peers/cpp/requirements.txt $(SETUP)
	@echo "fetching the C++ client into $(PEERS)/cpp"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
		--target $(PEERS)/cpp --requirement $<
	@touch $@

$(PEERS)/spark-%/.fetched: pyproject.toml
	@echo "installing CometMQ with Spark $* into $(PEERS)/spark-$* (once, about 450 MB)"
	@$(PYTHON) -m venv $(PEERS)/spark-$*
	@$(PEERS)/spark-$*/bin/python -m pip install --quiet --disable-pip-version-check \
		--editable '.[spark]' 'pyspark==$*.*'
	@touch $@

$(KAFKA): bench/peers/kafka.xml bench/peers/spark-kafka.xml
	@command -v mvn >/dev/null && command -v java >/dev/null \
		|| { echo "the peers need a JDK 17 or newer and Maven on the PATH"; exit 1; }
	@echo "fetching Kafka and Spark's Kafka source into $(PEERS)/kafka (once, about 110 MB)"
	@mvn --quiet --batch-mode --file bench/peers/kafka.xml dependency:copy-dependencies \
		-DoutputDirectory=$(CURDIR)/$(PEERS)/kafka/lib
	@mvn --quiet --batch-mode --file bench/peers/spark-kafka.xml dependency:copy \
		-DoutputDirectory=$(CURDIR)/$(PEERS)/kafka/spark
	@touch $@

clean: ## remove everything that the targets made
	rm -rf $(VENV) $(PEERS) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
