#!/usr/bin/env bash
# make compose-test: starts a suite, looks whether what is in it works, runs the integration tests on its brokers, and
# takes it down. What the suite does not have, the tests start themselves.
set -euo pipefail
suite=${1:-all}
cd "$(dirname "$0")/../.."
compose=(${COMPOSE:-docker compose} -f "integration/compose/suites/$suite.yml")
"${compose[@]}" version >/dev/null || { echo "docker compose is not installed, or COMPOSE names what is not there" >&2; exit 1; }

trap '"${compose[@]}" down -v -t 20' EXIT
# COMPOSE_UP=--no-build takes images that are there already, named by REDELIVER_IMAGE, EXAMPLES_IMAGE and so on.
"${compose[@]}" up -d ${COMPOSE_UP:---build}
SUITE=$suite COMPOSE="${compose[*]}" go test -tags compose -count=1 -v ./integration/compose/live || { "${compose[@]}" logs --tail 40; exit 1; }
[[ ${TESTS:-yes} == yes ]] || exit 0

again() { echo "cd '$PWD' && ${compose[*]} restart $1"; }
if [[ $suite == all || $suite == kafka ]]; then
  export REDELIVER_TEST_KAFKA=127.0.0.1:${REDELIVER_KAFKA_PORT:-19092} REDELIVER_TEST_KAFKA_RESTART
  REDELIVER_TEST_KAFKA_RESTART=$(again kafka)
fi
if [[ $suite == all || $suite == rabbitmq ]]; then
  export REDELIVER_TEST_RABBITMQ4=amqp://guest:guest@127.0.0.1:${REDELIVER_RABBITMQ_PORT:-5672}/ REDELIVER_TEST_RABBITMQ4_RESTART
  export REDELIVER_TEST_RABBITMQ4_MANAGEMENT=http://127.0.0.1:${REDELIVER_RABBITMQ_MANAGEMENT_PORT:-15672}
  REDELIVER_TEST_RABBITMQ4_RESTART=$(again rabbitmq)
fi
if [[ $suite == all || $suite == sqs ]]; then
  export REDELIVER_TEST_SQS=http://127.0.0.1:${REDELIVER_SQS_PORT:-9324} REDELIVER_TEST_SQS_RESTART
  REDELIVER_TEST_SQS_RESTART=$(again elasticmq)
fi
if [[ $suite == all ]]; then
  export REDELIVER_TEST_REDIS=127.0.0.1:${REDELIVER_REDIS_PORT:-6379} REDELIVER_TEST_REDIS_RESTART
  REDELIVER_TEST_REDIS_RESTART=$(again redis)
fi
bin/suites integration
