//go:build prove

package loss

import (
	"slices"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// TestLossRedis kills consumers and Redis, and closes connections, while 6,000 messages are under way through
// adapters/pubsub and stock watermill-redisstream, and checks the result.
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

// claimed returns how many runs may be repeated. A killed consumer's runs are repeated with their later attempts, because
// a retry may have been written already. One message in fifty is for writes and acks that the client repeats, because
// their answers were lost with a connection.
func claimed(p plan, out outcome) int { return undeleted(p, out, 0) }

// TestLossSuiteFindsLossesOnRedis is TestLossSuiteFindsLosses on Redis.
func TestLossSuiteFindsLossesOnRedis(t *testing.T) {
	t.Parallel()
	p := planWithEarlyAck(t)
	// Half of the writes move a waiting message, whose ack comes after them in any case. One kill of twelve certainly
	// hits the other half.
	p.orders = slices.Repeat(p.orders, 3)
	wantLosses(t, "early ack: Redis", newRedis(t, brokers.OwnRedis(t, brokers.RedisOptions{}), "early-ack"), p)
}
