//go:build prove

package sqs_test

import (
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// A runner is killed between any two calls of its driver, on ElasticMQ.
func TestDeadLetterKills(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	adaptertest.RunDeadLetterKills(t, newHarness(t, endpoint, false), deadLetters(endpoint))
}
