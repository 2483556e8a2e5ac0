//go:build prove

package loss

import (
	"fmt"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossSuiteFindsLosses removes "confirm before ack" from the consumers: a message is acked when its handler has
// failed, before its retry is written. The suite must then find losses, of messages that had failed.
func TestLossSuiteFindsLosses(t *testing.T) {
	t.Parallel()
	p := planWithEarlyAck(t)
	p.variant = eager
	sys := newKafka(t, brokers.RequireKafka(t), nil, fmt.Sprintf("early-ack-%d", time.Now().UnixNano()), 6)
	wantLosses(t, "early ack", sys, p)
}

// TestLossSuiteFindsLossesOnSQS is TestLossSuiteFindsLosses on SQS.
func TestLossSuiteFindsLossesOnSQS(t *testing.T) {
	t.Parallel()
	p := planWithEarlyAck(t)
	p.suspects = true
	wantLosses(t, "early ack: SQS", newSQS(t, brokers.RequireSQS(t), "early-ack", p.seed), p)
}
