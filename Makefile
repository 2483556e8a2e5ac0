# make            lists what there is
# make test       is the whole test run, what CI runs

GO ?= go
# Everything after the name of a program that takes arguments: make bench ARGS='--runs 7'
ARGS ?=
# Only tests that match: make soak RUN=Loss
RUN ?=
FUZZTIME ?= 10s

GOLANGCI := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
SUITES := bin/suites $(if $(RUN),-run '$(RUN)')

.DEFAULT_GOAL := help
.PHONY: help build unit test race lint fmt tidy-check api bench outage soak screenshots cover fuzz tools clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile everything, tests too, and run nothing
	$(GO) build ./... ./cmd/redeliver/... ./integration/...
	$(GO) vet ./... ./cmd/redeliver/... ./integration/...

unit: ## the unit tests alone, with the race detector: no broker, seconds
	$(GO) test -race -shuffle=on ./... ./cmd/redeliver/...

test: tools ## the whole test run: unit, then adapters, integration and loss beside real brokers that it starts and stops
	$(SUITES) unit adapters integration loss

race: tools ## the whole test run with the race detector everywhere
	$(SUITES) -race -timeout 30m unit adapters integration loss

lint: ## gofmt and golangci-lint over all modules
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './bin/*')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change these, run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(GOLANGCI) run ./... ./cmd/redeliver/... ./integration/...

fmt: ## format every Go file
	gofmt -w $$(find . -name '*.go' -not -path './bin/*')

tidy-check: ## fail when a go.mod or go.sum is not what go mod tidy would write
	GOWORK=off $(GO) mod tidy -diff
	cd cmd/redeliver && GOWORK=off $(GO) mod tidy -diff
	cd integration && GOWORK=off $(GO) mod tidy -diff

api: ## write api/*.txt, what a user's program can name, as it is now
	$(GO) test ./internal/arch -run '^TestAPI$$' -count=1 -update

bench: tools ## compare with the peers on one real Kafka, RabbitMQ and ElasticMQ; ARGS go to the program
	$(GO) build -buildvcs=false -o bin/bench ./integration/bench
	bin/withbrokers --kafka --rabbitmq --sqs -- bin/bench $(ARGS)

outage: tools ## record what an outage of a minute does on each broker, beside Watermill's Retry + PoisonQueue; ARGS go to the program
	$(GO) build -buildvcs=false -o bin/outage ./integration/outage
	bin/withbrokers --kafka --rabbitmq --sqs -- bin/outage --out docs $(ARGS)

soak: tools ## the integration tests with REDELIVER_SOAK=1, which lengthens some of them to hours
	REDELIVER_SOAK=1 $(SUITES) -timeout 6h integration loss

screenshots: ## write docs/screenshots anew, by a Chromium
	$(GO) test -count=1 -run '^TestScreenshots$$' ./integration/console -screenshots $(CURDIR)/docs/screenshots

cover: ## how much of the root module its unit tests run, per function and in all
	$(GO) test -coverpkg=./... -coverprofile=coverage.out ./...
	$(GO) tool cover -func=coverage.out

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@set -e; found=; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . --exclude-dir=integration); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    found=yes; echo "=== $$target in $$(dirname $$file)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
	  done; \
	done; [ -n "$$found" ] || { echo "there are no fuzz targets"; exit 1; }

tools: # what starts brokers and counts tests; not for the help
	@$(GO) build -buildvcs=false -o bin/ ./integration/cmd/withbrokers ./integration/cmd/suites

clean: ## remove what was built here (the brokers' jars stay in the user's cache directory)
	rm -rf bin coverage.out
