# moonloop: what can be made. `make` alone lists the targets.
#
# Everything that a target needs beside Go, a C compiler (race detector) and a POSIX system is a Go module at a fixed
# version, fetched and built by go itself.

# pipefail: a failing command on the left of a pipe fails the target.
SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Large packages in which no time is spent are compiled without inlining, which takes a quarter to a half less time: the vendors' clients
# (CLIENTS), clients of clouds and of Kubernetes (once per upload or login), what reads configuration, and what only test/deploy and dashboards need.
PLAIN := github.com/anthropics github.com/aws github.com/Azure github.com/AzureAD github.com/compose-spec github.com/foxboron github.com/go-openapi \
	github.com/google/gnostic-models github.com/google/go-tpm github.com/google/s2a-go github.com/grafana/grafana-foundation-sdk github.com/jcmturner \
	github.com/openai github.com/pb33f go.opentelemetry.io/contrib/otelconf helm.sh k8s.io sigs.k8s.io

# No tables for a debugger are compiled, which binaries and tests are stripped of anyway: that saves a tenth of the time. The compiler's own
# garbage collector takes a tenth to a fifth of it, so a compiler goes without until it holds 3 GiB (with 2 GiB, the largest package takes
# a fifth longer). -toolexec sets that for compilers and linkers alone; tests and what they run collect garbage as they do for users.
# Both sets of flags are in the environment, so that make shows their names instead of a screen of flags.
export COMPILE := $(shell go env GOFLAGS) -gcflags=all=-dwarf=false '-toolexec=env GOGC=off GOMEMLIMIT=3GiB' \
	$(foreach p,$(PLAIN),'-gcflags=$(p)/...=-dwarf=false -l')

# One set of flags for building, vetting and linting, since each set compiles the Collector's 900 packages once more. Tests under the race
# detector go without: it needs cgo, and they find their data by their source path.
STATIC := CGO_ENABLED=0 GOFLAGS="$$COMPILE -trimpath"

# The tools have a module of their own, so that their 200 dependencies stay out of every other; no workspace holds it.
TOOL := GOWORK=off go tool -modfile='$(CURDIR)/tools/go.mod'
LINT := $(STATIC) $(TOOL) golangci-lint

# The modules of go.work, and test/deploy, which no workspace holds: Kubernetes and Helm would decide the versions of what is built.
# What others import is the root's, so that a distribution's 200 modules stay out of theirs.
MODULES := . bench cmd/otelcol-moonloop dashboards test/deploy

# Packages in which nothing runs side by side, in their tests neither: the race detector finds nothing there, and makes them take five to
# ten times as long. internal/policy says which belong here.
ALONE := ./agent/dataset ./agent/judge ./agent/prompt ./agent/report/export ./agent/report/lines ./agent/report/page ./agent/tokenizer \
	./blockhash ./capture/journal ./genai ./internal/atomicfile ./internal/heap ./internal/jsonrows ./internal/ondisk ./internal/parquetrows \
	./internal/policy ./internal/splitmix ./internal/testport ./internal/tlsfile ./mooncake/generate ./mooncake/internal/ranges ./mooncake/stats ./semconv

# Packages that run much of their code side by side, but whose tests repeat a calculation with many inputs, random or out of long tables, or
# have tests in which one goroutine works at a time. Under the race detector they repeat it less often, and leave such tests out (-short).
# Without it, these tests (REDUCED) run as often as they promise: a repetition shows another input, and no other race. The others of these
# packages do the same with the detector and without, so they run once, with it. internal/policy says which belong here.
TWICE := ./cmd/moonloop ./agent/load ./agent/telemetry ./capture ./convert ./encoding ./mooncake ./mooncake/transform ./study
REDUCED := TestAgreementOfRangesIsThatOfTheirIDs TestAliases TestAnyTransformationIsATrace TestBesideIsExact TestContinuedMemory \
	TestContinuedRows TestCutRanges TestDecideCoverage TestDecompressionIsBounded TestDigestsOutsideOfMemory TestFineSharing \
	TestFineTokens TestFollow TestHelp TestHostile TestHostileFiles TestHostileFlags TestHostileGraph TestHostileRanges \
	TestHostileSharing TestInspectJSON TestInspectPrintsTheGoldenFigures TestLongSpansOverGRPC TestMalformedFiles \
	TestMalformedFlags TestMalformedRows TestMalformedSidecars TestManyTurns TestMergeIsTheRunOfOneProcess \
	TestPotentialOfThePublicTrace TestPrintedLines TestPrintedMembers TestPure TestRaised TestRangesAreRenumberedLikeTheirIDs \
	TestRowsWithRanges TestSampleError TestScalePublicTrace TestSearchCoverage TestSearchFindsCapacity TestSettingsEveryFlag \
	TestShardsOfThePublicTrace TestSharedBlocksAreSharedText TestSharedEndsAreSharedMessages TestShortMessages \
	TestSizesOfConversations TestTextIdentity TestTimeScaleKeepsTheSequence TestTree TestTwins TestWhatEndsCost

