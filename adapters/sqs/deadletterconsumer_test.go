package sqs

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// The consumer of a DLQ trusts the state of a dead letter only if it names this DLQ's queue and, with keys, is
// signed. Any other state is reported, and its attribute belongs to the message.
func TestConsumerOfADLQTrustsOnlyItsOwnState(t *testing.T) {
	key := []byte("a key of thirty-two random bytes")
	state := func(queue string) string {
		c := wire.Carried{Headers: driver.AppendStateHeaders(redeliver.State{ID: "a", Group: queue, Origin: queue, Attempts: 4, Reason: redeliver.ReasonPanic}, nil)}
		return c.Pack()
	}
	for name, c := range map[string]struct {
		state    string
		keys     [][]byte
		believed bool
	}{
		"its queue's":             {state("orders"), nil, true},
		"its queue's, signed":     {wire.Keys{key}.Sign(statekeys.DeadLetter, state("orders"), "body"), [][]byte{key}, true},
		"its queue's, unsigned":   {state("orders"), [][]byte{key}, false},
		"of another body":         {wire.Keys{key}.Sign(statekeys.DeadLetter, state("orders"), "other"), [][]byte{key}, false},
		"another queue's":         {state("refunds"), nil, false},
		"another queue's, ours":   {wire.Keys{key}.Sign(statekeys.DeadLetter, state("refunds"), "body"), [][]byte{key}, false},
		"of nobody":               {"{}", nil, false},
		"no state of redeliver's": {"true", nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders-dlq")
				var got []redeliver.State
				var seen []string
				client := b.start("p", "orders-dlq", Config{Policy: steps(1, time.Second), StateKeys: c.keys}, func(st redeliver.State, msg *message.Message) error {
					b.mu.Lock()
					defer b.mu.Unlock()
					got, seen = append(got, st), append(seen, msg.Metadata[StateAttribute])
					if len(got) == 1 {
						return errHandler
					}
					return nil
				})
				b.put("orders-dlq", "", "body", "", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(c.state)})
				b.advance(time.Minute)
				if len(got) != 2 {
					t.Fatalf("it ran as %+v", got)
				}
				for n, st := range got {
					if st.Attempts != n || st.Origin != "orders-dlq" || (st.DeadLetter != nil) != c.believed || (st.ID == "a") != c.believed {
						t.Errorf("attempt %d had the state %+v", n+1, st)
					}
					if c.believed && (st.DeadLetter.Reason != redeliver.ReasonPanic || st.DeadLetter.Attempts != 4 || seen[n] != "") || !c.believed && seen[n] != c.state {
						t.Errorf("attempt %d was dead-lettered as %+v, and got %q", n+1, st.DeadLetter, seen[n])
					}
				}
				if found := eventsOf[redeliver.HeadersIgnored](b); (len(found) == 0) != c.believed || len(found) > 1 || !c.believed && !strings.Contains(found[0].Findings[0].Problem, "not believed") {
					t.Errorf("reported was %+v", found)
				}
				b.close(client)
			})
		})
	}
}

// Consume passes the SQS message as it was first sent: without redeliver's attribute, with those that had no room
// beside it, and with its first MessageId.
func TestConsumeOfADLQGetsTheOriginalMessage(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders-dlq")
		c := wire.Carried{
			Headers:   driver.AppendStateHeaders(redeliver.State{ID: "first", Group: "orders", Origin: "orders", Attempts: 4, Reason: redeliver.ReasonExhausted, Error: "declined"}, nil),
			MessageID: "first", Attributes: []wire.Displaced{{Name: "tenant", Type: wire.StringType, Value: []byte("acme")}},
		}
		var got []types.Message
		var states []redeliver.State
		stop := b.consume("orders-dlq", Config{}, func(_ context.Context, st redeliver.State, m types.Message) error {
			got, states = append(got, m), append(states, st)
			return nil
		})
		b.put("orders-dlq", "", "body", "", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(c.Pack())})
		b.advance(time.Second)
		stop()
		if len(got) != 1 || states[0].DeadLetter == nil || states[0].DeadLetter.Error != "declined" || states[0].Attempt() != 1 {
			t.Fatalf("it ran as %+v", states)
		}
		m := got[0]
		if *m.Body != "body" || *m.MessageId != "first" || len(m.MessageAttributes) != 1 || *m.MessageAttributes["tenant"].StringValue != "acme" {
			t.Errorf("the handler got %s, %s, %v", *m.Body, *m.MessageId, m.MessageAttributes)
		}
	})
}
