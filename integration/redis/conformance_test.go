package redis_test

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// The contract of every adapter runs against adapters/pubsub over watermill-redisstream.
func TestConformance(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	adaptertest.Run(t, newHarness(t, brokers.RequireRedis(t)))
	t.Logf("report: the conformance kit on watermill-redisstream: %.1f s", time.Since(begin).Seconds())
}

func TestGuaranteeTable(t *testing.T) {
	adaptertest.CheckTable(t, "../../docs/reference/guarantees.md", "Redis Streams", features)
}