# The vendors' clients are 16 MB of code. To compile their two largest packages takes 80 s of a processor, or 46 s without inlining. make lint
# compiles them without the race detector anyway, so make check does it once instead of twice. The simulator's own tests send it the same
# requests under the detector.
CLIENTS := ./test/clients

# The Collector builder's own version decides the version of the Collector's core: keep it equal to the
# v0 version in test/acceptance/collector/builder.yaml.
OCB     := go.opentelemetry.io/collector/cmd/builder@v0.162.0
WITNESS := build/collector/otelcol-witness

# Settings, e.g. `make fuzz FUZZTIME=5m`.
FUZZTIME ?= 20s
FUZZJOBS ?= 2
BENCH    ?= .
PKG      ?= ./...
COUNT    ?= 1
TRACE    ?= ../shared/data/conversation_trace.jsonl
SPEEDUP  ?= 30
ROUNDS   ?= 5
SLOW     ?= $(ROUNDS)
SCENARIOS ?=
ROWS     ?= 1000000
STEPS    ?=
SOAK     ?= 20m
SHADOW   ?= 20m
RATE     ?=
SEEDS    ?=
SPANS    ?= 20000
MEMORY   ?= 2GiB
INSTRUMENTATION ?= openinference

.PHONY: help build moonloop demo test test-race test-short test-alone test-deploy lint fmt generate fresh tidy fuzz bench bench-go bench-transform bench-peers peers collector acceptance acceptance-vllm acceptance-llamacpp acceptance-between acceptance-peers acceptance-referee acceptance-shadow acceptance-agents acceptance-answers acceptance-see acceptance-sql acceptance-kubernetes acceptance-images soak check clean

## help: list the targets
help:
	@echo 'usage: make TARGET [SETTING=VALUE]'
	@sed -n 's/^## //p' $(MAKEFILE_LIST) | awk -F': ' '{ printf "  %-16s %s\n", $$1, $$2 }'

GO_BUILD := $(STATIC) go build -ldflags '-s -w' -o bin/

## build: static binaries in bin/: moonloop, and otelcol-moonloop, the Collector
build:
	$(GO_BUILD) ./cmd/moonloop ./cmd/otelcol-moonloop

# The command alone, without the Collector's 300 modules.
moonloop:
	$(GO_BUILD) ./cmd/moonloop

## demo: the whole loop on this machine: production, capture, replay, comparison (under a minute)
demo: moonloop
	bin/moonloop demo

## test: every test, with the race detector where anything runs side by side
# Tests that run the commands get them as they are built here. make lint vets, so go test need not; nor need a program under the race detector
# sleep for a second at its end, each time, which is the detector's default: the tests' own check for goroutines waits for them.
# Tests wait more than they work. So there are more of them at once than processors, and those that wait most come first: they run
# while the others are compiled.
# ALONE, CLIENTS, dashboards and test/deploy go without the race detector, which would compile hundreds of packages for the latter anew.
# TestPatience needs a replay that keeps up, so it goes without the detector too.
# test-short starts when test-alone has ended: two go commands that start together compile the same 800 packages twice.
test: build
	@$(MAKE) -j 2 test-race test-alone test-short test-deploy

# Packages that tests run little of, compiled without inlining under the race detector only. What users run has them with inlining.
RACED := charm.land github.com/charmbracelet github.com/felixge/httpsnoop github.com/json-iterator github.com/minio github.com/prometheus/procfs \
	github.com/stretchr github.com/tinylib/msgp github.com/xuri
export COMPILE_RACE := $(foreach p,$(RACED),'-gcflags=$(p)/...=-dwarf=false -l')

