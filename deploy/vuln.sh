#!/bin/sh
# make vuln. A run without the database proves nothing, and says so; it is not held against the change.
set -u
database=${GOVULNDB:-https://vuln.go.dev}
if ! timeout 20 curl -fsS -o /dev/null "$database/index/db.json" 2>/dev/null; then
  echo "vuln: $database does not answer, so nothing was looked up"
  exit 0
fi
set -e
for dir in . cmd/redeliver; do
  echo "vuln: $dir"
  (cd "$dir" && GOWORK=off timeout 600 sh -c "$GOVULNCHECK ./...")
done
