#!/bin/sh
# make vuln. It fails without the database, because then it has checked nothing. GOVULNDB may name another database: the
# URL of a mirror, or file:///... for a copy, or for data/osv in a clone of github.com/golang/vulndb.
set -u
database=${GOVULNDB:-https://vuln.go.dev}
case $database in
  file://*) answers() { [ -f "${database#file://}/index/db.json" ] || [ -n "$(find "${database#file://}" -maxdepth 1 -name 'GO-*.json' -print -quit 2>/dev/null)" ]; } ;;
  *)
    command -v curl >/dev/null || { echo "vuln: curl is not installed, which checks that $database answers" >&2; exit 1; }
    answers() { timeout 30 curl -fsS -o /dev/null "$database/index/db.json"; }
    ;;
esac
if ! answers; then
  echo "vuln: $database does not answer, so NOTHING WAS CHECKED: run this where it answers, or name a copy of it in GOVULNDB" >&2
  exit 1
fi
set -e
for dir in . observe/otel cmd/redeliver; do
  echo "vuln: $dir"
  (cd "$dir" && GOWORK=off timeout 600 sh -c "$GOVULNCHECK -db '$database' ./...")
done
# The program that makes the SBOMs, which runs in a release.
echo "vuln: deploy/sbom.mod"
tool=$(mktemp)
trap 'rm -f "$tool"' EXIT
GOWORK=off GOFLAGS=-buildvcs=false go build -modfile deploy/sbom.mod -o "$tool" github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod
GOWORK=off timeout 600 sh -c "$GOVULNCHECK -db '$database' -mode binary '$tool'"
