#!/bin/sh
# Handles one message: its body is the standard input, and its headers are variables.
set -eu
body=$(cat)
case "$body" in
*number*) echo "reminder $body, attempt $REDELIVER_ATTEMPT" >> "${REMINDERS:-/tmp/reminders}" ;;
*) echo "not a reminder" >&2; exit 65 ;; # to the dead-letter queue; any other status is retried
esac
