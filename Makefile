# make            lists the targets
# make test       runs all tests, as CI does

GO ?= go
# Everything after the name of a program that takes arguments: make bench ARGS='--runs 7'
ARGS ?=
# Only tests that match: make soak RUN=Loss
RUN ?=
# The address of make compatible, host:port, or the kind of broker of make worlds
BROKER ?=
FUZZTIME ?= 10s
# Of make worlds
FOR ?= 1m
SEED ?=

GOLANGCI := $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GREMLINS := $(GO) run github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0
MUTATE ?= . delayqueue internal/engine middleware
MUTATE_FILES ?=
SUITES := bin/suites $(if $(RUN),-run '$(RUN)')
WITH_BROKERS := bin/withbrokers --brief --kafka --rabbitmq --sqs --redis

.DEFAULT_GOAL := help
.PHONY: help build setup unit race test prove worlds prove-setup worlds-setup bench-setup lint fmt tidy-check api mutate bench aws compatible soak screenshots cover fuzz tools clean
.PHONY: image compose-test chart-check release-check release release-dry sbom licences licences-check vuln

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## compile everything, tests too, and run nothing
	$(GO) build ./... ./observe/otel/... ./cmd/redeliver/... ./integration/...
	$(GO) vet -tags prove,compatible,worlds ./... ./observe/otel/... ./cmd/redeliver/... ./integration/...

setup: ## get what make test needs: brokers, a browser, a C compiler
	@integration/setup.sh test

unit: ## the tests of the library and the command: no broker, a minute
	$(GO) build -buildvcs=false -o bin/ ./integration/cmd/suites
	$(SUITES) unit

race: ## unit with the race detector: two minutes
	integration/setup.sh gcc
	$(GO) build -buildvcs=false -o bin/ ./integration/cmd/suites
	$(SUITES) race

test: setup tools ## what CI runs: unit, then one test of each promise on each real broker, which it starts and stops
	$(WITH_BROKERS) -- $(SUITES) test

prove: prove-setup tools ## everything: loss, chaos, kills, every broker version, Watermill's suites, the race detector; an hour
	$(WITH_BROKERS) --rabbitmq4 --moto -- $(SUITES) prove

prove-setup:
	@integration/setup.sh prove

worlds: $(if $(filter rabbitmq,$(BROKER)),worlds-setup tools) ## random worlds for FOR (1m), or those of SEED; BROKER is kafka, sqs or rabbitmq
	@integration/worlds/build.sh
	$(if $(filter rabbitmq,$(BROKER)),bin/withbrokers --brief --rabbitmq --rabbitmq4 --rabbitmq43 -- )bin/worlds/run -program bin/worlds/$(or $(BROKER),kafka).test -for $(FOR) $(if $(SEED),-seeds $(SEED)) $(ARGS)

worlds-setup:
	@integration/setup.sh rabbitmq rabbitmq4 rabbitmq4.3

