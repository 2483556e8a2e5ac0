//go:build prove

package loss

import (
	"fmt"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossSuiteHasTeeth takes "confirm before ack" out of the consumers: a message is acked when its handler has failed,
// before it is written to where it waits. The suite must find losses then, and name messages that had failed.
func TestLossSuiteHasTeeth(t *testing.T) {
	t.Parallel()
	p := teethPlan(t)
	p.variant = eager
	sys := newKafka(t, brokers.RequireKafka(t), nil, fmt.Sprintf("teeth-%d", time.Now().UnixNano()), 6)
	wantTeeth(t, "teeth", sys, p)
}

// TestLossSuiteHasTeethOnSQS is TestLossSuiteHasTeeth there.
func TestLossSuiteHasTeethOnSQS(t *testing.T) {
	t.Parallel()
	p := teethPlan(t)
	p.suspects = true
	wantTeeth(t, "teeth: SQS", newSQS(t, brokers.RequireSQS(t), "teeth", p.seed), p)
}
