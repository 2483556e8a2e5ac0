package sqs

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// headFails fails the first message of a group.
func headFails(st redeliver.State, _ *message.Message) error {
	if st.ID == "g0" {
		return errHandler
	}
	return nil
}

// Shutdowns while the head of a group waits raise the receive counts of the whole group. They make no message behind
// the head a suspect, which would overtake it.
func TestShutdownsKeepGroupOrder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		cfg := Config{Policy: steps(16, time.Minute)}
		for i := range 4 {
			b.put("orders.fifo", fmt.Sprint("g", i), "v", "g", nil)
		}
		for _, name := range []string{"one", "two", "three"} {
			c := b.start(name, "orders.fifo", cfg, headFails)
			b.advance(90 * time.Second)
			if name == "three" {
				b.advance(20 * time.Minute)
			}
			b.close(c)
		}
		head := b.ran("g0")
		last := head[len(head)-1].at
		for _, r := range b.ran("") {
			if r.id != "g0" && r.at < last {
				b.Fatalf("%s ran before the head of its group had ended at %s; all: %v", r, last, ids(b.ran("")))
			}
		}
	})
}

func TestShutdownCountsNoAttemptForMessagesThatDidNotRun(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		cfg := Config{Policy: steps(1, time.Minute)}
		for i := range 3 {
			b.put("orders.fifo", fmt.Sprint("g", i), "v", "g", nil)
		}
		one := b.start("one", "orders.fifo", cfg, failHandler)
		b.advance(20 * time.Second)
		b.close(one)
		two := b.start("two", "orders.fifo", cfg, failHandler)
		b.advance(20 * time.Minute)
		b.close(two)
		for _, id := range []string{"g1", "g2"} {
			if runs := b.ran(id); len(runs) != 2 {
				b.Errorf("%s ran %v, want 2 attempts", id, runs)
			}
		}
	})
}

// A process that runs a suspect receives nothing, so an idle process gets the other messages.
func TestProcessReceivesNothingWhileASuspectRuns(t *testing.T) {
	const runs, n = 4 * time.Minute, 1000
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "suspect", "v", "", nil)
		one := b.start("one", "orders", Config{Policy: steps(1, time.Minute)}, func(st redeliver.State, _ *message.Message) error {
			if st.ID == "suspect" {
				<-time.After(runs)
			}
			return nil
		})
		b.advance(20 * time.Second)
		if len(b.ran("suspect")) != 1 {
			b.Fatal("the suspect does not run")
		}
		two := b.start("two", "orders", Config{Policy: steps(1, time.Minute)}, succeed)
		for i := range n {
			b.put("orders", fmt.Sprint("m", i), "v", "", nil)
			b.advance(50 * time.Millisecond)
		}
		b.advance(time.Minute)
		if ran := len(b.ran("")) - 1; ran != n {
			b.Errorf("%d of %d messages have not run after a minute, although a process was idle", n-ran, n)
		}
		b.advance(runs)
		b.close(one)
		b.close(two)
	})
}

// A suspect of a FIFO queue waits behind another one of its group. SQS counts it as available but does not deliver it.
// A process must not stop all its handlers every second for it, so the pauses between these turns grow.
func TestUnavailableSuspectTakesFewTurns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		b.Create("orders-suspects.fifo")
		for _, id := range []string{"s1", "s2"} {
			b.put("orders-suspects.fifo", id, "v", "g", nil)
		}
		first := true
		b.Edit("orders-suspects.fifo", func(m *sqsfake.Message) { // another process has the first
			if first {
				m.Receives, m.Visible = 1, time.Now().Add(time.Hour)
			}
			first = false
		})
		var turns atomic.Int64
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action == "ReceiveMessage" && call.Queue == "orders-suspects.fifo" {
				turns.Add(1)
			}
			return nil
		})
		c := b.start("one", "orders.fifo", Config{Policy: steps(1, time.Minute)}, succeed)
		b.advance(10 * time.Minute)
		if turns := turns.Load(); turns > 6 {
			b.Errorf("%d turns in ten minutes", turns)
		}
		b.advance(time.Hour) // the other process has ended
		b.close(c)
		if len(b.ran("s1")) != 1 || len(b.ran("s2")) != 1 {
			b.Errorf("ran %v", b.ran(""))
		}
	})
}

