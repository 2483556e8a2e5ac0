package dlq

import (
	"errors"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/deadletter"
)

// The management API reports the age and the bounds of a DLQ. The lowest value of an argument and two policies
// counts.
func TestAgeAndBoundsOfADLQ(t *testing.T) {
	t.Parallel()
	const dlq = "orders.dlq"
	head := time.Unix(1_700_000_000, 0).UTC()
	for name, test := range map[string]struct {
		api         *amqptest.API // nil: no management API
		keeps       time.Duration
		drops       string
		oldest      time.Time
		notReported bool
	}{
		"no API":     {notReported: true},
		"not listed": {api: &amqptest.API{}, notReported: true},
		"forever":    {api: &amqptest.API{Queues: []amqptest.Fields{{"name": dlq, "type": "quorum", "messages": 3}}}},
		"empty": {api: &amqptest.API{Queues: []amqptest.Fields{
			{"name": dlq, "type": "classic", "messages": 0, "head_message_timestamp": head.Unix()},
		}}},
		"a text": {api: &amqptest.API{Queues: []amqptest.Fields{{"name": dlq, "type": "classic", "messages": 1, "head_message_timestamp": ""}}}},
		"bounded": {
			api: &amqptest.API{
				Queues: []amqptest.Fields{{
					"name": dlq, "type": "classic", "messages": 3, "head_message_timestamp": head.Unix(), "arguments": amqptest.Fields{"x-message-ttl": 3_600_000, "x-max-length": 10},
				}},
				Policy:   []amqptest.Fields{{"name": "short", "pattern": "dlq$", "apply-to": "queues", "definition": amqptest.Fields{"message-ttl": 60_000}}},
				Operator: []amqptest.Fields{{"name": "small", "pattern": ".*", "apply-to": "queues", "definition": amqptest.Fields{"max-length": 5}}},
			},
			keeps: time.Minute, drops: `max-length=5 by operator policy "small"`, oldest: head,
		},
		"at once": {api: &amqptest.API{Queues: []amqptest.Fields{{"name": dlq, "type": "quorum", "arguments": amqptest.Fields{"x-message-ttl": 0}}}}, keeps: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opt Options
			if test.api != nil {
				opt.Management = management.New(test.api.Start(t), "amqp://localhost/", amqp091.Config{})
			}
			q := &Queue{Options: opt, info: deadletter.Info{DLQ: dlq}}
			keeps, err := q.Retention(t.Context())
			if keeps != test.keeps || (err != nil) != test.notReported || err != nil && !errors.Is(err, deadletter.ErrNotReported) {
				t.Errorf("a message is kept for %s, want %s: %v", keeps, test.keeps, err)
			}
			drops, err := q.DropLimit(t.Context())
			if drops != test.drops || (err != nil) != test.notReported || err != nil && !errors.Is(err, deadletter.ErrNotReported) {
				t.Errorf("it is bounded by %q, want %q: %v", drops, test.drops, err)
			}
			oldest, ok, err := q.Oldest(t.Context())
			if err != nil || ok == test.oldest.IsZero() || !oldest.Equal(test.oldest) {
				t.Errorf("the oldest is of %s (%v), want %s: %v", oldest, ok, test.oldest, err)
			}
		})
	}
}

// Messages that a consumer of another program holds are in the DLQ. A check that did not count them would be green on a full DLQ.
func TestMessagesThatAConsumerHoldsAreCounted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		queues []amqptest.Fields
		want   int64
		known  bool
	}{
		"held":        {[]amqptest.Fields{{"name": "orders.dlq", "messages": 300, "messages_ready": 0, "messages_unacknowledged": 300}}, 300, true},
		"all ready":   {[]amqptest.Fields{{"name": "orders.dlq", "messages": 300, "messages_ready": 300, "messages_unacknowledged": 0}}, 0, true},
		"not counted": {[]amqptest.Fields{{"name": "orders.dlq"}}, 0, false},
		"not listed":  {nil, 0, false},
	} {
		q := &Queue{info: deadletter.Info{DLQ: "orders.dlq"}}
		q.Management = management.New((&amqptest.API{Queues: test.queues}).Start(t), "amqp://localhost/", amqp091.Config{})
		if held, known, err := q.unacked(t.Context()); err != nil || held != test.want || known != test.known {
			t.Errorf("%s: %d are held (%v), want %d (%v): %v", name, held, known, test.want, test.known, err)
		}
	}
	if _, known, err := (&Queue{}).unacked(t.Context()); known || err != nil {
		t.Errorf("without a management API the count is known: %v", err)
	}
}
