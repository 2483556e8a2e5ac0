package amqp

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// The gate may close while a suspect takes its turn. Unrun behind it, it would be charged
// if the process died, and nothing else of the client would begin.
func TestASuspectBehindAClosedGateGivesItsTurnBack(t *testing.T) {
	for name, row := range map[string]struct{ before, full bool }{
		"when it comes":             {before: true},
		"while it waits for a slot": {full: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFile(t, Config{MaxInFlight: 1, Policy: redeliver.Policy{Order: redeliver.PerKey}}, func([]string, redeliver.State) error { return nil })
				unmarked := make(chan struct{}, 1)
				f.r.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
					if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeSuspectUnmarked {
						select {
						case unmarked <- struct{}{}:
						default:
						}
					}
				})
				f.r.client.consuming = &link{cfg: &f.r.client.cfg, closed: true} // from which nobody gets a marker
				w := newWire(t)
				l, in := f.lane(false, "aw")
				l.take(<-in, time.Now())
				e := l.ready.Pop()
				e.solo = &solo{e: e, ch: w.ch, marker: 7}
				f.takeTurn()
				if row.before {
					f.r.sub.Gate.Close()
				}
				if row.full {
					f.slots <- struct{}{}
				}
				end := f.run(f.Context(), l)
				l.secluded <- e
				if !row.before {
					synctest.Wait()
					f.r.sub.Gate.Close()
				}
				<-time.After(time.Second)
				if n := w.acks.Load(); n != 1 || !f.r.client.turn.Begin() {
					t.Fatalf("%d acks of its marker, or it keeps the turn", n)
				}
				f.r.client.turn.Rest()
				select {
				case <-unmarked:
					t.Error("it takes another turn though the gate is closed")
				default:
				}
				f.r.sub.Gate.Open()
				select {
				case <-unmarked: // and then it would have its turn
				case <-time.After(time.Minute):
					t.Error("it takes no other turn though the gate is open")
				}
				close(in)
				_ = f.ended(end)
				if len(f.ran) > 0 {
					t.Errorf("ran %q", f.ran)
				}
			})
		})
	}
}

// One from the queue of suspects has nowhere to go but on.
func TestASuspectFromItsQueueRunsThoughTheGateHasClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t, Config{}, func([]string, redeliver.State) error { return nil })
		in := make(chan amqp.Delivery, 1)
		l := newLane(f.r, laneConfig{kind: suspectQueue, queue: f.r.layout.suspects(), slots: make(chan struct{}, 1)}, newWire(t).ch, in)
		f.r.sub.Gate.Close()
		in <- amqp.Delivery{MessageId: "aw", DeliveryTag: 1}
		end := f.run(t.Context(), l)
		f.await(func(ran []string) bool { return slices.Equal(ran, []string{"aw"}) })
		if v := <-l.landed; !v.acked {
			t.Errorf("%+v: its ack was not written", v)
		}
		close(in)
		_ = f.ended(end)
	})
}

// A classic queue says of a message only that it was delivered before. One that its
// process outlives is no suspect for that; but one that was a suspect stays one, so that
// its marker goes with it.
func TestASuspectThatComesBackStaysOne(t *testing.T) {
	for name, end := range map[string]func(l *lane){
		"tired":  func(l *lane) { _ = l.renew() },
		"lost":   func(l *lane) { _ = l.abandon() },
		"closed": func(l *lane) { l.drain() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFile(t, Config{Policy: redeliver.Policy{Order: redeliver.PerKey}}, nil)
				f.takeTurn() // for good, so that no suspect gets one
				both := func(redelivered ...bool) (l *lane, suspects []bool) {
					l, _ = f.lane(false)
					for i, id := range []string{"a1", "b1"} {
						l.take(amqp.Delivery{MessageId: id, DeliveryTag: uint64(i) + 1, Redelivered: redelivered[i]}, time.Now())
					}
					for e := range l.acks.untold {
						suspects = append(suspects, e.solo != nil)
					}
					return l, suspects
				}
				want := []bool{true, false}
				l, suspects := both(true, false)
				if !slices.Equal(suspects, want) {
					t.Fatalf("suspects are %t", suspects)
				}
				end(l)
				l, suspects = both(true, true)
				if !slices.Equal(suspects, want) {
					t.Errorf("suspects are %t when both come back, want %t", suspects, want)
				}
				l.over(context.Canceled)
			})
		})
	}
}
