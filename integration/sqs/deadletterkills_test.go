//go:build prove

package sqs_test

import (
	"testing"

	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
)

// A runner is killed between any two calls of its driver, on ElasticMQ.
func TestDeadLetterKills(t *testing.T) {
	t.Parallel()
	endpoint := brokers.RequireSQS(t)
	open := deadLetters(endpoint)
	adaptertest.RunDeadLetterKills(t, newHarness(t, endpoint, false), func(t testing.TB, origin, group string) (deadletter.Queue, func()) {
		q, kill := open(t, origin, group)
		return q.(keyed).Queue, kill
	})
}