lint: ## gofmt and golangci-lint over all modules; links and lines of the Markdown pages, words of pages, comments and names
	@unformatted=$$(gofmt -l $$(find . -name '*.go' -not -path './bin/*')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change these, run make fmt:"; echo "$$unformatted"; exit 1; fi
	$(GOLANGCI) run --build-tags prove,compatible,worlds ./... ./observe/otel/... ./cmd/redeliver/... ./integration/...
	$(GO) test ./internal/arch -run '^TestMarkdown|^TestGo|^TestNames' -count=1

fmt: ## format every Go file
	gofmt -w $$(find . -name '*.go' -not -path './bin/*')

tidy-check: ## fail when a go.mod or go.sum is not what go mod tidy would write
	GOWORK=off $(GO) mod tidy -diff
	for dir in observe/otel cmd/redeliver integration; do (cd $$dir && GOWORK=off $(GO) mod tidy -diff) || exit 1; done

api: ## write the exported names to api/*.txt
	$(GO) test ./internal/arch -run '^TestAPI$$' -count=1 -update

bench: bench-setup tools ## compare redeliver with other libraries on one real Kafka, RabbitMQ and ElasticMQ; ARGS go to the program
	$(GO) build -buildvcs=false -o bin/bench ./integration/bench
	bin/withbrokers --kafka --rabbitmq --sqs -- bin/bench $(ARGS)

bench-setup:
	@integration/setup.sh kafka rabbitmq sqs javac

aws: ## the kit and the loss suite on the SQS of AWS, which costs cents: make aws ARGS='--region eu-central-1'; ARGS='clean --region ...' after a killed run
	@$(GO) build -buildvcs=false -o bin/aws ./integration/aws
	bin/aws $(ARGS)

compatible: ## the kit and the loss suite on a Kafka-compatible broker: make compatible BROKER=host:9092
	@$(GO) build -buildvcs=false -o bin/compatible ./integration/compatible
	bin/compatible --broker '$(BROKER)' $(ARGS)

soak: prove-setup tools ## the integration tests with REDELIVER_SOAK=1, which lengthens some of them to hours
	REDELIVER_SOAK=1 $(WITH_BROKERS) --rabbitmq4 --moto -- $(SUITES) soak

screenshots: ## write docs/screenshots with Chromium
	$(GO) test -tags prove -count=1 -run '^TestScreenshots$$' ./integration/console -screenshots $(CURDIR)/docs/screenshots

cover: ## the coverage of the library's unit tests, by function and in total
	$(GO) test -coverpkg=./...,./observe/otel/... -coverprofile=coverage.out ./... ./observe/otel/...
	$(GO) tool cover -func=coverage.out

fuzz: ## run every fuzz target for FUZZTIME (10s)
	@set -e; found=; for file in $$(grep -rl --include='*_test.go' '^func Fuzz' . --exclude-dir=integration); do \
	  for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
	    found=yes; echo "=== $$target in $$(dirname $$file)"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$(dirname $$file); \
	  done; \
	done; [ -n "$$found" ] || { echo "there are no fuzz targets"; exit 1; }

# Images, chart and releases. Their tools run with go run, at pinned versions, outside the workspace.
OUTSIDE := GOWORK=off GOFLAGS=-buildvcs=false
GORELEASER := $(OUTSIDE) $(GO) run github.com/goreleaser/goreleaser/v2@v2.16.0
HELM := $(OUTSIDE) $(GO) run helm.sh/helm/v3/cmd/helm@v3.22.0
# cyclonedx-gomod has a go.mod of its own, so that .goreleaser.yaml uses the same version and builds it once for six SBOMs.
CYCLONEDX := $(OUTSIDE) $(GO) tool -modfile deploy/sbom.mod cyclonedx-gomod
GOVULNCHECK ?= $(OUTSIDE) $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.2.0
DOCKER ?= docker
# make image VERSION=v1.2.3 works only on the commit of that tag, so that no image has the name of another version.
VERSION ?=
GO_IMAGE ?= golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d
SUITE ?= all

image: ## build the images redeliver:TAG and redeliver-examples:TAG, TAG being VERSION or local
	@if [ -n "$(VERSION)" ] && [ "$$(git describe --exact-match --match 'v*' --dirty 2>/dev/null)" != "$(VERSION)" ]; then \
	  echo "this tree is not $(VERSION): check out that tag, without changes"; exit 1; fi
	@for target in redeliver examples; do \
	  name=redeliver; [ $$target = redeliver ] || name=redeliver-$$target; \
	  $(DOCKER) build --target $$target --build-arg GO_IMAGE=$(GO_IMAGE) --build-arg VERSION=$(VERSION) \
	    --build-arg REVISION=$$(git rev-parse HEAD) -t $$name:$(or $(VERSION),local) . || exit 1; \
	done

compose-test: tools ## the suite SUITE (all) of integration/compose, and the integration tests on its brokers; needs docker compose
	integration/compose/test.sh $(SUITE)

chart-check: ## render, lint and test the Helm chart; builds Helm, which takes minutes the first time
	$(GO) test -tags chart -count=1 ./integration/chart

release-check: ## check .goreleaser.yaml, and install the command from a trial release; takes minutes the first time
	$(GORELEASER) check
	$(GO) test -tags rehearsal -count=1 ./integration/release

release: ## build the release of the tag that is checked out, sign it and upload it as a draft; needs cosign and GITHUB_TOKEN
	$(GORELEASER) release --clean

release-dry: ## build a release in bin/dist without signing or publishing it
	$(GORELEASER) release --snapshot --clean --skip=publish,sign

sbom: ## list the command's dependencies as CycloneDX in bin/redeliver.cdx.json
	$(OUTSIDE) $(GO) build -C cmd/redeliver -o $(CURDIR)/bin/redeliver .
	$(CYCLONEDX) bin -json -std $(if $(VERSION),-version $(VERSION)) -output bin/redeliver.cdx.json bin/redeliver

licences: ## write THIRD_PARTY_LICENSES.md
	@mkdir -p bin && deploy/licences.sh >bin/licences.md && cp bin/licences.md THIRD_PARTY_LICENSES.md

licences-check: ## fail when THIRD_PARTY_LICENSES.md is outdated, or a licence is not allowed
	@mkdir -p bin && deploy/licences.sh >bin/licences.md
	@diff -u THIRD_PARTY_LICENSES.md bin/licences.md || { echo "run make licences, and review the difference"; exit 1; }
	$(GO) test -run Licences -count=1 ./integration/release

vuln: ## check the code that the library and the command call against Go's vulnerability database; fails without it
	@GOVULNCHECK='$(GOVULNCHECK)' deploy/vuln.sh

# gremlins stops the tests of a change after ten times their usual duration. With results from the test cache that would be no time at
# all, hence -count=1. The limit of 4 GiB stops a change that makes a loop append forever, before the machine is out of memory.
mutate: ## change the core's code one operator at a time and see whether a test notices; MUTATE names packages, MUTATE_FILES='schedule|text' some files of one, ARGS go to gremlins
	@set -e; ulimit -v 4194304; for package in $(MUTATE); do \
	  echo "=== $$package $(MUTATE_FILES)"; copy=$$(mktemp -d); \
	  if [ $$package = . ]; then cp *.go go.mod go.sum $$copy; rm $$copy/docs_test.go; \
	  else git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents -t $$copy; fi; \
	  others=; [ -z '$(MUTATE_FILES)' ] || others=$$(cd $$package && ls *.go | grep -Ev '^($(MUTATE_FILES))\.go$$|_test\.go$$' | sed 's/\.go$$//' | paste -sd'|'); \
	  (cd $$copy && GOWORK=off GOFLAGS="$$GOFLAGS -count=1 -vet=off -buildvcs=false" $(GREMLINS) unleash --timeout-coefficient 10 $${others:+--exclude-files "(^|/)($$others)\.go$$"} $(ARGS) \
	    --output $(CURDIR)/mutate-$$(echo $$package | tr ./ __).json ./$$package) || status=1; \
	  rm -rf $$copy; \
	done; exit $${status:-0}

tools: # the programs that start brokers and count tests; not in the help
	@$(GO) build -buildvcs=false -o bin/ ./integration/cmd/withbrokers ./integration/cmd/suites

clean: ## remove build results (the brokers' jars stay in the user's cache directory)
	rm -rf bin coverage.out mutate-*.json