RACE := GORACE='atexit_sleep_ms=0' GOFLAGS="$$COMPILE $$COMPILE_RACE" go test -race -vet=off -ldflags=-w -p 2 -parallel 4

test-race:
	MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' \
	$(RACE) ./test/collector ./test/docs \
		$(filter-out $(patsubst ./%,github.com/moonloop/moonloop/%,$(ALONE) $(TWICE) $(CLIENTS)),$(shell go list ./... ./bench/...))

test-short:
	$(RACE) -short $(TWICE)

test-alone:
	$(STATIC) go test -vet=off -parallel 4 -run '^($(subst $() ,|,$(REDUCED)))$$' $(TWICE)
	$(STATIC) go test -vet=off -parallel 4 $(ALONE) $(CLIENTS) ./dashboards/...
	$(STATIC) go test -vet=off -run '^TestPatience$$' ./agent

test-deploy:
	cd test/deploy && GOWORK=off $(STATIC) go test -vet=off .

## lint: go vet, and every linter and formatter of .golangci.yml
lint:
	$(STATIC) go vet ./... ./bench/... ./dashboards/...
	cd test/deploy && GOWORK=off $(STATIC) go vet .
	@for module in $(MODULES); do (cd $$module && $(LINT) run); done

## fmt: format the code
fmt:
	@for module in . bench dashboards test/deploy; do (cd $$module && $(LINT) fmt); done

## generate: write generated files anew
generate:
	go generate ./... ./cmd/otelcol-moonloop ./dashboards
	go test ./internal/policy -run '^TestDependencies$$' -update

## fresh: fail if a generated file is not what generating gives (on a copy; the checkout stays as it is)
fresh:
	@copy=$$(mktemp -d); trap 'rm -rf "$$copy"' EXIT; \
	tar --exclude=./.git --exclude=./bin --exclude=./build -cf - . | tar -xf - -C "$$copy"; \
	$(MAKE) -C "$$copy" generate >/dev/null; \
	diff -r --exclude=.git --exclude=bin --exclude=build . "$$copy" \
		|| { echo 'error: generated files are stale; run: make generate' >&2; exit 1; }; \
	echo 'generated files are fresh'

## tidy: fail if a go.mod or go.sum is not what the imports ask for
tidy:
	@for module in $(MODULES); do (cd $$module && GOWORK=off go mod tidy -diff); done

## fuzz: each fuzz target for FUZZTIME, FUZZJOBS of them side by side
fuzz:
	@.ci/fuzz '$(FUZZTIME)' '$(FUZZJOBS)'

## bench: bench-go, then bench-peers
bench: bench-go bench-peers

## bench-go: Go benchmarks; BENCH=regexp PKG=./mooncake COUNT=10 narrow and repeat them
# Compare two runs with: GOWORK=off go tool -modfile=tools/go.mod benchstat old.txt new.txt
# Lines of packages without benchmarks say nothing and are left out; grep's "nothing left" is no failure.
bench-go:
	go test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) $(PKG) \
		| { grep -vE '^(PASS|ok .*|\?.*no test files.*)$$' || [ $$? -eq 1 ]; }

## bench-transform: each transformation beside reading, parsing and writing alone, time and memory; ROWS=10000000 ROUNDS=1 STEPS='--scale 0.1,--roots 8'
# Ten million rows are a file of 4 GB in the folder for temporary files.
bench-transform:
	MOONLOOP_SPEED_ROWS='$(ROWS)' MOONLOOP_SPEED_ROUNDS='$(ROUNDS)' MOONLOOP_SPEED_STEPS='$(STEPS)' \
		go test -v -count=1 -timeout 0 -run '^TestSpeed$$' ./mooncake/transform

## bench-peers: the replay and other load generators, end to end, into bench/RESULTS.md; ROUNDS=5 SLOW=1 SCENARIOS=dispatch,streams
# Peers that are not installed are skipped: make peers.
bench-peers: build
	$(STATIC) go build -o build/bench/bench ./bench
	build/bench/bench -rounds '$(ROUNDS)' -slow $(SLOW) -trace '$(TRACE)' $(if $(SCENARIOS),-scenarios '$(SCENARIOS)') \
		-command 'make bench-peers ROUNDS=$(ROUNDS) SLOW=$(SLOW)$(if $(SCENARIOS), SCENARIOS=$(SCENARIOS))'

