#!/usr/bin/env bash
# make compose-test: starts a suite, checks that it works, runs the integration tests on its brokers, and stops it. The
# tests start the brokers that the suite does not have.
set -euo pipefail
suite=${1:-all}
cd "$(dirname "$0")/../.."
compose=(${COMPOSE:-docker compose} -f "integration/compose/suites/$suite.yml")
"${compose[@]}" version >/dev/null || { echo "docker compose is not installed, or the command in COMPOSE does not exist" >&2; exit 1; }

trap '"${compose[@]}" down -v -t 20' EXIT
# COMPOSE_UP=--no-build uses existing images, named by REDELIVER_IMAGE, EXAMPLES_IMAGE and so on.
"${compose[@]}" up -d ${COMPOSE_UP:---build}
SUITE=$suite COMPOSE="${compose[*]}" go test -tags compose -count=1 -v ./integration/compose/live || { "${compose[@]}" logs --tail 40; exit 1; }
[[ ${TESTS:-yes} == yes ]] || exit 0

restart_command() { echo "cd '$PWD' && ${compose[*]} restart $1"; }
if [[ $suite == all || $suite == kafka ]]; then
  export REDELIVER_TEST_KAFKA=127.0.0.1:${REDELIVER_KAFKA_PORT:-19092} REDELIVER_TEST_KAFKA_RESTART
  REDELIVER_TEST_KAFKA_RESTART=$(restart_command kafka)
fi
if [[ $suite == all || $suite == rabbitmq ]]; then
  export REDELIVER_TEST_RABBITMQ4=amqp://guest:guest@127.0.0.1:${REDELIVER_RABBITMQ_PORT:-5672}/ REDELIVER_TEST_RABBITMQ4_RESTART
  export REDELIVER_TEST_RABBITMQ4_MANAGEMENT=http://127.0.0.1:${REDELIVER_RABBITMQ_MANAGEMENT_PORT:-15672}
  REDELIVER_TEST_RABBITMQ4_RESTART=$(restart_command rabbitmq)
fi
if [[ $suite == all || $suite == sqs ]]; then
  export REDELIVER_TEST_SQS=http://127.0.0.1:${REDELIVER_SQS_PORT:-9324} REDELIVER_TEST_SQS_RESTART
  REDELIVER_TEST_SQS_RESTART=$(restart_command elasticmq)
fi
if [[ $suite == all ]]; then
  export REDELIVER_TEST_REDIS=127.0.0.1:${REDELIVER_REDIS_PORT:-6379} REDELIVER_TEST_REDIS_RESTART
  REDELIVER_TEST_REDIS_RESTART=$(restart_command redis)
fi
bin/suites integration
