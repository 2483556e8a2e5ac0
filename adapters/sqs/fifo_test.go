package sqs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

func ids(runs []run) (all []string) {
	for _, r := range runs {
		all = append(all, fmt.Sprintf("%s#%d", r.id, r.attempt))
	}
	return all
}

// The head of a group fails four times with nine messages behind it. Each of them runs once, in order, and another
// group does not wait.
func TestFailedHeadBlocksItsGroup(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c := b.start("one", "orders.fifo", Config{Policy: steps(3, time.Minute, 10*time.Minute, time.Hour)}, func(st redeliver.State, _ *message.Message) error {
			if st.ID == "m0" {
				return errHandler
			}
			return nil
		})
		for i := range 10 {
			b.put("orders.fifo", fmt.Sprint("m", i), "v", "g", nil)
		}
		b.put("orders.fifo", "other", "v", "h", nil)
		b.advance(time.Second)
		if len(b.ran("other")) != 1 {
			b.Error("another group waits")
		}
		b.advance(2 * time.Hour)
		b.wantRuns("m0", 0, time.Minute, 11*time.Minute, 71*time.Minute)
		b.close(c)
		all := ids(b.ran(""))
		all = slices.DeleteFunc(all, func(s string) bool { return s == "other#1" })
		if got := strings.Join(all, " "); got != "m0#1 m0#2 m0#3 m0#4 m1#1 m2#1 m3#1 m4#1 m5#1 m6#1 m7#1 m8#1 m9#1" {
			b.Errorf("ran %s", got)
		}
		dead := b.Messages("orders-dlq.fifo")
		if len(dead) != 1 || dead[0].Group != "g" || dead[0].Dedup == "d-m0" || len(b.Messages("orders.fifo")) != 0 {
			b.Fatalf("the DLQ has %+v, the queue %d", dead, len(b.Messages("orders.fifo")))
		}
		if st := stateOf(t, dead[0], "orders.fifo"); st.Attempts != 4 || st.Reason != redeliver.ReasonExhausted {
			b.Errorf("in the DLQ after %d attempts, %s", st.Attempts, st.Reason)
		}
	})
}

// A process that is killed during a wait leaves the head hidden until it is due, and the messages behind it too.
func TestFIFOWaitSurvivesACrash(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		for i := range 3 { // one receive gets them
			b.put("orders.fifo", fmt.Sprint("m", i), "v", "g", nil)
		}
		var dead atomic.Bool
		b.setFault(func(_ *sqsfake.Call) *sqsfake.Fault {
			if dead.Load() {
				return sqsfake.Reset()
			}
			return nil
		})
		one := b.start("one", "orders.fifo", Config{Policy: steps(3, 20*time.Minute)}, failHandler)
		b.advance(10 * time.Minute)
		dead.Store(true)
		b.close(one) // for the server this is like a kill
		dead.Store(false)
		two := b.start("two", "orders.fifo", Config{Policy: steps(3, 20*time.Minute)}, succeed)
		b.advance(10*time.Minute - time.Second)
		if len(b.ran("")) != 1 {
			b.Errorf("ran early: %v", b.ran(""))
		}
		b.advance(5 * time.Minute)
		b.close(two)
		if got := ids(b.ran("")); !slices.Equal(got, []string{"m0#1", "m0#2", "m1#1", "m2#1"}) {
			b.Errorf("ran %v", got)
		}
		if len(b.Messages("orders.fifo")) != 0 {
			b.Error("something is left")
		}
	})
}

// A process that shuts down makes messages that have not run visible at once, and the head when it is due.
func TestFIFOShutdownKeepsTheOrder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		for i := range 4 { // one receive gets them
			b.put("orders.fifo", fmt.Sprint("g", i), "v", "g", nil)
		}
		one := b.start("one", "orders.fifo", Config{Policy: steps(3, 5*time.Minute)}, func(st redeliver.State, _ *message.Message) error {
			if st.ID == "g0" {
				return errHandler
			}
			return nil
		})
		b.advance(time.Minute)
		b.close(one)
		two := b.start("two", "orders.fifo", Config{Policy: steps(3, 5*time.Minute)}, succeed)
		b.advance(4*time.Minute - 2*time.Second)
		if len(b.ran("")) != 1 {
			b.Errorf("ran early, or overtook the head: %v", b.ran(""))
		}
		b.advance(10 * time.Second)
		b.close(two)
		if got := ids(b.ran("")); !slices.Equal(got, []string{"g0#1", "g0#2", "g1#1", "g2#1", "g3#1"}) {
			b.Errorf("ran %v", got)
		}
	})
}

