package amqp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/consumer"
)

// A consumer of an ordered queue runs in its own process, which is killed: this binary, started again with orderEnv
// set.
const orderEnv = "REDELIVER_TEST_AMQP_ORDER"

// orderConfig is the configuration of the children, in orderEnv.
type orderConfig struct {
	URL     string          `json:"url"`
	Queue   string          `json:"queue"`
	Order   redeliver.Order `json:"order"`
	Journal string          `json:"journal"`
	Seed    uint64          `json:"seed"`
	// If Retries is set, the first message of the first two keys fails with all that many retries, and the others succeed.
	Retries int           `json:"retries"`
	Wait    time.Duration `json:"wait"`
}

const (
	orderKeys    = 6
	orderEach    = 40
	orderRetries = 3
)

// orderID is the id of a message: its key, and its place among those of the key.
func orderID(key, n int) string { return fmt.Sprintf("key-%d/%d", key, n) }

// keyOf returns the key of a message.
func keyOf(d amqp091.Delivery) string {
	key, _, _ := strings.Cut(d.MessageId, "/")
	return key
}

// fails reports whether an attempt fails, the same in every process. Some messages always fail, some once or a few
// times.
func (c orderConfig) fails(id string, attempt int) bool {
	if c.Retries > 0 {
		return id == orderID(0, 0) || id == orderID(1, 0)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // a hash never fails
	r := mathrand.New(mathrand.NewPCG(c.Seed, h.Sum64()))
	switch n := r.IntN(100); {
	case n < 5:
		return true
	case n < 20:
		return attempt <= 1+r.IntN(orderRetries)
	default:
		return false
	}
}

// orderChild consumes until it gets SIGTERM or is killed. All processes append to one journal, each line with one
// write, so the lines are in order.
func orderChild(raw string) error {
	var cfg orderConfig
	if err := json.Unmarshal([]byte(raw), &cfg); err != nil {
		return err
	}
	journal, err := os.OpenFile(cfg.Journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	note := func(what, id string, attempt int) {
		if _, err := fmt.Fprintf(journal, "%s %s %d %d\n", what, id, attempt, os.Getpid()); err != nil {
			panic(err)
		}
	}
	policy := redeliver.Policy{Order: cfg.Order, MaxRetries: orderRetries, Backoff: redeliver.Steps(20*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond)}
	if cfg.Retries > 0 {
		policy.MaxRetries, policy.Backoff, policy.MaxCrashes = cfg.Retries, redeliver.Fixed(cfg.Wait), 100
	}
	policy.Outage.Off = true
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	return amqp.Consume(ctx, amqp.Config{
		URLs: []string{cfg.URL}, Key: keyOf, MaxInFlight: 10, Prefetch: 40, DrainTimeout: 2 * time.Second,
		Policy: policy,
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if e, ok := e.(redeliver.DeadLettered); ok {
				note("settled", e.State.ID, e.State.Attempts)
			}
		}),
	}, []string{cfg.Queue}, func(ctx context.Context, d amqp091.Delivery) error {
		st, _ := redeliver.FromContext(ctx)
		note("begin", d.MessageId, st.Attempt())
		waitFor(time.Duration(mathrand.IntN(6)) * time.Millisecond)
		if cfg.fails(d.MessageId, st.Attempt()) {
			return errHandler
		}
		note("settled", d.MessageId, st.Attempt())
		return nil
	})
}

func startOrder(t *testing.T, cfg orderConfig, number int) *consumer.Process {
	t.Helper()
	p, err := consumer.Start(orderEnv, cfg, filepath.Join(filepath.Dir(cfg.Journal), fmt.Sprintf("consumer-%d.log", number)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(syscall.SIGKILL) })
	return p
}
