//go:build compatible

package loss

import (
	"os"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/gotest"
)

// TestLossKafkaCompatible is TestLossKafka on a broker that the suite may not restart, and whose shortest session may be
// that of Kafka's default settings. Command compatible runs it.
func TestLossKafkaCompatible(t *testing.T) {
	p := drawPlan(t, size{messages: 1000, perState: 1, outside: 1})
	p.variant = eager
	p.load.Missed = 6 * time.Second
	sys := newKafka(t, brokers.RequireKafka(t), nil, os.Getenv(gotest.EnvPrefix)+"loss", 10)
	wantNoLoss(t, "loss: "+p.variant, sys, p, explained)
}