// A message that comes back to the process that has kept its state keeps its attempts and its due time.
func TestFIFOStateIsRememberedAfterReturn(t *testing.T) {
	const step = 10 * time.Minute
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c := b.start("one", "orders.fifo", Config{Policy: steps(3, step)}, failHandler)
		b.put("orders.fifo", "a", "v", "g", nil)
		b.put("orders.fifo", "b", "v", "g", nil)
		b.advance(time.Minute)
		b.Edit("orders.fifo", func(m *sqsfake.Message) { // as if SQS had lost their visibility timeout
			m.Visible = time.Now()
		})
		b.advance(5*step + step/2)
		b.close(c)
		b.wantRuns("a", 0, step, 2*step, 3*step)
		b.wantRuns("b", 3*step, 4*step, 5*step)
	})
}

// A copy that fails, is given back in a pause and comes again still has the MessageId of its first delivery.
func TestARememberedCopyKeepsItsFirstMessageID(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		st := redeliver.State{ID: "a", Group: "orders.fifo", Origin: "orders.fifo", Attempts: 1}
		copied := wire.Carried{Headers: driver.AppendStateHeaders(st, nil), MessageID: "first"}
		b.put("orders.fifo", "a", "v", "g", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(copied.Pack())})
		var seen []string
		c := b.start("one", "orders.fifo", Config{Policy: steps(3, 10*time.Minute)}, func(_ redeliver.State, msg *message.Message) error {
			b.mu.Lock()
			seen = append(seen, *MessageFromContext(msg.Context()).MessageId)
			b.mu.Unlock()
			return errHandler
		})
		b.advance(time.Minute)
		if err := c.Operations().Pause(b.Context(), "orders.fifo", "a test"); err != nil {
			b.Fatal(err)
		}
		b.advance(2 * engine.PausePollInterval)
		if err := c.Operations().Resume(b.Context(), "orders.fifo"); err != nil {
			b.Fatal(err)
		}
		b.advance(12 * time.Minute)
		b.close(c)
		if !slices.Equal(seen, []string{"first", "first"}) {
			b.Errorf("the handler saw the MessageIds %q", seen)
		}
	})
}

// A wait that is longer than SQS can hide a message is refused at the start, or sends the message to the DLQ.
func TestFIFOWaitIsAtMostTwelveHours(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c := b.client(t, Config{Policy: steps(3, 5*time.Hour)})
		if _, err := c.Plan(b.Context(), "orders.fifo"); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "Policy.Backoff") {
			b.Errorf("Plan accepts a wait of fifteen hours: %v", err)
		}
		if _, err := c.Plan(b.Context(), "orders"); err != nil {
			b.Error(err)
		}
		b.close(c)
		one := b.start("one", "orders.fifo", Config{Policy: steps(3, time.Hour)}, func(redeliver.State, *message.Message) error {
			return redeliver.RetryAfter(errHandler, 12*time.Hour)
		})
		b.put("orders.fifo", "a", "v", "g", nil)
		b.advance(time.Minute)
		b.close(one)
		dead := b.Messages("orders-dlq.fifo")
		if len(dead) != 1 || stateOf(t, dead[0], "orders.fifo").Reason != redeliver.ReasonUnschedulable {
			b.Errorf("dead: %+v", dead)
		}
	})
}

// The retention is read once. When an operator raises it later, a message can be older than that. Such a message would
// get no heartbeat, and if it failed it would go to the DLQ at once.
func TestFIFOMessageOlderThanTheRetentionThatWasRead(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo", "MessageRetentionPeriod", "86400")
		p := steps(1, time.Hour)
		p.Timeout = 20 * time.Minute
		c := b.start("one", "orders.fifo", Config{Policy: p}, func(st redeliver.State, _ *message.Message) error {
			if st.Attempts > 0 {
				return nil
			}
			if st.ID == "slow" {
				b.advance(10 * time.Minute)
			}
			return errHandler
		})
		b.Set("orders.fifo", "MessageRetentionPeriod", "345600")
		b.put("orders.fifo", "fast", "v", "g", nil)
		b.put("orders.fifo", "slow", "v", "h", nil)
		b.Edit("orders.fifo", func(m *sqsfake.Message) { m.Sent = time.Now().Add(-30 * time.Hour) })
		b.advance(2 * time.Hour)
		b.close(c)
		b.wantRuns("slow", 0, 70*time.Minute)
		b.wantRuns("fast", 0, time.Hour)
	})
}

