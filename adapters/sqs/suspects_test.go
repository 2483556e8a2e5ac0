package sqs

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/sqsfake"
	"github.com/redeliver/redeliver/mq"
)

// If a settled suspect were still in its queue when the next one kills the process, it would come back and be charged
// with that crash.
func TestSuspectIsRemovedBeforeTheNextOneRuns(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "neighbour", "v", "", nil)
		b.put("orders-suspects", "other", "v", "", nil) // their order is undefined
		refusals := 0
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action == "DeleteMessageBatch" && call.Queue == "orders-suspects" {
				if refusals++; refusals <= 3 {
					return sqsfake.ServerError()
				}
			}
			return nil
		})
		c := b.start("one", "orders", Config{}, func(st redeliver.State, _ *message.Message) error {
			if n, others := len(b.Messages("orders-suspects")), len(b.Messages("orders")); n > 3-len(b.ran("")) || others != 0 {
				b.Errorf("%s runs after %v while the queues have %d suspects and %d other messages", st.ID, b.ran(""), n, others)
			}
			return nil
		})
		b.advance(time.Minute)
		b.close(c)
		if len(b.ran("neighbour")) != 1 || len(b.ran("other")) != 1 || refusals < 4 {
			b.Errorf("ran %v, %d refusals", b.ran(""), refusals)
		}
		if n := len(b.Messages("orders-suspects")) + len(b.Messages("orders-dlq")); n != 0 {
			b.Errorf("%d are left", n)
		}
	})
}

// Receives with lost answers do not charge a suspect, because the process is alive.
func TestLostAnswersDoNotCountAsCrashes(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "a", "v", "", nil)
		lost := 0
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action != "ReceiveMessage" || call.Queue != "orders-suspects" {
				return nil
			}
			if there := b.Messages(call.Queue); len(there) == 1 && !there[0].Visible.After(time.Now().Add(2*time.Second)) { // within the long poll
				if lost++; lost <= 4 {
					return sqsfake.LostAnswer()
				}
			}
			return nil
		})
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(10 * time.Minute)
		b.close(c)
		if len(b.ran("a")) != 1 || len(b.Messages("orders-dlq")) != 0 {
			b.Errorf("ran %v, %d dead", b.ran("a"), len(b.Messages("orders-dlq")))
		}
	})
}

// A suspect's handler that does not end in time at shutdown does not count as a crash.
func TestSuspectCutShortByShutdownIsNotCharged(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "a", strings.Repeat("v", 10), "", nil)
		for range 5 {
			c := b.start("n", "orders", Config{DrainTimeout: time.Second}, func(_ redeliver.State, msg *message.Message) error {
				<-msg.Context().Done()
				return errHandler
			})
			b.advance(20 * time.Second)
			b.close(c)
		}
		c := b.start("last", "orders", Config{}, succeed)
		b.advance(2 * time.Minute)
		b.close(c)
		runs := b.ran("a")
		if len(runs) != 6 || runs[5].attempt != 1 || runs[5].process != "last" || len(b.Messages("orders-dlq")) != 0 {
			b.Errorf("ran %v, %d dead", runs, len(b.Messages("orders-dlq")))
		}
	})
}

// A suspect that arrives when the drain timeout is over has not run, so its receive does not count as a crash.
func TestSuspectThatArrivesAfterTheDrainTimeoutIsNotCharged(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "a", "v", "", nil)
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action == "ReceiveMessage" && call.Queue == "orders-suspects" {
				return &sqsfake.Fault{Delay: 500 * time.Millisecond}
			}
			return nil
		})
		for range 5 {
			c := b.start("n", "orders", Config{DrainTimeout: 100 * time.Millisecond}, succeed)
			b.advance(200 * time.Millisecond) // the receive is under way
			b.close(c)
			b.advance(time.Minute)
		}
		if all := b.Messages("orders-suspects"); len(b.ran("a")) != 0 || len(all) != 1 || all[0].Receives != 0 {
			b.Errorf("ran %v, the suspects are %v, want one that was not received", b.ran("a"), all)
		}
		c := b.start("last", "orders", Config{}, succeed)
		b.advance(time.Minute)
		b.close(c)
		if len(b.ran("a")) != 1 || len(b.Messages("orders-dlq")) != 0 {
			b.Errorf("ran %v, %d dead", b.ran("a"), len(b.Messages("orders-dlq")))
		}
	})
}

