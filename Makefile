SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

SEED ?= $(shell date +%s)
SEED := $(SEED)
FUZZTIME ?= 10s
SOAKFUZZ ?= 60s

# How many packages are tested at once: their tests wait more than they work.
PACKAGES ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))

.PHONY: help
help: ## Print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: check
check: tools fmt vet fix staticcheck race slice ## Everything that CI checks

.PHONY: fmt
fmt: ## Fail on files that gofmt would change
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "run gofmt -w on:" $$files >&2; exit 1; }

# What is looked at is what is tested, which has the race detector: all is compiled once.
.PHONY: vet
vet: ## go vet
	go vet -race ./...

.PHONY: fix
fix: ## Fail on code that go fix would modernize
	go fix -race -diff ./...

.PHONY: staticcheck
staticcheck: ## staticcheck, as pinned in go.mod
	program=$$(go tool -n staticcheck) && GOFLAGS=-race $$program ./...

.PHONY: test
test: tools ## All tests
	go test ./...

# A program with the race detector sleeps for a second when it exits, and tests start
# hundreds.
race soak: export GORACE = atexit_sleep_ms=0

# Of suites that take long, tests run the slice that SEED chooses.
race soak: export NESTOR_SEED = $(SEED)

.PHONY: race
race: tools ## All tests, with the race detector
	@echo "slices are chosen by SEED=$(SEED)"
	go test -race -vet=off -p $(PACKAGES) -timeout 30m ./... # a package has 10 minutes otherwise, which a slow machine exceeds

.PHONY: bench
bench: tools ## All benchmarks
	go test -run '^$$' -bench . -benchmem ./...

.PHONY: bench-sdk
bench-sdk: tools/bench-sdk/node_modules/.stamp ## package claude against the TypeScript SDK, in one run
	CGO_ENABLED=0 go build -o bin/bench-sdk ./tools/bench-sdk
	bin/bench-sdk

.PHONY: bench-warm
bench-warm: tools ## The first text from a warm CLI against a cold one
	go build -o bin/bench-warm ./tools/bench-warm
	bin/bench-warm

.PHONY: bench-engine
bench-engine: ## The durable core against the bare broker, in one run
	go build -o bin/bench-engine ./tools/bench-engine
	bin/bench-engine

.PHONY: bench-api
bench-api: tools ## Agents of our own loop against the CLI: first text, and thousands at once
	go build -o bin/bench-api ./tools/bench-api
	bin/bench-api

.PHONY: bench-spawn
bench-spawn: tools ## Agents that start agents, against 'claude -p' nested in Bash
	go build -o bin/nestor ./cmd/nestor
	go build -o bin/bench-spawn ./tools/bench-spawn
	BENCH_NESTOR=$(CURDIR)/bin/nestor bin/bench-spawn

.PHONY: bench-run
bench-run: tools ## What 'nestor run' adds to the provider beneath it
	CGO_ENABLED=0 go build -o bin/nestor ./cmd/nestor
	CGO_ENABLED=0 go build -o bin/bench-run ./tools/bench-run
	BENCH_NESTOR=$(CURDIR)/bin/nestor bin/bench-run

.PHONY: bench-tree
bench-tree: ## Trees of a thousand runs: how long they take to grow, and to end by a cancel
	go build -o bin/bench-tree ./tools/bench-tree
	bin/bench-tree

.PHONY: bench-agentfile
bench-agentfile: ## What definitions of agents cost: files, options, the memory of 20,000 runs (25 minutes)
	go build -o bin/bench-agentfile ./tools/bench-agentfile
	bin/bench-agentfile

.PHONY: bench-sandbox
bench-sandbox: ## What the sandbox adds to the shortest command
	go build -o bin/nestor ./cmd/nestor
	NESTOR_BENCH_PROGRAM=$(CURDIR)/bin/nestor go test -run '^$$' -bench BenchmarkTrue -benchtime 100x ./internal/sandbox

tools/bench-sdk/node_modules/.stamp: tools/bench-sdk/package-lock.json
	cd tools/bench-sdk && npm ci --ignore-scripts --omit=optional --prefer-offline --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

FUZZTESTS = grep -r --include='*_test.go' --exclude-dir=node_modules '^func Fuzz' . | sed -E 's|/[^/]*:func (\w+).*| \1|' | sort

# go test -fuzz takes one function of one package at a time.
.PHONY: fuzz
fuzz: ## Each fuzz test for FUZZTIME (10s)
	@$(FUZZTESTS) | while read -r pkg name; do \
		echo "$$pkg $$name"; \
		go test -vet=off -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5x "$$pkg"; \
	done

# It is the program that has been tested: with coverage to guide it, all of it would be
# compiled again.
.PHONY: slice
slice: ## A fuzz test, chosen by SEED, 20,000 inputs
	@read -r pkg name < <($(FUZZTESTS) | awk -v seed=$(SEED) 'BEGIN { srand(seed) } { print rand() "\t" $$0 }' | sort -n | cut -f2); \
	echo "$$pkg $$name, chosen by SEED=$(SEED)"; \
	mkdir -p bin && go test -race -vet=off -c -o bin/slice.test "$$pkg" && cd "$$pkg" && \
	GORACE=atexit_sleep_ms=0 $(CURDIR)/bin/slice.test -test.run '^$$' -test.fuzz "^$$name\$$" -test.fuzztime 20000x -test.fuzzminimizetime 5x -test.fuzzcachedir $(CURDIR)/bin/fuzz

.PHONY: soak
soak: tools ## What takes long: all kills, escapes and races, each fuzz test for a minute
	NESTOR_SOAK=1 go test -race -timeout 60m ./...
	$(MAKE) fuzz FUZZTIME=$(SOAKFUZZ)

# The flag is given because a GOFLAGS of -buildvcs=false would leave the
# binary without its commit. Without cgo it needs no C library, and runs on any
# machine of its kind.
.PHONY: build
build: ## Build bin/nestor
	CGO_ENABLED=0 go build -buildvcs=auto -trimpath -o bin/nestor ./cmd/nestor

.PHONY: tools
tools: tools/node_modules/.stamp ## Install the Claude CLI that the tests run, once

# No scripts: the CLI is a binary in a package per platform, such as
# tools/node_modules/@anthropic-ai/claude-code-linux-x64/claude. It is large,
# so a clone takes it from npm's cache where it can. npm ci empties
# node_modules first, and the stamp with it.
tools/node_modules/.stamp: tools/package-lock.json
	cd tools && npm ci --ignore-scripts --prefer-offline --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

.PHONY: transcripts
transcripts: tools ## Record the transcripts anew from the real CLI
	go run ./claude/claudetest/record $(wildcard claude/testdata/transcripts/*.txtar)

.PHONY: clean
clean: ## Remove what make built and installed
	rm -rf bin tools/node_modules
