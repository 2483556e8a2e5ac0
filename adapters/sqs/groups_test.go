package sqs

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
)

// A waiting receive does not notice that a group becomes free. If pollers waited while this process holds the group, a
// queue of one group would deliver only ten messages in each WaitTime.
func TestNextMessagesOfAGroupComeAtOnce(t *testing.T) {
	for name, takes := range map[string]time.Duration{"quick": 0, "slow": 4700 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders.fifo")
				for i := range 95 {
					b.put("orders.fifo", fmt.Sprint("m", i), "v", "g", nil)
				}
				c := b.start("one", "orders.fifo", Config{Pollers: 1}, func(redeliver.State, *message.Message) error {
					<-time.After(takes)
					return nil
				})
				b.advance(95*takes + 2*time.Second)
				if n := len(b.ran("")); n != 95 {
					b.Errorf("%d of 95 ran", n)
				}
				// A poller and watchFreedGroups may receive at once, and one of them gets nothing.
				if takes == 0 && b.Blocked() > 4 {
					b.Errorf("%d receives waited for a held group", b.Blocked())
				}
				b.close(c)
			})
		})
	}
}

// New messages of other groups do not wait for a group that is held for hours, and few requests are needed.
func TestOtherGroupsDoNotWaitForAHeldGroup(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c := b.start("one", "orders.fifo", Config{Policy: steps(1, 3*time.Hour)}, func(st redeliver.State, _ *message.Message) error {
			if st.ID == "head" {
				return errHandler
			}
			return nil
		})
		for i := range 15 {
			b.put("orders.fifo", []string{"head", fmt.Sprint("behind", i)}[min(i, 1)], "v", "g", nil)
		}
		b.advance(time.Minute)
		before := b.Count("ReceiveMessage")
		b.advance(time.Hour)
		if n := b.Count("ReceiveMessage") - before; n > 2*int(time.Hour/defaultWaitTime) { // including those for suspects
			b.Errorf("%d receives in an hour", n)
		}
		at := time.Since(b.began)
		b.put("orders.fifo", "other", "v", "h", nil)
		b.advance(time.Minute)
		if runs := b.ran("other"); len(runs) != 1 || runs[0].at > at+time.Second {
			b.Errorf("ran %v, sent at %s", runs, at)
		}
		b.close(c)
	})
}

// SQS replaces a wait of 0 s, which the SDK omits, by the queue's own wait.
func TestQueueWithItsOwnReceiveWait(t *testing.T) {
	for _, c := range []struct {
		name       string
		unread     bool
		attributes map[string]string
		want       time.Duration
	}{
		{"none", false, nil, 0},
		{"zero", false, map[string]string{"ReceiveMessageWaitTimeSeconds": "0"}, 0},
		{"twenty", false, map[string]string{"ReceiveMessageWaitTimeSeconds": "20"}, time.Second},
		{"unknown", true, nil, time.Second},
	} {
		if g := newGroups(&api.Queue{FIFO: true, AttributesDenied: c.unread, Attributes: c.attributes}); g.minWait != c.want {
			t.Errorf("%s: a short receive takes %s, want %s", c.name, g.minWait, c.want)
		}
	}
}