// A suspect that has killed its process too often keeps that count when the DLQ cannot be written until shutdown.
func TestSuspectWithTooManyCrashesDoesNotRunAgainAfterShutdown(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.put("orders-suspects", "a", "v", "", nil)
		b.Edit("orders-suspects", func(m *sqsfake.Message) { m.Receives = redeliver.Policy{}.WithDefaults().MaxCrashes })
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if call.Action == "SendMessageBatch" && call.Queue == "orders-dlq" {
				return sqsfake.ServerError()
			}
			return nil
		})
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(time.Minute)
		b.close(c)
		b.setFault(nil)
		c = b.start("two", "orders", Config{}, succeed)
		b.advance(2 * time.Minute)
		b.close(c)
		if len(b.ran("a")) != 0 || len(b.Messages("orders-dlq")) != 1 || len(b.Messages("orders-suspects")) != 0 {
			b.Errorf("ran %v, %d dead", b.ran("a"), len(b.Messages("orders-dlq")))
		}
	})
}

// startLosingSuspect starts a client that cannot keep a suspect hidden for 15 minutes, and can for the next five.
func startLosingSuspect(b *bubble, id string) *mq.Client {
	b.Create("orders")
	b.Create("orders-suspects")
	b.put("orders-suspects", id, "v", "", nil)
	b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
		if call.Action == "ChangeMessageVisibilityBatch" && call.Queue == "orders-suspects" {
			return sqsfake.ServerError()
		}
		return nil
	})
	c := b.start("one", "orders", Config{}, func(redeliver.State, *message.Message) error {
		<-time.After(time.Minute)
		return nil
	})
	b.advance(15 * time.Minute)
	b.setFault(nil)
	b.advance(5 * time.Minute)
	return c
}

// A process that cannot keep a suspect hidden is alive, so it does not charge the suspect when it comes again.
func TestLostSuspectIsNotCharged(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := startLosingSuspect(b, "a")
		b.close(c)
		if runs := b.ran("a"); len(runs) < 5 || len(b.Messages("orders-dlq")) != 0 || len(b.Messages("orders-suspects")) != 0 {
			b.Errorf("ran %v, %d dead, %d suspects remain", runs, len(b.Messages("orders-dlq")), len(b.Messages("orders-suspects")))
		}
	})
}

// The loss of one suspect in a living process says nothing about the crashes of another.
func TestALostSuspectHidesNoCrashOfAnother(t *testing.T) {
	inBubble(t, func(b *bubble) {
		c := startLosingSuspect(b, "lost")
		b.put("orders-suspects", "killer", "v", "", nil)
		b.Edit("orders-suspects", func(m *sqsfake.Message) {
			m.Receives = redeliver.Policy{}.WithDefaults().MaxCrashes // as if so many processes had died with it
		})
		b.advance(5 * time.Minute)
		b.close(c)
		if runs := b.ran("lost"); len(runs) < 5 {
			b.Errorf("the lost suspect ran %v", runs)
		}
		if runs := b.ran("killer"); len(runs) != 0 || len(b.Messages("orders-dlq")) != 1 {
			b.Errorf("the killer ran %v, %d dead", runs, len(b.Messages("orders-dlq")))
		}
	})
}

// A receive that SQS refused, or that failed before a suspect was there, is no receive of that suspect.
func TestAFailedReceiveHidesNoLaterCrash(t *testing.T) {
	for name, fault := range map[string]*sqsfake.Fault{
		"refused": sqsfake.Denied(),
		"lost":    sqsfake.Reset(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				c := b.start("one", "orders", Config{}, succeed)
				b.advance(time.Second)
				b.put("orders-suspects", "early", "v", "", nil)
				b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
					if call.Action == "ReceiveMessage" && call.Queue == "orders-suspects" {
						return fault
					}
					return nil
				})
				b.advance(5*time.Minute + 7*time.Second)
				b.setFault(nil)
				b.put("orders-suspects", "killer", "v", "", nil)
				b.Edit("orders-suspects", func(m *sqsfake.Message) {
					if m.Sent.Equal(time.Now()) {
						m.Receives = redeliver.Policy{}.WithDefaults().MaxCrashes // as if so many processes had died with it
					}
				})
				b.advance(time.Minute)
				b.close(c)
				b.wantRunsOnce("early")
				if runs := b.ran("killer"); len(runs) != 0 || len(b.Messages("orders-dlq")) != 1 {
					b.Errorf("the killer ran %v, %d dead", runs, len(b.Messages("orders-dlq")))
				}
			})
		})
	}
}

