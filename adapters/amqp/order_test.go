package amqp

import (
	"maps"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// An order that the configuration cannot keep is refused before any connection.
func TestImpossibleOrdersAreRefused(t *testing.T) {
	key := KeyHeader("customer")
	blocking := func(retries int, d time.Duration) redeliver.Policy {
		return redeliver.Policy{Order: redeliver.Blocking, MaxRetries: retries, Backoff: redeliver.Fixed(d)}
	}
	byKey := func(b redeliver.Backoff) redeliver.Policy {
		return redeliver.Policy{Order: redeliver.PerKey, MaxRetries: 3, Backoff: b}
	}
	for name, row := range map[string]struct {
		cfg  Config
		want []string
	}{
		"blocking":                            {Config{Policy: redeliver.Policy{Order: redeliver.Blocking}}, nil},
		"by key":                              {Config{Policy: redeliver.Policy{Order: redeliver.PerKey}, Key: key}, nil},
		"by no key":                           {Config{Policy: redeliver.Policy{Order: redeliver.PerKey}}, []string{"Key"}},
		"the queue's own policy":              {Config{Queues: map[string]redeliver.Policy{"orders": {Order: redeliver.PerKey}}}, []string{"Key"}},
		"a policy of another queue":           {Config{Queues: map[string]redeliver.Policy{"mails": {Order: redeliver.PerKey}}}, nil},
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
		cfg := Config{Policy: redeliver.Policy{Order: redeliver.Blocking}, Topology: Topology{QueueArgs: args}}.withDefaults()
		l, err := newLayout(&cfg, "orders")
		if err != nil {
			t.Fatal(err)
		}
		if origin := l.originQueue(cfg.Topology); origin.args[amqp091.SingleActiveConsumerArg] != true {
			t.Errorf("the arguments are %v", origin.args)
		}
	}
	if len(given) != 1 {
		t.Errorf("the user's arguments are %v now", given)
	}
}

// The answers are from RabbitMQ 3.10 and 4.0.
func TestApplyDifference(t *testing.T) {
	const begin = "PRECONDITION_FAILED - inequivalent arg "
	for _, row := range []struct {
		args   amqp091.Table
		reason string
		want   amqp091.Table // nil: it cannot be read
	}{
		{amqp091.Table{}, begin + "'x-max-length' for queue 'q' in vhost '/': received none but current is the value '10' of type 'signedint'", amqp091.Table{"x-max-length": int64(10)}},
		{amqp091.Table{}, begin + "'x-overflow' for queue 'q' in vhost '/': received none but current is the value 'reject-publish' of type 'longstr'", amqp091.Table{"x-overflow": "reject-publish"}},
		{amqp091.Table{}, begin + `'x-dead-letter-routing-key' for queue 'q' in vhost '/': received none but current is the value 'it's "theirs"' of type 'longstr'`, amqp091.Table{"x-dead-letter-routing-key": `it's "theirs"`}},
		{amqp091.Table{"a": 1}, begin + "'a' for queue 'q' in vhost '/': received the value '1' of type 'long' but current is none", amqp091.Table{}},
		{amqp091.Table{}, begin + "'a' for queue 'q' in vhost '/': received none but current is none", nil},
		{amqp091.Table{}, begin + "'x-queue-type' for queue 'q' in vhost '/': received 'classic' but current is 'quorum'", amqp091.Table{"x-queue-type": "quorum"}},
		{amqp091.Table{"k": "a"}, begin + "'k' for queue 'q' in vhost '/': received 'a' but current is 'it's b'", amqp091.Table{"k": "it's b"}},
		{amqp091.Table{}, begin + "'b' for queue 'q' in vhost '/': received none but current is the value 'true' of type 'bool'", amqp091.Table{"b": true}},
		{amqp091.Table{}, begin + "'b' for queue 'q' in vhost '/': received none but current is the value 'a name that is too lo...", nil},
		{amqp091.Table{}, "ACCESS_REFUSED - no", nil},
	} {
		if ok := applyDifference(row.args, row.reason); ok != (row.want != nil) || ok && !maps.Equal(row.args, row.want) {
			t.Errorf("%s: %v, %v; want %v", row.reason, row.args, ok, row.want)
		}
	}
}