func TestFIFOQueueRefusesDelayedPublish(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		c := b.client(t, Config{})
		msg := message.NewMessage("later", []byte("v"))
		delay.Message(msg, delay.For(time.Minute))
		if err := c.Publisher().Publish("orders.fifo", msg); err == nil {
			b.Error("a delayed publish to a FIFO queue was accepted")
		}
		var msgs []*message.Message
		for i := range 25 {
			msgs = append(msgs, message.NewMessage(fmt.Sprint("m", i), []byte("v")))
		}
		if err := c.Publisher().Publish("orders.fifo", msgs...); err != nil {
			b.Fatal(err)
		}
		all := b.Messages("orders.fifo")
		for i, m := range all {
			if m.Dedup != fmt.Sprint("m", i) || m.Group != "orders.fifo" {
				b.Errorf("message %d is %+v", i, m)
			}
		}
		if len(all) != 25 {
			b.Errorf("%d messages", len(all))
		}
		b.close(c)
	})
}

// A message that kills its process goes to the DLQ as crashed, and then another message of its group runs.
func TestFIFOMessageThatKillsItsProcessEndsInDLQ(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		b.put("orders.fifo", "killer", "v", "g", nil)
		b.put("orders.fifo", "behind", "v", "g", nil)
		p := steps(10, time.Second)
		p.MaxCrashes = 2
		for n := 0; n < 30 && len(b.Messages("orders-dlq.fifo")) == 0; n++ {
			var dead atomic.Bool
			b.setFault(func(_ *sqsfake.Call) *sqsfake.Fault {
				if dead.Load() {
					return sqsfake.Reset()
				}
				return nil
			})
			c := b.start(fmt.Sprint(n), "orders.fifo", Config{Policy: p, DrainTimeout: time.Second}, func(st redeliver.State, msg *message.Message) error {
				if st.ID == "killer" {
					dead.Store(true)
					<-msg.Context().Done()
				}
				return nil
			})
			b.advance(2 * time.Minute)
			b.close(c)
		}
		letters := b.Messages("orders-dlq.fifo")
		if len(letters) != 1 || stateOf(t, letters[0], "orders.fifo").Reason != redeliver.ReasonCrashed {
			b.Fatalf("in the DLQ: %+v; ran %v", letters, b.ran(""))
		}
		// The killer kills maxReturnsInPlace processes in place, and two alone. The message behind it may exist twice,
		// because a process died between the copy and its deletion.
		if len(b.ran("killer")) != maxReturnsInPlace+2 || len(b.ran("behind")) == 0 {
			b.Errorf("ran %v", b.ran(""))
		}
	})
}

// The message behind a suspect begins when the suspect is deleted from its group. If it began before and killed its process
// at once, the suspect would come back as the first of the group each time, and the killer would never be the first.
func TestAMessageBehindASuspectWaitsForItsDeletion(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		b.put("orders.fifo", "suspect", "v", "g", nil)
		b.Edit("orders.fifo", func(m *sqsfake.Message) { m.Receives = maxReturnsInPlace }) // as if so many processes had received it
		b.put("orders.fifo", "behind", "v", "g", nil)
		failures := 0
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action != actionDelete || call.Queue != "orders.fifo" || failures == 5 {
				return nil
			}
			failures++
			return sqsfake.ServerError()
		})
		c := b.start("one", "orders.fifo", Config{}, func(st redeliver.State, _ *message.Message) error {
			if n := len(b.Messages("orders.fifo")); st.ID == "behind" && n != 1 {
				b.Errorf("it begins while its queue has %d messages", n)
			}
			return nil
		})
		b.advance(time.Minute)
		b.close(c)
		b.wantRunsOnce("suspect")
		b.wantRunsOnce("behind")
		if n := len(b.Messages("orders.fifo")) + len(b.Messages("orders-suspects.fifo")); n > 0 || failures != 5 {
			b.Errorf("%d messages are left after %d failures", n, failures)
		}
	})
}

// A forged due time stops the messages behind it for at most as long as SQS hides a message.
func TestAForgedDueTimeStopsItsGroupForTwelveHours(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		st := redeliver.State{ID: "forged", Group: "orders.fifo", Origin: "orders.fifo", Attempts: 1, Due: time.Now().Add(redeliver.MaxWait)}
		c := wire.Carried{Headers: driver.AppendStateHeaders(st, nil)}
		b.put("orders.fifo", "forged", "v", "g", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(c.Pack())})
		b.put("orders.fifo", "behind", "v", "g", nil)
		client := b.start("one", "orders.fifo", Config{}, succeed)
		b.advance(11 * time.Hour)
		if n := len(b.ran("")); n != 0 {
			b.Errorf("%d messages ran early", n)
		}
		b.advance(2 * time.Hour)
		b.close(client)
		if len(b.ran("forged")) != 1 || len(b.ran("behind")) != 1 {
			b.Errorf("ran %v", b.ran(""))
		}
	})
}