## peers: install the peers of the bench into build/peers, at fixed versions; PEERS='vegeta k6' picks some
peers:
	bench/peers/peers.sh build/peers

## collector: a stock OpenTelemetry Collector for the acceptance runs
collector: $(WITNESS)

$(WITNESS): test/acceptance/collector/builder.yaml
	mkdir -p build
	GOWORK=off go run $(OCB) --config $<

## acceptance: the long runs on the public trace, with their figures; TRACE=file SPEEDUP=30
# The data is a megabyte that the repository does not carry; test/acceptance says where it is from. Tests named
# TestAcceptance* take part wherever they are; one package at a time, since they measure.
acceptance: build $(WITNESS)
	@test -f '$(TRACE)' || { echo "error: no trace at $(TRACE); see test/acceptance/doc.go, then: make acceptance TRACE=file" >&2; exit 2; }
	MOONLOOP_TRACE='$(abspath $(TRACE))' MOONLOOP_SPEEDUP='$(SPEEDUP)' MOONLOOP_BIN='$(CURDIR)/bin/moonloop' \
	MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' MOONLOOP_COLLECTOR='$(CURDIR)/$(WITNESS)' \
	MOONLOOP_OUT='$(CURDIR)/build/acceptance' \
		go test -v -count=1 -p 1 -timeout 60m -run '^TestAcceptance' \
		$$(grep -rl --include='*_test.go' '^func TestAcceptance' . | xargs -n1 dirname | sort -u)

ACCEPT_ENGINE = MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OUT='$(CURDIR)/build/acceptance' MOONLOOP_SEEDS='$(SEEDS)' \
	MOONLOOP_INSTRUMENTATION='$(INSTRUMENTATION)' go test -v -count=1 -timeout 120m

## acceptance-vllm: the loop on a real vLLM without a GPU, installed into build/vllm (some 6 GB)
# SEEDS=12,34 repeats runs, else five are drawn; INSTRUMENTATION=openinference, openai-v2 or traceloop; PYTHON=python3.12
acceptance-vllm: moonloop
	test/acceptance/vllm/install.sh build/vllm
	MOONLOOP_VLLM='$(CURDIR)/build/vllm' $(ACCEPT_ENGINE) -run '^TestAcceptanceVLLM$$' ./test/acceptance

## acceptance-llamacpp: the same on llama.cpp, built into build/llamacpp; MOONLOOP_LLAMA_SERVER=FILE takes one that is there
acceptance-llamacpp: moonloop
	test/acceptance/vllm/install.sh build/vllm
	test/acceptance/llamacpp/install.sh build/llamacpp build/vllm
	MOONLOOP_LLAMACPP='$(CURDIR)/build/llamacpp' $(ACCEPT_ENGINE) -run '^TestAcceptanceLlamaCPP$$' ./test/acceptance

## acceptance-between: a vLLM whose own spans are captured, too, LiteLLM before it, three libraries, replays beside; small caches, two replicas
# Installs into build/vllm, build/litellm and build/llamacpp.
acceptance-between: moonloop
	test/acceptance/vllm/install.sh build/vllm
	test/acceptance/litellm/install.sh build/litellm
	test/acceptance/llamacpp/install.sh build/llamacpp build/vllm
	MOONLOOP_VLLM='$(CURDIR)/build/vllm' MOONLOOP_LITELLM='$(CURDIR)/build/litellm' MOONLOOP_LLAMACPP='$(CURDIR)/build/llamacpp' \
		$(ACCEPT_ENGINE) -run '^TestAcceptance(Between|SmallCache|Replicas)$$' ./test/acceptance

## acceptance-peers: AIPerf, GuideLLM, vLLM's bench and kvcache-simulator read what `convert --to` writes, and count what the trace holds; TRACE=file
# Installs into build/vllm and build/peers. Without the trace at TRACE, the demo alone.
acceptance-peers: moonloop
	test/acceptance/vllm/install.sh build/vllm
	test/acceptance/peers/install.sh build/peers
	MOONLOOP_VLLM='$(CURDIR)/build/vllm' MOONLOOP_PEERS='$(CURDIR)/build/peers' MOONLOOP_TRACE='$(abspath $(wildcard $(TRACE)))' \
		$(ACCEPT_ENGINE) -run '^TestAcceptancePeers$$' ./test/acceptance

