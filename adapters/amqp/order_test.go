package amqp

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// An order that the configuration cannot keep is refused before any connection.
func TestImpossibleOrdersAreRefused(t *testing.T) {
	key := KeyHeader("customer")
	blocking := func(retries int, d time.Duration) redeliver.Policy {
		return redeliver.Policy{Order: redeliver.OrderBlocking, MaxRetries: retries, Backoff: redeliver.Fixed(d)}
	}
	byKey := func(b redeliver.Backoff) redeliver.Policy {
		return redeliver.Policy{Order: redeliver.OrderThroughRetries, MaxRetries: 3, Backoff: b}
	}
	for name, row := range map[string]struct {
		cfg  Config
		want []string
	}{
		"blocking":                            {Config{Policy: redeliver.Policy{Order: redeliver.OrderBlocking}}, nil},
		"by key":                              {Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}, Key: key}, nil},
		"by no key":                           {Config{Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}}, []string{"Key"}},
		"the queue's own policy":              {Config{Queues: map[string]redeliver.Policy{"orders": {Order: redeliver.OrderThroughRetries}}}, []string{"Key"}},
		"a policy of another queue":           {Config{Queues: map[string]redeliver.Policy{"mails": {Order: redeliver.OrderThroughRetries}}}, nil},
		"half of the timeout":                 {Config{Policy: byKey(redeliver.Fixed(15 * time.Minute)), Key: key}, nil},
		"more":                                {Config{Policy: byKey(redeliver.Fixed(15*time.Minute + 1)), Key: key}, []string{"Policy.Backoff"}},
		"more than half of a shorter timeout": {Config{Policy: byKey(redeliver.Fixed(time.Minute)), Key: key, ConsumerTimeout: time.Minute, Queues: nil}, []string{"Policy.Timeout", "Policy.Backoff"}},
		"unlisted":                            {Config{Policy: byKey(unlisted{}), Key: key}, []string{"Policy.Backoff"}},
		"waits of 30 min in all":              {Config{Policy: blocking(60, 30*time.Second)}, []string{"Policy.Backoff"}},
		"waits of a little less":              {Config{Policy: blocking(59, 30*time.Second)}, nil},
		"several consumers, by name":          {Config{Policy: blocking(1, time.Second), Topology: Topology{QueueArgs: amqp091.Table{amqp091.SingleActiveConsumerArg: false}}}, []string{"Topology.QueueArgs"}},
		"a single one, by name":               {Config{Policy: blocking(1, time.Second), Topology: Topology{QueueArgs: amqp091.Table{amqp091.SingleActiveConsumerArg: true}}}, nil},
		"several consumers by default":        {Config{Topology: Topology{QueueArgs: amqp091.Table{amqp091.SingleActiveConsumerArg: false}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := row.cfg.withDefaults()
			_, err := newLayout(&cfg, "orders")
			if got := slices.Sorted(maps.Keys(problemsOf(t, err))); !slices.Equal(got, slices.Sorted(slices.Values(row.want))) {
				t.Errorf("problems with %q, want %q: %v", got, row.want, err)
			}
		})
	}
}

// A queue that is created for an order has a single active consumer, and keeps the user's arguments.
func TestOrderedQueueHasASingleActiveConsumer(t *testing.T) {
	given := amqp091.Table{"x-max-length": 10}
	for _, args := range []amqp091.Table{nil, given} {
		cfg := Config{Policy: redeliver.Policy{Order: redeliver.OrderBlocking}, Topology: Topology{QueueArgs: args}}.withDefaults()
		l, err := newLayout(&cfg, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if origin := l.OriginQueue(); origin.Args[amqp091.SingleActiveConsumerArg] != true {
			t.Errorf("the arguments are %v", origin.Args)
		}
	}
	if len(given) != 1 {
		t.Errorf("the user's arguments are %v now", given)
	}
}

func TestTimeoutAboveConsumerTimeoutIsRefused(t *testing.T) {
	cfg := Config{Queues: map[string]redeliver.Policy{"orders": {Timeout: time.Hour}}}.withDefaults()
	_, err := newLayout(&cfg, "orders")
	if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), `Queues["orders"].Timeout is 1h0m0s: must be at most ConsumerTimeout, which is 30m0s`) {
		t.Error(err)
	}
	cfg.ConsumerTimeout = time.Hour
	if _, err := newLayout(&cfg, "orders"); err != nil {
		t.Error(err)
	}
}

// Immediate retries run while the message is unacked, so all of them must end within ConsumerTimeout.
func TestImmediateRetriesAboveConsumerTimeoutAreRefused(t *testing.T) {
	cfg := Config{Policy: redeliver.Policy{MaxRetries: 10, Immediate: 3, Timeout: 10 * time.Minute}}.withDefaults()
	_, err := newLayout(&cfg, "orders")
	if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "Policy.Immediate is 3: must be so low that (1 + Immediate) x Timeout, 4 x 10m0s, is at most ConsumerTimeout, which is 30m0s") {
		t.Error(err)
	}
	cfg.Policy.Immediate = 2
	if _, err := newLayout(&cfg, "orders"); err != nil {
		t.Error(err)
	}
	cfg.Policy.Immediate, cfg.Policy.Timeout = 10, redeliver.NoTimeout
	if _, err := newLayout(&cfg, "orders"); err != nil {
		t.Error(err)
	}
}

// Prefetched messages must begin before the broker takes them back.
func TestTooLowRateIsRefused(t *testing.T) {
	slow := redeliver.Policy{Rate: redeliver.Rate{PerSecond: 0.1, Burst: 1}}
	cfg := Config{Policy: slow, MaxInFlight: 100, MaxRetriesInFlight: 50}.withDefaults()
	_, err := newLayout(&cfg, "orders")
	if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), `Policy.Rate.PerSecond is 0.1: must let the 200 messages`) {
		t.Error(err)
	}
	cfg.MaxInFlight, cfg.MaxRetriesInFlight = 10, 10
	if _, err := newLayout(&cfg, "orders"); err != nil {
		t.Error(err)
	}
}

// By default an attempt can be extended for at most the ConsumerTimeout.
func TestMaxTimeoutIsWithinTheConsumerTimeout(t *testing.T) {
	cfg := Config{Policy: redeliver.Policy{Timeout: 10 * time.Minute}}.withDefaults()
	l, err := newLayout(&cfg, "orders")
	if err != nil || l.Policy.MaxTimeout != 30*time.Minute {
		t.Errorf("%s, want ConsumerTimeout: %v", l.Policy.MaxTimeout, err)
	}
	cfg.Policy.Immediate = 1
	if l, err = newLayout(&cfg, "orders"); err != nil || l.Policy.MaxTimeout != 15*time.Minute {
		t.Errorf("%s with an immediate retry, want half the ConsumerTimeout: %v", l.Policy.MaxTimeout, err)
	}
	cfg.Policy.Immediate, cfg.Policy.MaxTimeout = 0, time.Hour
	_, err = newLayout(&cfg, "orders")
	if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "Policy.MaxTimeout is 1h0m0s: must be at most ConsumerTimeout / (1 + Immediate), which is 30m0s") {
		t.Error(err)
	}
}