// A FIFO queue drops a message whose deduplication id it saw within five minutes. A message that moves to the suspects
// and back several times never counts as a duplicate of an earlier move.
func TestDeduplicationDropsNoMove(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		b.put("orders.fifo", "a", "v", "g", nil)
		suspected := func() {
			b.Edit("orders.fifo", func(m *sqsfake.Message) {
				m.Receives = maxReturnsInPlace // as if this many processes had received it
			})
		}
		p := steps(100, 5*time.Second)
		for n := range 4 {
			suspected()
			c := b.start(fmt.Sprint(n), "orders.fifo", Config{Policy: p}, failHandler)
			b.advance(3 * time.Second) // it looks for a note first
			b.close(c)
			if runs, left := b.ran("a"), len(b.Messages("orders.fifo")); len(runs) != n+1 || left != 1 {
				b.Fatalf("it ran %v, the queue has %d messages, want %d runs and one message", runs, left, n+1)
			}
			b.advance(10 * time.Second)
		}
		if n := b.Count("SendMessageBatch"); n != 8 {
			b.Errorf("%d moves, want four to the suspects and four back", n)
		}
	})
}

// A suspect whose copy cannot be written blocks its own queue, as any outage does, and no other queue of its client.
func TestUnwritableSuspectBlocksNoOtherQueue(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		b.Create("orders-suspects")
		b.Create("invoices")
		b.put("orders-suspects", "a", "v", "", nil)
		var denied atomic.Bool
		denied.Store(true)
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			if denied.Load() && call.Action == "SendMessageBatch" && call.Queue == "orders-dlq" {
				return &sqsfake.Fault{Status: 400, Code: "KmsAccessDenied"}
			}
			return nil
		})
		c := b.start("one", "orders", Config{Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: redeliver.NoRetries}}, failHandler)
		b.read(c, "one", "invoices", succeed)
		b.advance(time.Minute)
		if len(b.ran("a")) != 1 {
			b.Fatalf("ran %v", b.ran(""))
		}
		b.put("invoices", "b", "v", "", nil)
		b.advance(5 * time.Minute)
		if len(b.ran("b")) != 1 {
			b.Error("another queue stopped while the copy of a suspect cannot be written")
		}
		denied.Store(false)
		b.advance(5 * time.Minute)
		b.put("orders", "c", "v", "", nil)
		b.advance(time.Minute)
		b.close(c)
		if len(b.Messages("orders-dlq")) != 2 || len(b.Messages("orders-suspects")) != 0 {
			b.Errorf("%d messages are in the DLQ, %d suspects remain", len(b.Messages("orders-dlq")), len(b.Messages("orders-suspects")))
		}
	})
}

// A copy that came back often is not early, even if less than a second of its wait is left.
func TestACopyThatCameBackOftenIsNotEarly(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		st := redeliver.State{ID: "a", Group: "orders", Origin: "orders", Attempts: 1, Due: b.began.Add(900 * time.Millisecond)}
		copied := wire.Carried{Headers: driver.AppendStateHeaders(st, nil)}
		state := strings.Replace(copied.Pack(), "{", fmt.Sprintf(`{"copies":"%d",`, maxCopies), 1)
		b.put("orders", "a", "v", "", map[string]sqsfake.Attribute{StateAttribute: sqsfake.String(state)})
		b.Edit("orders", func(m *sqsfake.Message) { m.Receives = maxReturns })
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(time.Minute)
		b.close(c)
		if runs := b.ran("a"); len(runs) != 1 || runs[0].at < 900*time.Millisecond {
			b.Errorf("ran %v", runs)
		}
	})
}

// A message that came back often is rewritten or becomes a suspect, whatever room its state has. A rewritten copy needs
// a few bytes more than one that waits.
func TestAMessageThatComesBackOftenMovesWhateverItsSize(t *testing.T) {
	inBubble(t, func(b *bubble) {
		const limit, smallest = 1024, 600
		b.Create("orders", "MaximumMessageSize", fmt.Sprint(limit))
		var sizes []int
		for n := smallest; n <= limit-len(UUIDAttribute)-len(wire.StringType)-len("m-1000"); n++ {
			b.put("orders", fmt.Sprintf("m-%04d", n), strings.Repeat("v", n), "", nil)
			sizes = append(sizes, n)
		}
		b.Edit("orders", func(m *sqsfake.Message) {
			m.Receives = maxReturnsInPlace // as if so many processes had received it
		})
		moved := make(map[int]bool)
		b.setFault(func(call *sqsfake.Call) *sqsfake.Fault {
			for _, e := range call.Entries {
				if body, ok := e["MessageBody"].(string); ok && call.Action == "SendMessageBatch" {
					moved[len(body)] = true
				}
			}
			return nil
		})
		c := b.start("one", "orders", Config{}, succeed)
		b.advance(5 * time.Minute)
		b.close(c)
		for _, n := range sizes {
			if !moved[n] {
				b.Errorf("a message of %d bytes ran where it was", n)
			}
		}
	})
}
