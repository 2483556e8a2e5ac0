//go:build prove

package boto_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/fidelity"
)

// inGroup returns a message of a group, with its own deduplication id.
func inGroup(group, body string) wire {
	return wire{Body: body, Attributes: attributes{"a": str("b")}, Group: group, Dedup: fidelity.Unique("dedup")}
}

// Group and deduplication id are the same at every attempt. A dead letter is in the FIFO DLQ, in its group.
func TestGroupAndDeduplicationAreKept(t *testing.T) {
	on(t, fifo, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		m := inGroup("g!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "one")
		m.Trace = b.trace()
		msgs := b.peer.put(t, b.queue, m, inGroup(strings.Repeat("g", 128), "two"))
		b.unchanged(msgs)
		for _, m := range msgs {
			for _, s := range b.observations()[m.Body] {
				if s.Dedup != m.Dedup {
					t.Errorf("attempt %d of %s has the deduplication id %q, want %q", s.attempt, m.Body, s.Dedup, m.Dedup)
				}
			}
		}
		b.events.NoProblems(b.T)
	}, elasticMQ(t), moto(t))
}

// A failing head blocks its group: each of the nine others runs once, after it and in order. Another group continues.
func TestAFailingHeadKeepsItsGroupBehindIt(t *testing.T) {
	on(t, fifo, func(t *testing.T, b *fixture) {
		ended := make(chan string, 20)
		b.handler = func(msg *message.Message) error {
			st, _ := redeliver.FromContext(msg.Context())
			if string(msg.Payload) == "head" && st.Attempt() < 5 {
				return fidelity.ErrDeclined
			}
			ended <- string(msg.Payload)
			return nil
		}
		p := policy
		p.MaxRetries, p.Backoff = 5, redeliver.Fixed(300*time.Millisecond)
		want := []string{"head"}
		msgs := []wire{inGroup("a", "head")}
		for i := range 9 {
			body := fmt.Sprint("behind ", i)
			want = append(want, body)
			msgs = append(msgs, inGroup("a", body))
		}
		b.peer.put(t, b.queue, append(msgs, inGroup("b", "other"))...)
		b.start(b.config(p))
		var got []string
		for range len(want) + 1 {
			if body := fidelity.Within(t, ended); body != "other" {
				got = append(got, body)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("they ended as %v, want %v", got, want)
		}
		for body, all := range b.observations() {
			if want := map[string]int{"head": 5}[body]; len(all) != max(1, want) {
				t.Errorf("%s ran %d times, want %d", body, len(all), max(1, want))
			}
		}
		b.events.NoProblems(b.T)
	}, elasticMQ(t), moto(t))
}

// SQS drops a message whose deduplication id it has seen within five minutes. That must not happen to a retry or a
// dead letter. Two messages with one deduplication id in different queues, and a dead letter that is sent again and
// fails again, all reach the DLQ.
func TestDeduplicationDropsNoDeadLetter(t *testing.T) {
	// moto forgets a deduplication id when its message is deleted, so it proves nothing here.
	on(t, fifo, func(t *testing.T, b *fixture) {
		b.handler = func(*message.Message) error { return redeliver.Permanent(errors.New("no")) }
		b.start(b.config(policy))
		m := inGroup("a", "again")
		m.Attributes["_watermill_message_uuid"] = str("u-1")
		b.peer.put(t, b.queue, m)
		first := b.deadLetters(1)["again"]
		m.Dedup = fidelity.Unique("dedup") // the user sends it again with the same id and body
		b.peer.put(t, b.queue, m)
		second := b.deadLetters(1)["again"]
		if first.Dedup == second.Dedup {
			t.Errorf("both dead letters have the deduplication id %s", first.Dedup)
		}
		b.events.NoProblems(b.T)
	}, elasticMQ(t))
}
