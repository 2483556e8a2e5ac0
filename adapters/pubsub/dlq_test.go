package pubsub

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// A panic of Config.Refused means that it does not know the error.
func TestAPanicOfRefusedIsNotARefusal(t *testing.T) {
	s := &store{cfg: &Config{Refused: func(error) bool { panic("a bug") }}}
	failure := errors.New("the connection is lost")
	if err := s.classify(&record{}, failure); !errors.Is(err, failure) || errors.Is(err, driver.ErrRefused) {
		t.Errorf("the error is %v, want %v", err, failure)
	}
}

// A message that the DLQ refuses goes there without its payload and metadata, so it does not block its Subscribe. If
// Config.Refused does not know the error, that happens once the DLQ has accepted other messages.
func TestMessageThatTheDLQRefusesBecomesAStub(t *testing.T) {
	errSize := errors.New("larger than the broker accepts")
	for name, refused := range map[string]func(error) bool{
		"the error is known":   func(err error) bool { return errors.Is(err, errSize) },
		"the error is unknown": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sink := newMemoryBroker(), &recordingSink{}
				m := b.member(t, "billing")
				cfg := checkConfig(publisherFunc{m, func(topic string, msg *message.Message) error {
					if topic == "orders.billing.dlq" && len(msg.Payload) > 100 {
						return errSize
					}
					return m.Publish(topic, msg)
				}}, m)
				cfg.Sink, cfg.Refused, cfg.MaxInFlight, cfg.Policy = sink, refused, 2, redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: redeliver.NoRetries}
				serve(t, cfg, func(*message.Message) error { return errors.New("declined") })
				large := message.NewMessage("large", make([]byte, 101))
				large.Metadata["tenant"] = "acme"
				b.put("orders", large)
				for i := range 20 {
					b.put("orders", message.NewMessage(fmt.Sprint("small ", i), []byte("payload")))
					advance(10 * time.Second)
				}
				synctest.Wait()
				b.mu.Lock()
				defer b.mu.Unlock()
				if left := b.groups[[2]string{"orders", "billing"}]; len(left) > 0 {
					t.Errorf("%d messages still wait for the DLQ", len(left))
				}
				for _, dead := range b.topics["orders.billing.dlq"] {
					if dead.UUID != "large" {
						continue
					}
					rec := newRecord(dead, true)
					if len(rec.payload) > 0 || len(rec.metadata) > 0 {
						t.Fatalf("the stub is %+v", dead)
					}
					st, _ := driver.ParseHeaders("billing", rec.headers)
					want := fmt.Sprintf("101 sha256:%x", sha256.Sum256(large.Payload))
					if st.ID != "large" || st.Reason != redeliver.ReasonUnschedulable || st.Truncated != want {
						t.Errorf("the stub has the state %+v", st)
					}
					return
				}
				t.Error("the large message is not in the DLQ")
			})
		})
	}
}
