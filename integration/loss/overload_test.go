//go:build prove

package loss

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// overloaded is a broker whose consumers are overloaded, one scenario after another.
type overloaded struct {
	name string
	// open prepares the broker and returns a function that creates a system for each scenario.
	open func(t *testing.T) func(t *testing.T, name string) system
	// most is the maximum size of a message, in bytes, that fits into the suite's own requests.
	most int
	// missed is the time after which a silent consumer is given up: short, but longer than the pauses of a busy
	// machine.
	missed time.Duration
	// awaits means that a write without an answer in its time is waited for, and not repeated.
	awaits bool
	// bound returns how many runs may be repeated when a process was killed.
	bound func(p plan, out outcome, sys system) int
}

var overloads = []overloaded{
	{
		"kafka", func(t *testing.T) func(*testing.T, string) system {
			addrs := brokers.RequireKafka(t)
			return func(t *testing.T, name string) system {
				return newKafka(t, addrs, nil, name+"-"+strconv.FormatInt(time.Now().UnixNano(), 36), 4)
			}
		}, 256 << 10, 10 * time.Second, true, func(p plan, out outcome, _ system) int { return explained(p, out) },
	},
	{
		"rabbitmq", func(t *testing.T) func(*testing.T, string) system {
			own := brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{})
			return func(t *testing.T, name string) system { return newRabbitMQ(t, own, name) }
		}, 32 << 10, 6 * time.Second, true,
		func(p plan, out outcome, sys system) int { return inHand(p, out, sys.(*rabbitSystem).rewritten) },
	},
	{
		"sqs", func(t *testing.T) func(*testing.T, string) system {
			endpoint := brokers.RequireSQS(t)
			return func(t *testing.T, name string) system { return newSQS(t, endpoint, name, 1) }
		}, 16 << 10, 12 * time.Second, false, func(p plan, out outcome, _ system) int { return undeleted(p, out, 0) },
	},
	{
		"redis", func(t *testing.T) func(*testing.T, string) system {
			own := brokers.OwnRedis(t, brokers.RedisOptions{})
			return func(t *testing.T, name string) system { return newRedis(t, own, name) }
		}, 16 << 10, time.Second /* unacked is looked at then */, false, func(p plan, out outcome, _ system) int { return claimed(p, out) },
	},
}

// TestOverload overloads consumers without killing them: more messages than they can handle, a slow broker,
// handlers that take longer than a consumer may be silent, and a full broker. Each message is accounted for as when
// consumers are killed. (Kafka dies of a full disk: TestOverloadKafkaFullDisk.)
func TestOverload(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, o := range overloads {
		// Most of it is waiting, so all brokers together take as long as one.
		all.Go(func() {
			t.Run(o.name, func(t *testing.T) {
				fresh := o.open(t)
				t.Run("back-pressure", func(t *testing.T) { backPressure(t, o, fresh(t, "backpressure")) })
				t.Run("slow broker", func(t *testing.T) { slowBroker(t, o, fresh(t, "slowbroker")) })
				t.Run("slow handler", func(t *testing.T) { slowHandler(t, o, fresh(t, "slowhandler")) })
				if o.name == "rabbitmq" || o.name == "redis" {
					t.Run("full", func(t *testing.T) { fullBroker(t, o, fresh(t, "fullbroker")) })
				}
			})
		})
	}
	all.Wait()
}

// overload returns a plan with n messages and without kills. It is longer with REDELIVER_SOAK.
func overload(t *testing.T, o overloaded, n, onces, failAlways int, s load) plan {
	t.Helper()
	seed := seedOf(t)
	p := plan{seed: seed, consumers: 1, steps: steps, load: s, deadline: toSettle} // a busy machine takes a minute to start a broker again
	p.suspects = o.name == "rabbitmq" || o.name == "sqs"
	if os.Getenv("REDELIVER_SOAK") != "" {
		n, p.deadline = 20*n, 30*time.Minute
	}
	p.items = makeItems(rand.New(rand.NewPCG(seed, 6)), n, onces, failAlways)
	return p
}

// address returns the address of a system's broker.
func address(t *testing.T, sys system) string {
	t.Helper()
	switch sys := sys.(type) {
	case *kafkaSystem:
		return sys.addrs[0]
	case *rabbitSystem:
		return sys.broker.Addrs()[0]
	case *sqsSystem:
		return strings.TrimPrefix(sys.proxy.URL(), "http://")
	case *redisSystem:
		return sys.broker.Addrs()[0]
	default:
		t.Fatalf("the address of a %T is unknown", sys)
		return ""
	}
}

// wantWhole checks the result of a run against the promises: all messages settled, nothing lost, early or wrong, and at
// most that many repeated runs and dead letters.
func wantWhole(t *testing.T, p plan, out outcome, most int) *checkResult {
	t.Helper()
	v := check(out.evidence)
	if !out.settled {
		t.Errorf("the group did not settle everything within %s: %s", p.deadline, out.detail)
	}
	for _, found := range []struct {
		what string
		list []string
	}{{"lost", v.lost}, {"early", v.early}, {"wrong", v.wrong}} {
		if len(found.list) > 0 {
			t.Errorf("%d %s:%s", len(found.list), found.what, few(found.list))
		}
	}
	if v.rerun > most || v.deadAgain > most {
		t.Errorf("%d runs and %d dead letters too many, at most %d are explained", v.rerun, v.deadAgain, most)
	}
	return v
}

// wantMemory compares the maximum resident memory of a consumer that has ended with a bound.
func wantMemory(t *testing.T, w *worker, bound int64) {
	t.Helper()
	switch {
	case underRace: // it multiplies memory
	case w.peak == 0:
		t.Log("report: this system does not report the peak memory of a process")
	case w.peak > bound:
		t.Errorf("the consumer had %.0f MiB resident, want at most %.0f MiB", mib(w.peak), mib(bound))
	}
}

// mib converts a number of bytes to MiB, for reports.
func mib(n int64) float64 { return float64(n) / (1 << 20) }

// enlarge gives items values of that size.
func enlarge(items []*item, size int) {
	rng := rand.NewChaCha8([32]byte{1})
	for _, it := range items {
		value := slices.Grow(it.value, size)[:max(size, len(it.value))]
		_, _ = rng.Read(value[len(it.value):]) // never fails
		it.value = value
	}
}
