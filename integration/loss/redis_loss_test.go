//go:build prove

package loss

import (
	"slices"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossRedis kills consumers and Redis, and closes connections, while 6,000 messages are on their way through
// adapters/pubsub and stock watermill-redisstream, and counts what is left.
func TestLossRedis(t *testing.T) {
	t.Parallel()
	size := size{messages: 6000, perState: 4, outside: 2, restarts: 2}
	if brokers.Soak() {
		size = full()
	}
	size.closings = size.restarts
	sys := newRedis(t, brokers.OwnRedis(t, brokers.RedisOptions{}), "loss")
	wantNoLoss(t, "loss: Redis", sys, drawPlan(t, size), claimed)
}

// claimed is how many runs may be made again: what a killed consumer was at, and the rest of the ladder of that, because
// it may have been written on already; and one message in fifty for the writes and acks whose answers went with a
// connection, which the client repeats.
func claimed(p plan, out outcome) int { return undeleted(p, out, 0) }

// TestLossSuiteHasTeethOnRedis is TestLossSuiteHasTeeth there.
func TestLossSuiteHasTeethOnRedis(t *testing.T) {
	t.Parallel()
	p := teethPlan(t)
	// Half of the writes move a message that waits, whose ack comes after them in any case. One kill of twelve is bound to
	// hit the other half.
	p.orders = slices.Repeat(p.orders, 3)
	wantTeeth(t, "teeth: Redis", newRedis(t, brokers.OwnRedis(t, brokers.RedisOptions{}), "teeth"), p)
}
