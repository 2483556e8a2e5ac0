package sqs

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// failOnce makes the first entry of a batch for queue with this body fail for a moment, within a successful answer.
func (b *bubble) failOnce(queue, body string) {
	failed := false
	b.setFault(func(c *sqsfake.Call) *sqsfake.Fault {
		if c.Action != "SendMessageBatch" || c.Queue != queue {
			return &sqsfake.Fault{}
		}
		return sqsfake.FailedEntries("InternalError", func(e map[string]any) bool {
			fails := !failed && e["MessageBody"] == body
			failed = failed || fails
			return fails
		})
	})
}

// groupsIn returns the bodies of each group of a queue, in the order in which they were sent.
func (b *bubble) groupsIn(queue string) map[string][]string {
	groups := make(map[string][]string)
	for _, m := range b.Messages(queue) {
		groups[m.Group] = append(groups[m.Group], m.Body)
	}
	return groups
}

func (b *bubble) wantInOrder(what, queue string, want map[string][]string) {
	b.Helper()
	got := b.groupsIn(queue)
	for group, bodies := range want {
		if !slices.Equal(got[group], bodies) {
			b.Errorf("%s: group %s has %q, want %q", what, group, got[group], bodies)
		}
	}
}

// SQS refuses one entry of a request for a moment and accepts those behind it. None overtakes it in its group: not in Publish, which a
// caller repeats, and not in a replay, which is resumed. Messages of other groups are sent.
func TestAFailedEntryIsNotOvertakenInItsGroup(t *testing.T) {
	want := map[string][]string{"a": {"a0", "a1", "a2", "a3"}, "b": {"b0", "b1", "b2", "b3"}}
	for _, bad := range want["a"] {
		inBubble(t, func(b *bubble) {
			b.Create("orders.fifo")
			c := b.client(b.T, Config{GroupID: func(_ string, m *message.Message) string { return string(m.Payload[:1]) }})
			var all []*message.Message
			for i := range 4 {
				for _, group := range []string{"a", "b"} {
					all = append(all, message.NewMessage(fmt.Sprint(group, i), fmt.Append(nil, group, i)))
				}
			}
			b.failOnce("orders.fifo", bad)
			if err := c.Publisher().Publish("orders.fifo", all...); err == nil {
				b.Error("Publish returns no error for a message that SQS refused")
			}
			b.wantInOrder("after the failure", "orders.fifo", map[string][]string{"b": want["b"]})
			if err := c.Publisher().Publish("orders.fifo", all...); err != nil { // their ids deduplicate
				b.Error(err)
			}
			b.wantInOrder("published with a failure of "+bad, "orders.fifo", want)
		})
		inBubble(t, func(b *bubble) {
			q := openTestDLQ(b.T, b.fake, "orders.fifo", 0, "")
			defer q.Close()
			for i := range 4 {
				for _, group := range []string{"a", "b"} {
					b.put("orders-dlq.fifo", fmt.Sprint(group, i), fmt.Sprint(group, i), group, nil)
				}
			}
			b.failOnce("orders.fifo", bad)
			task, err := deadletter.Replay(b.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test"})
			if err == nil {
				b.Error("the replay reports no failure")
			}
			if _, err = deadletter.Resume(b.Context(), q, task.ID, deadletter.ResumeOptions{Who: "ann"}); err != nil {
				b.Error(err)
			}
			b.wantInOrder("replayed with a failure of "+bad, "orders.fifo", want)
		})
	}
}