// A queue's own maxReceiveCount also counts receives that the process survived. redeliver makes the message a suspect
// before SQS moves it away without its state.
func TestOutageMovesNothingToTheQueuesOwnDLQ(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders", "RedrivePolicy", `{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:theirs","maxReceiveCount":"3"}`)
		b.Create("theirs")
		var away atomic.Bool
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if away.Load() && call.Action == "ChangeMessageVisibilityBatch" {
				return sqsfake.ServerError()
			}
			return nil
		})
		away.Store(true)
		c := b.start("one", "orders", Config{Policy: steps(3, time.Minute)}, func(_ redeliver.State, msg *message.Message) error {
			if away.Load() {
				<-msg.Context().Done()
				return msg.Context().Err()
			}
			return nil
		})
		b.put("orders", "a", "v", "", nil)
		b.advance(3 * time.Minute)
		away.Store(false)
		b.advance(10 * time.Minute)
		b.close(c)
		if theirs := b.Messages("theirs"); len(theirs) > 0 {
			b.Errorf("SQS moved %d messages to the queue's own DLQ; attempts %v", len(theirs), b.ran("a"))
		}
	})
}

// A suspect that is lost before it begins ends its turn. Otherwise the client would stop.
func TestLostSuspectEndsItsTurn(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "a", "v", "", nil)
		b.Edit("orders-suspects", func(m *sqsfake.Message) { m.Receives = 100 }) // it goes to the DLQ as crashed
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action == "ChangeMessageVisibilityBatch" || call.Action == "SendMessageBatch" {
				return sqsfake.ServerError()
			}
			return nil
		})
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(40 * time.Second)
		b.setFault(nil)
		b.put("orders", "b", "v", "", nil)
		b.advance(10 * time.Minute)
		b.close(c)
		if len(b.ran("a")) != 0 || len(b.ran("b")) != 1 || len(b.Messages("orders-dlq")) != 1 {
			b.Errorf("ran %v, %d in the DLQ", b.ran(""), len(b.Messages("orders-dlq")))
		}
	})
}

// A message that comes back often is rewritten before SQS moves it away, which resets its count. One that still comes
// back is a suspect, and only suspects are charged with crashes.
func TestMessageThatComesBackOftenIsRewritten(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.put("orders", "a", "v", "", map[string]sqsfake.Attribute{"n": sqsfake.String("1")})
		first := b.Messages("orders")[0].ID
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action == "ChangeMessageVisibilityBatch" {
				return sqsfake.ServerError()
			}
			return nil
		})
		c := b.start("one", "orders", Config{Policy: steps(1, time.Second)}, func(st redeliver.State, msg *message.Message) error {
			if st.ID != "a" || st.Attempt() != 1 || MessageFromContext(msg.Context()).MessageId == nil || *MessageFromContext(msg.Context()).MessageId != first || len(msg.Metadata) != 1 {
				b.Errorf("the handler got %+v, %v", st, msg.Metadata)
			}
			if len(b.Messages("orders-suspects")) > 0 {
				return nil
			}
			<-msg.Context().Done()
			return errHandler
		})
		b.advance(30*time.Second*maxReturns + 3*time.Second)
		all := b.Messages("orders")
		if len(all) != 1 || all[0].ID == first || all[0].Receives != 1 {
			b.Errorf("%+v is in the queue; ran %v", all, b.ran("a"))
		}
		b.advance(2 * 31 * time.Second * maxReturns)
		b.close(c)
		if hops := eventsOf[redeliver.Hopped](b); len(hops) != maxCopies+1 || hops[maxCopies].To != "orders-suspects" {
			b.Errorf("it moved with the event %+v", hops)
		}
		if n := len(b.Messages("orders")) + len(b.Messages("orders-suspects")) + len(b.Messages("orders-dlq")); n != 0 {
			b.Errorf("%d messages remain after %v", n, b.ran("a"))
		}
	})
}