## acceptance-referee: the referee judges moonloop, vegeta, k6, oha, AIPerf, GuideLLM, inference-perf and vLLM's bench, as many as can be installed (docs/referee-results.md)
# Installs into build/vllm and build/peers.
acceptance-referee: moonloop
	-test/acceptance/vllm/install.sh build/vllm
	PEERS='vegeta k6 oha inference-perf' bench/peers/peers.sh build/peers
	-test/acceptance/peers/install.sh build/peers
	MOONLOOP_VLLM='$(CURDIR)/build/vllm' MOONLOOP_PEERS='$(CURDIR)/build/peers' $(ACCEPT_ENGINE) -run '^TestAcceptanceReferee$$' ./test/acceptance

## acceptance-shadow: a shadow behind a live production, through the Collector, for SHADOW, with each part killed once (docs/shadow.md)
acceptance-shadow: build
	MOONLOOP_SHADOW='$(SHADOW)' MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' MOONLOOP_OUT='$(CURDIR)/build/acceptance' \
		go test -v -count=1 -timeout 0 -run '^TestAcceptanceShadow$$' ./test/acceptance

## acceptance-answers: compare, ten times on two simulators; search and twin on a real vLLM (docs/compare.md, search.md, twin.md)
# Installs into build/vllm. Takes an hour or two.
acceptance-answers: moonloop
	test/acceptance/vllm/install.sh build/vllm
	MOONLOOP_VLLM='$(CURDIR)/build/vllm' $(ACCEPT_ENGINE) -run '^TestAcceptance(Compare|SearchVLLM|TwinVLLM)$$' ./test/acceptance

## acceptance-agents: agents in LangGraph, captured from OpenInference's spans, replayed: the same graph, in the same time; PYTHON=python3
# Installs into build/agents (0.2 GB).
acceptance-agents: moonloop
	test/acceptance/agents/install.sh build/agents
	MOONLOOP_AGENTS='$(CURDIR)/build/agents' $(ACCEPT_ENGINE) -run '^TestAcceptanceAgents$$' ./test/acceptance

## acceptance-see: a real Jaeger and a real Prometheus, built into build, hold what they must; a real Chromium shows the report page of the public trace
# Needs Node.js and Chromium: test/acceptance/page/install.sh. Without the trace at TRACE the page is left out.
acceptance-see: build
	test/acceptance/jaeger/install.sh build/jaeger
	test/acceptance/page/install.sh build/page
	test/acceptance/prometheus/install.sh build/prometheus
	MOONLOOP_PROMETHEUS='$(CURDIR)/build/prometheus/prometheus' MOONLOOP_JAEGER='$(CURDIR)/build/jaeger/jaeger' MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' \
	MOONLOOP_PAGE='$(CURDIR)/build/page' MOONLOOP_TRACE='$(abspath $(wildcard $(TRACE)))' \
	MOONLOOP_OUT='$(CURDIR)/build/acceptance' go test -v -count=1 -timeout 30m -run '^TestAcceptance(Jaeger|Page|Prometheus)' ./test/acceptance

## acceptance-shards: the public trace (TRACE), replayed by 1, 2, 8 and 64 processes, and merged; one of eight killed
.PHONY: acceptance-shards
acceptance-shards: moonloop
	MOONLOOP_TRACE='$(abspath $(TRACE))' $(ACCEPT_ENGINE) -run '^TestAcceptanceShard' ./test/acceptance

## acceptance-fleet: captures over a real Kafka and a real S3 server, and kill -9 of all of them, lose nothing; SPANS=1000000
# Needs Java 17 and Maven. Installs into build/fleet (0.2 GB).
.PHONY: acceptance-fleet
acceptance-fleet: build
	test/acceptance/fleet/install.sh build/fleet
	MOONLOOP_FLEET='$(CURDIR)/build/fleet' MOONLOOP_SPANS='$(SPANS)' MOONLOOP_OUT='$(CURDIR)/build/acceptance' \
	MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' \
		go test -v -count=1 -timeout 120m -run '^TestAcceptanceFleet' ./test/collector

