//go:build prove

package boto_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/fidelity"
)

// sized returns a message with this size of body and attributes together.
func sized(size int, others attributes) wire {
	m := wire{Attributes: others}
	for name, a := range others {
		n := len(a.Value)
		if strings.HasPrefix(a.Type, "Binary") {
			n /= 2
		}
		size -= len(name) + len(a.Type) + n
	}
	head := fmt.Sprint(size, " ")
	m.Body = head + strings.Repeat("x", size-len(head))
	return m
}

// A message without room for redeliver's state is retried like any other, and its dead letter is complete; only the
// state shrinks. Neither server counts body and attributes together, but the proxy does.
func TestMessagesAtTheSizeLimit(t *testing.T) {
	for _, kind := range []string{standard, fifo} {
		t.Run("queue"+kind, func(t *testing.T) {
			on(t, kind, func(t *testing.T, b *fixture) {
				b.handler = func(*message.Message) error { return errors.New(strings.Repeat("error ", 400)) }
				b.start(b.config(policy))
				limit := b.server.limit
				var msgs []wire
				for _, room := range []int{0, 1, 10, 100, 200, 300, 400, 500, 700, 1000, 1500, 2000, 3000} {
					msgs = append(msgs, sized(limit-room, nil))
				}
				msgs = append(msgs, sized(limit-5, ten()), sized(limit-50, kinds()), sized(limit-900, ten()))
				for i := range msgs {
					if kind == fifo {
						msgs[i].Group, msgs[i].Dedup = fmt.Sprint(i), fidelity.Unique("dedup")
					}
				}
				msgs = b.peer.put(t, b.queue, msgs...)
				dead := b.deadLetters(len(msgs))
				sights := b.observations()
				bare, withReason := 0, 0 // the largest room without a state, the smallest with a reason
				for _, m := range msgs {
					name := fmt.Sprintf("%d bytes with %d attributes", len(m.Body), len(m.Attributes))
					all := sights[m.Body]
					if len(all) != 3 {
						t.Errorf("%s ran %d times, want 3", name, len(all))
					}
					for _, s := range all {
						wantSame(t, name, s.wire, m)
					}
					letter := dead[m.Body]
					ours := state(t, &letter)
					wantSame(t, name+", in the DLQ", letter, m)
					room := limit - len(m.Body)
					if len(m.Attributes) > 0 {
						continue
					}
					if reason := ours[redeliver.HeaderReason]; reason == "exhausted" {
						withReason = max(withReason, len(m.Body))
					} else if reason == "" {
						bare = max(bare, room)
					} else {
						t.Errorf("%s is in the DLQ with %v", name, ours)
					}
				}
				t.Logf("report: %s, limit of %d bytes: dead letters of up to %d bytes say why, %d bytes of room are not enough", b.server.name, limit, withReason, bare)
				if withReason < limit-1000 {
					t.Errorf("a message with 1,000 bytes of room does not say why it is in the DLQ")
				}
			}, elasticMQ(t), moto(t))
		})
	}
}

// The queue's own limit applies if it reports one. moto reports MaximumMessageSize, ElasticMQ does not.
func TestTheMaximumMessageSizeOfTheQueue(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		const limit = 4096
		b.queue = fidelity.Unique("small")
		b.peer.create(t, b.queue, map[string]string{"MaximumMessageSize": fmt.Sprint(limit), "VisibilityTimeout": "20"})
		b.peer.create(t, b.beside("-dlq"), map[string]string{"MaximumMessageSize": fmt.Sprint(limit), "MessageRetentionPeriod": "1209600"})
		b.proxy.SetLimit(limit)
		b.handler = func(*message.Message) error { return errors.New(strings.Repeat("error ", 400)) }
		b.start(b.config(policy))
		msgs := b.peer.put(t, b.queue, sized(limit, nil), sized(limit-50, nil), sized(limit-600, kinds()), sized(limit-1, ten()))
		dead := b.deadLetters(len(msgs))
		for _, m := range msgs {
			if n := len(b.observations()[m.Body]); n != 3 {
				t.Errorf("%d bytes ran %d times, want 3", len(m.Body), n)
			}
			letter := dead[m.Body]
			state(t, &letter)
			wantSame(t, fmt.Sprintf("%d bytes in the DLQ", len(m.Body)), letter, m)
		}
	}, moto(t))
}
