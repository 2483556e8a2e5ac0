package amqp_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/mq"
)

type fields = map[string]any

// plannedQueue is a queue on a broker whose policies a test may change, with the configuration that reads it.
type plannedQueue struct {
	*admin
	queue  string
	config amqp.Config
	events chan redeliver.Event
	users  map[string]bool // users that it has created
}

func newPlannedQueue(t *testing.T, r *brokers.Rabbit, name string) *plannedQueue {
	p := &plannedQueue{admin: newAdmin(t, r), queue: name, events: make(chan redeliver.Event, 1000), users: make(map[string]bool)}
	p.config = amqp.Config{
		URLs: []string{r.URL()}, ManagementURL: r.Management(),
		Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second}},
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			select {
			case p.events <- e:
			default:
			}
		}),
	}
	return p
}

func (p *plannedQueue) open(t *testing.T) *mq.Client {
	t.Helper()
	c, err := amqp.Open(context.Background(), p.config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// declare declares the queues of a subscription and reads nothing.
func (p *plannedQueue) declare(t *testing.T) {
	t.Helper()
	if err := p.open(t).Subscriber().SubscribeInitialize(p.queue); err != nil {
		t.Fatal(err)
	}
}

// eventually calls Plan until it has a note, because the broker counts its queues every few seconds.
func (p *plannedQueue) eventually(t *testing.T, want string) *mq.Plan {
	t.Helper()
	return p.until(t, "it has a note "+want, func(plan *mq.Plan) bool { return has(plan.Notes, want) })
}

// until calls Plan until ok accepts it.
func (p *plannedQueue) until(t *testing.T, what string, ok func(*mq.Plan) bool) *mq.Plan {
	t.Helper()
	c, deadline := p.open(t), time.After(maxWait)
	for {
		plan, err := c.Plan(context.Background(), p.queue)
		if err != nil {
			t.Fatal(err)
		}
		if ok(plan) {
			return plan
		}
		select {
		case <-deadline:
			t.Fatalf("the plan never satisfies this: %s:\n%s", what, plan)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func has(lines []string, want string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) })
}