## acceptance-plan: what a request costs, from telemetry to replay, for three shapes of traffic, and docs/plan.md made of that; TRACE=file
# Needs Java 17 and Maven, as acceptance-fleet does. Takes some minutes, and wants an idle machine: the page says how much CPU other programs used meanwhile.
.PHONY: acceptance-plan
acceptance-plan: build
	test/acceptance/fleet/install.sh build/fleet
	MOONLOOP_FLEET='$(CURDIR)/build/fleet' MOONLOOP_TRACE='$(abspath $(TRACE))' MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' \
		go test -v -count=1 -timeout 60m -run '^TestAcceptancePlan$$' ./test/collector
	go test -count=1 -run '^TestPlan$$' ./test/collector -update

## acceptance-sql: the queries of docs/sql.md, run with DuckDB, ClickHouse and Spark on the public trace (TRACE), say what inspect says
# Needs Python 3.10 or later (PYTHON), and Java 17. Installs into build/sql (1.5 GB).
acceptance-sql: moonloop
	test/acceptance/sql/install.sh build/sql
	MOONLOOP_SQL='$(CURDIR)/build/sql' MOONLOOP_TRACE='$(abspath $(TRACE))' MOONLOOP_OUT='$(CURDIR)/build/acceptance' MOONLOOP_BIN='$(CURDIR)/bin/moonloop' \
		go test -v -count=1 -timeout 10m -run '^TestAcceptanceSQL$$' ./test/acceptance

## acceptance-compile: a day of ROWS requests, a tenth and a hundredth of it, by one process and in two shards; DuckDB counts; MEMORY=2GiB SHAPE=compact PYTHON=python3
# SINGLE=10000000 leaves out the one process where there are more requests. Installs DuckDB into build/duckdb (0.1 GB). SHAPE=day takes up to
# 1.5 kB of disk for a request.
.PHONY: acceptance-compile
acceptance-compile: SHAPE ?= day
acceptance-compile: moonloop
	test/acceptance/compile/install.sh build/duckdb
	MOONLOOP_DUCKDB='$(CURDIR)/build/duckdb' MOONLOOP_ROWS='$(ROWS)' MOONLOOP_MEMORY='$(MEMORY)' MOONLOOP_SHAPE='$(SHAPE)' MOONLOOP_SINGLE='$(SINGLE)' \
		$(ACCEPT_ENGINE) -run '^TestAcceptanceCompile$$' ./test/acceptance

## acceptance-kubernetes: a real API server and real controllers, built into build/kubernetes, take manifests, kustomization and chart
# The pods of the fleet run as processes, with a real S3 server. Needs etcd. The first build takes some fifteen minutes.
acceptance-kubernetes: build
	test/acceptance/kubernetes/install.sh build/kubernetes
	test/acceptance/fleet/install.sh build/fleet s3
	MOONLOOP_KUBERNETES='$(CURDIR)/build/kubernetes' MOONLOOP_FLEET='$(CURDIR)/build/fleet' MOONLOOP_OUT='$(CURDIR)/build/acceptance' \
	MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' \
		go test -v -count=1 -timeout 30m -run '^TestAcceptanceKubernetes' ./test/acceptance

## acceptance-images: both images, built from their Dockerfiles without a daemon; a loop in read-only containers, as root of this machine
# Needs buildah, podman and runc.
acceptance-images:
	test/acceptance/images/build.sh build/images
	MOONLOOP_IMAGES='$(CURDIR)/build/images' MOONLOOP_OUT='$(CURDIR)/build/acceptance' \
		go test -v -count=1 -timeout 30m -run '^TestAcceptanceImages$$' ./test/acceptance

## soak: replay and Collector under load for SOAK, which must leave memory, descriptors and goroutines flat; RATE=rows/s, else found out
# Tables, samples and profiles are in build/soak/TIME.
soak: build
	MOONLOOP_SOAK='$(SOAK)' MOONLOOP_SOAK_RATE='$(RATE)' MOONLOOP_OUT='$(CURDIR)/build/soak' \
	MOONLOOP_BIN='$(CURDIR)/bin/moonloop' MOONLOOP_OTELCOL='$(CURDIR)/bin/otelcol-moonloop' \
		go test -v -count=1 -timeout 0 -run '^TestSoak$$' ./test/collector

## check: everything that must hold before a commit
check:
	@for module in . bench dashboards test/deploy; do (cd $$module && $(LINT) fmt --diff); done
	$(MAKE) test lint tidy fresh

## clean: remove what was built
clean:
	rm -rf bin build
