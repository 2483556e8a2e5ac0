package cli

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

// named is a DLQ that has only a name.
type named struct {
	deadletter.Queue
	info deadletter.Info
}

func (n named) Info() deadletter.Info { return n.info }
func (n named) Close() error          { return nil }

// listing returns a broker that lists its DLQs. Those of a topic "shut" cannot be opened.
func listing(names ...string) *source {
	b := &broker{kind: brokerurl.Kafka, close: func(context.Context) error { return nil }}
	b.queues = func(context.Context) (all []deadletter.Info, err error) {
		for _, name := range names {
			all = append(all, deadletter.Info{DLQ: name + ".dlq", Origin: name})
		}
		return all, nil
	}
	b.dlq = func(_ context.Context, of subject) (deadletter.Queue, error) {
		if of.topic == "shut" {
			return nil, errors.New("not authorised for amqp://ann:secret@rabbit")
		}
		return named{info: deadletter.Info{DLQ: of.topic + ".dlq", Origin: of.topic}}, nil
	}
	b.ownerOf = func(_ context.Context, dlq string) (topic, group string, err error) {
		return strings.TrimSuffix(dlq, ".dlq"), "", nil
	}
	b.waiting = func(context.Context, subject) (*waiting, error) {
		return &waiting{levels: func(context.Context) ([]deadletter.WaitingLevel, error) { return nil, nil }}, nil
	}
	return &source{name: "eu", b: b}
}

// A DLQ that cannot be opened does not hide the others.
func TestAConsoleShowsTheOthersWhereOneDoesNotOpen(t *testing.T) {
	t.Parallel()
	eu := listing("orders", "shut", "mails")
	s := &sources{brokers: []*source{eu}}
	if err := s.open(t.Context(), eu); err != nil {
		t.Fatal(err)
	}
	notes := s.notes()
	if len(s.queues) != 2 || s.queues[1].Info().Origin != "mails" || len(notes) != 1 || !strings.HasPrefix(notes[0], "eu/shut.dlq: not authorised") || strings.Contains(notes[0], "secret") {
		t.Errorf("%d are shown, and it says %q", len(s.queues), notes)
	}
	only := listing("orders")
	only.dlqs = []subject{{dlq: "shut.dlq"}}
	if err := (&sources{}).open(t.Context(), only); err == nil || !strings.Contains(err.Error(), "not authorised") {
		t.Errorf("one that was named: %v", err)
	}
	s = &sources{}
	if err := s.open(t.Context(), listing()); err != nil || len(s.notes()) != 1 || !strings.Contains(s.notes()[0], "no DLQs yet") {
		t.Errorf("without one it says %q: %v", s.notes(), err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := (&sources{}).open(ended, listing("shut")); err == nil {
		t.Error("it continues although it was asked to end")
	}
}

// The levels of our default policy alone would be too few.
func TestRabbitMQReportsNoWaitingMessagesWithoutItsManagementAPI(t *testing.T) {
	t.Parallel()
	asked := 0
	b := listing("orders").b
	b.kind = brokerurl.RabbitMQ
	b.waiting = func(context.Context, subject) (*waiting, error) {
		return &waiting{levels: func(context.Context) ([]deadletter.WaitingLevel, error) {
			asked++
			return nil, nil
		}}, nil
	}
	list := b.queues
	b.queues = nil
	q, err := b.withGroup(t.Context(), named{})
	if _, tells := q.(console.Waiter); tells || err == nil || !strings.Contains(err.Error(), "--management-url") || asked > 0 {
		t.Errorf("it reports %v, and was asked %d times: %v", tells, asked, err)
	}
	b.queues = list
	q, err = b.withGroup(t.Context(), named{})
	if _, tells := q.(console.Waiter); !tells || err != nil {
		t.Errorf("with it, it reports %v: %v", tells, err)
	}
}

// The consumers of a share group take no commands, and cannot be paused.
func TestAConsoleOnlyCountsWhatWaitsForAShareGroup(t *testing.T) {
	t.Parallel()
	b := listing("orders").b
	var refused error
	b.waiting = func(context.Context, subject) (*waiting, error) {
		return &waiting{levels: func(context.Context) ([]deadletter.WaitingLevel, error) { return nil, refused }}, nil
	}
	for _, refused = range []error{nil, errors.New("not authorised")} {
		q, err := b.withGroup(t.Context(), named{})
		_, counts := q.(console.Waiter)
		_, pauses := q.(console.Pauser)
		_, commands := q.(console.Commander)
		if !errors.Is(err, refused) || counts != (refused == nil) || pauses || commands {
			t.Errorf("%v: it counts %v, pauses %v, and commands %v: %v", refused, counts, pauses, commands, err)
		}
	}
}
