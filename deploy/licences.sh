#!/bin/sh
# Writes the licences of the command's dependencies to standard output: of each module, on any of the three systems for
# which .goreleaser.yaml builds, and of Go. make licences and make licences-check call it.
set -eu
cd "$(dirname "$0")/.."
export LC_ALL=C GOWORK=off GOFLAGS=-buildvcs=false
temp=$(mktemp -d)
trap 'rm -rf "$temp"' EXIT

# The tool runs here and reads the imports of another system, so it is built before GOOS changes.
GOBIN=$temp go install github.com/google/go-licenses@v1.6.0
for system in linux darwin windows; do
  for template in rows texts; do
    (cd cmd/redeliver && GOOS=$system GOARCH=amd64 CGO_ENABLED=0 "$temp/go-licenses" report \
      --ignore github.com/redeliver/redeliver --template "../../deploy/licences-$template.tmpl" .) \
      >>"$temp/$template" 2>"$temp/log" || { cat "$temp/log" >&2; exit 1; }
  done
done

cat <<'END'
# Licences of others

The dependencies of the command `redeliver` on Linux, macOS and Windows, with the texts of their licences. `make
licences` writes this file, and `make licences-check` fails when it is outdated. integration/release/licences_test.go
lists the allowed licences. The library has fewer dependencies: `go list -deps`.

github.com/golang/freetype (drawn in charts of `simulate`) gives the choice between the FreeType License and the GPL; here it is the FreeType License.
Portions of this software are copyright The FreeType Project (www.freetype.org). All rights reserved.

github.com/hashicorp/go-uuid is under the Mozilla Public License 2.0 and unchanged. Its source is at
https://github.com/hashicorp/go-uuid, and `go mod download` gets the version below.

| module | version | licence |
| --- | --- | --- |
END
sort -u "$temp/rows"
printf '| Go and its standard library | %s | BSD-3-Clause |\n' "$(sed -n 's/^toolchain //p' cmd/redeliver/go.mod)"
# Each text ends in a NUL, so that sort sees a text as one record.
sort -zu "$temp/texts" | tr -d '\0'
printf '\n## Go and its standard library\n\n```\n'
cat "$(go env GOROOT)/LICENSE"
printf '\n```\n'
