package amqp

import (
	"errors"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/deadletter"
)

// The management API reports the age and the bounds of a DLQ. The lowest value of an argument and two policies
// counts.
func TestAgeAndBoundsOfADLQ(t *testing.T) {
	t.Parallel()
	const dlq = "orders.dlq"
	head := time.Unix(1_700_000_000, 0).UTC()
	for name, test := range map[string]struct {
		api         *fakeAPI // nil: no management API
		keeps       time.Duration
		drops       string
		oldest      time.Time
		notReported bool
	}{
		"no API":     {notReported: true},
		"not listed": {api: &fakeAPI{}, notReported: true},
		"forever":    {api: &fakeAPI{queues: []fields{{"name": dlq, "type": "quorum", "messages": 3}}}},
		"empty": {api: &fakeAPI{queues: []fields{
			{"name": dlq, "type": "classic", "messages": 0, "head_message_timestamp": head.Unix()},
		}}},
		"a text": {api: &fakeAPI{queues: []fields{{"name": dlq, "type": "classic", "messages": 1, "head_message_timestamp": ""}}}},
		"bounded": {
			api: &fakeAPI{
				queues: []fields{{
					"name": dlq, "type": "classic", "messages": 3, "head_message_timestamp": head.Unix(), "arguments": fields{"x-message-ttl": 3_600_000, "x-max-length": 10},
				}},
				policy:   []fields{{"name": "short", "pattern": "dlq$", "apply-to": "queues", "definition": fields{"message-ttl": 60_000}}},
				operator: []fields{{"name": "small", "pattern": ".*", "apply-to": "queues", "definition": fields{"max-length": 5}}},
			},
			keeps: time.Minute, drops: `max-length=5 by operator policy "small"`, oldest: head,
		},
		"at once": {api: &fakeAPI{queues: []fields{{"name": dlq, "type": "quorum", "arguments": fields{"x-message-ttl": 0}}}}, keeps: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var opt dlqOptions
			if test.api != nil {
				opt.Management = newManagement(test.api.start(t), "amqp://localhost/", amqp091.Config{})
			}
			q := &deadLetters{dlqOptions: opt, info: deadletter.Info{DLQ: dlq}}
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
