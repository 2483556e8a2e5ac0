package pubsub

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// A record has its own payload and shares the metadata, which never changes. Other receivers and handlers may change
// their messages without changing the record.
func TestRecordDoesNotChange(t *testing.T) {
	raw := message.NewMessage("a", []byte("payload"))
	raw.Metadata["tenant"] = "acme"
	rec := newRecord(raw, true)
	other := raw.Copy() // like an in-process Pub/Sub for the next subscriber
	other.Payload[0] = 'X'
	msg, err := toWatermill(nil)(&driver.Message[*record]{Record: rec})
	if err != nil {
		t.Fatal(err)
	}
	if string(msg.Payload) != "payload" {
		t.Errorf("a handler gets %q, which another subscriber has changed", msg.Payload)
	}
	msg.Payload[0], msg.Metadata["tenant"] = 'P', "another"
	if string(raw.Payload) != "Xayload" || raw.Metadata["tenant"] != "acme" {
		t.Errorf("a handler has changed the message of the subscriber: %q, %v", raw.Payload, raw.Metadata)
	}
	ours, err := rec.withState(&carried{publish: true})
	if err != nil {
		t.Fatal(err)
	}
	if string(ours.Payload) != "payload" || ours.Metadata["tenant"] != "acme" {
		t.Errorf("the other parts are %q, %v", ours.Payload, ours.Metadata)
	}
	ours.Payload[0] = 'Y' // a publisher changes the message that it fails to write
	if again := rec.unmarshal(); string(again.Payload) != "payload" {
		t.Errorf("a second write is %q", again.Payload)
	}
	entry := ours.Metadata[StateKey]
	if rec := newRecord(ours, true); len(rec.headers) == 0 && !rec.publish || rec.metadata[StateKey] != "" || ours.Metadata[StateKey] != entry {
		t.Errorf("redeliver's entry is still in the record, or was removed from the message: %v, %v", rec.metadata, ours.Metadata)
	}
}

// sharingSubscriber is a subscriber that gives others the same payload.
type sharingSubscriber struct {
	message.Subscriber
	mu  sync.Mutex
	all [][]byte
}

func (s *sharingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	in, err := s.Subscriber.Subscribe(ctx, topic)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		for msg := range in {
			s.mu.Lock()
			s.all = append(s.all, msg.Payload)
			s.mu.Unlock()
			select {
			case out <- msg:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// Another subscriber may change a payload in place. That does not change the copies for the level and the DLQ.
func TestOtherSubscribersCannotChangeADeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBroker()
		m := b.member(t, "billing")
		sub := &sharingSubscriber{Subscriber: m}
		cfg := checkConfig(m, sub)
		cfg.Policy = redeliver.Policy{MaxRetries: 1}
		serve(t, cfg, func(msg *message.Message) error {
			if string(msg.Payload) != "payload" {
				t.Errorf("the handler got %q", msg.Payload)
			}
			msg.Payload[0] = 'P'
			sub.mu.Lock()
			defer sub.mu.Unlock()
			for _, payload := range sub.all {
				payload[0] = 'X'
			}
			return errors.New("declined")
		})
		b.put("orders", message.NewMessage("a", []byte("payload")))
		advance(time.Minute)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if dead := b.topics["orders.billing.dlq"]; len(dead) != 1 || string(dead[0].Payload) != "payload" {
			t.Errorf("in the DLQ: %+v", dead)
		}
	})
}

// The engine frees settled messages earlier if it knows their size.
func TestTheSizeOfAMessageIsThatOfItsPayload(t *testing.T) {
	s := &source{r: &reader{}}
	m := &driver.Message[*record]{Record: newRecord(message.NewMessage("a", make([]byte, 5000)), false)}
	if err := s.Parse(m); err != nil || m.Size != 5000 {
		t.Errorf("a size of %d, want 5000: %v", m.Size, err)
	}
}
