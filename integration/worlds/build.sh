#!/usr/bin/env bash
# Builds the programs of make worlds into bin/worlds.
set -euo pipefail
cd "$(dirname "$0")/../.."
integration/worlds/workspace.sh
for driver in integration/worlds/*world; do
  name=$(basename "$driver" world)
  GOWORK=$PWD/bin/worlds/go.work GOFLAGS=-buildvcs=false go test -c -tags worlds -o "bin/worlds/$name.test" "./$driver"
done
go build -buildvcs=false -o bin/worlds/run ./integration/cmd/worlds
