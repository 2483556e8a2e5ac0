package adaptertest

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// publishing tests messages that a handler produces, and delayed publishes.
func publishing() []test {
	return []test{
		{name: "AFailedPublishFailsTheAttempt", body: publishInside},
		{name: "ADelayedPublishArrivesWhenDue", needs: "DelayedPublish", body: delayed},
		{name: "ATooLongDelayIsRefused", body: delayedTooLong},
	}
}

// refusingPublisher is a publisher whose topic does not exist.
type refusingPublisher struct{ calls atomic.Int32 }

func (p *refusingPublisher) Publish(string, ...*message.Message) error {
	p.calls.Add(1)
	return errors.New("no such topic")
}

func (p *refusingPublisher) Close() error { return nil }

func publishInside(b *fixture) {
	pub := &refusingPublisher{}
	inside := middleware.PublishInside(pub, "invoices")(func(msg *message.Message) ([]*message.Message, error) {
		return message.Messages{message.NewMessage("of "+msg.UUID, nil)}, nil
	})
	b.start(Config{Policy: quickPolicy(2)}, func(a *attempt) error {
		_, err := inside(a.Msg)
		return err
	})
	b.handled("a")
	b.wantRuns("a", 3)
	if n := pub.calls.Load(); n != 3 {
		b.Errorf("published %d times, want once for each attempt", n)
	}
	if st := b.checkDeadLetter(redeliver.ReasonExhausted, 3); !strings.Contains(st.Error, "no such topic") || !strings.Contains(st.Error, "invoices") {
		b.Errorf("the dead letter says %q, want which topic refused and why", st.Error)
	}
}

func delayed(b *fixture) {
	p := b.start(Config{Policy: redeliver.Policy{Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}}}, succeed)
	due := make(map[string]time.Time)
	var msgs []*message.Message
	var ids []string
	for _, ms := range []int{0, 20, 100, 250, 700, 1300} {
		wait := time.Duration(ms) * time.Millisecond
		id := "in " + wait.String()
		msg := message.NewMessage(id, []byte(id))
		due[id] = time.Now().Add(wait)
		if wait > 0 {
			delay.Message(msg, delay.For(wait))
		}
		msgs, ids = append(msgs, msg), append(ids, id)
	}
	if err := p.svc.Publisher().Publish(b.origin, msgs...); err != nil {
		b.Fatal(err)
	}
	b.awaitEnds(ids...)
	for _, id := range ids {
		b.wantRuns(id, 1)
		for _, a := range b.ran(id) {
			if a.Began.Before(due[id]) {
				b.Errorf("%s came %s early", id, due[id].Sub(a.Began))
			}
			if a.UUID != id || string(a.Payload) != id || a.State.Error != "" {
				b.Errorf("%s came as %s, %q, with the error %q", id, a.UUID, a.Payload, a.State.Error)
			}
		}
	}
	b.dead(0)
}

func delayedTooLong(b *fixture) {
	p := b.start(Config{Policy: quickPolicy(1)}, succeed)
	msgs := []*message.Message{message.NewMessage("before", []byte("v")), message.NewMessage("too late", []byte("v")), message.NewMessage("behind", []byte("v"))}
	delay.Message(msgs[1], delay.For(redeliver.MaxWait+24*time.Hour))
	err := p.svc.Publisher().Publish(b.origin, msgs...)
	if text := fmt.Sprint(err); !errors.Is(err, redeliver.ErrUnschedulable) || !strings.Contains(text, "too late") ||
		strings.Contains(text, "before") || strings.Contains(text, "behind") {
		b.Errorf("publishing: %v, want that the second message alone is unschedulable", err)
	}
	b.awaitEnds("before", "behind")
	b.wantRuns("too late", 0)
}
