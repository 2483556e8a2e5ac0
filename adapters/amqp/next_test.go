package amqp

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// grave is a DLQ that takes everything.
type grave struct{}

func (grave) DeadLetter(context.Context, *delayqueue.Delivery, *redeliver.State) (string, error) {
	return "orders.dlq", nil
}

// squeezed is a file of keys whose subscription is throttled to one message: many
// have failed for good before the test begins, which is when it gets a lane that
// runs. A message whose id has an f fails in its first attempts.
func squeezed(t *testing.T, inFlight int, test func(f *file, in chan<- amqp.Delivery)) {
	synctest.Test(t, func(t *testing.T) {
		f := newFile(t, Config{MaxInFlight: inFlight, MinInFlight: 1, Policy: redeliver.Policy{
			Order: redeliver.PerKey, MaxRetries: 2, Backoff: redeliver.Fixed(5 * time.Millisecond),
		}}, func(_ []string, st redeliver.State) error {
			switch {
			case st.ID[1] == 'x':
				<-time.After(20 * time.Millisecond)
				return errFull
			case st.ID[1] == 'f' && st.Attempts < 2:
				return errFull
			default:
				return nil
			}
		})
		f.r.sub.DeadLetters = grave{}
		l, in := f.lane(false)
		end := f.run(t.Context(), l)
		defer func() {
			close(in)
			_ = f.ended(end)
			if len(f.slots) > 0 || !f.r.client.turn.Begin() {
				t.Errorf("%d slots are left taken, or the turn", len(f.slots))
			}
		}()
		for i := 0; f.r.sub.Throttle.Limit() != 1; i++ {
			if i == 200 {
				t.Fatalf("the throttle is at %d after %d messages that have failed for good", f.r.sub.Throttle.Limit(), i)
			}
			f.put(in, fmt.Sprint(string(rune('A'+i%20)), "x", i))
			<-time.After(70 * time.Millisecond)
		}
		<-time.After(time.Minute) // what is under way ends
		f.put(in, "Ax-last")      // and a second begins in which nothing grows
		<-time.After(100 * time.Millisecond)
		f.mu.Lock()
		f.ran = nil
		f.mu.Unlock()
		test(f, in)
	})
}

// put has the broker send a message.
func (f *file) put(in chan<- amqp.Delivery, id string) {
	f.tags++
	in <- amqp.Delivery{MessageId: id, DeliveryTag: f.tags, Headers: amqp.Table{"x-delivery-count": int64(0)}}
}

// With one slot and with several: what waits in place has the room, and gets the slot
// that it needs to run again from a lane that has none. They waited for each other.
func TestAThrottledSubscriptionGoesOn(t *testing.T) {
	for _, inFlight := range []int{1, 3} {
		t.Run(fmt.Sprint(inFlight), func(t *testing.T) {
			squeezed(t, inFlight, func(f *file, in chan<- amqp.Delivery) {
				var all []string
				for i := range 40 {
					all = append(all, fmt.Sprint(string(rune('a'+i%5)), []string{"f", "w"}[i/5%2], i))
				}
				for _, id := range all {
					f.put(in, id)
				}
				f.await(func(ran []string) bool {
					return !slices.ContainsFunc(all, func(id string) bool { return !slices.Contains(ran, id) })
				})
				if n := f.r.sub.Throttle.Limit(); n != 1 {
					t.Errorf("the throttle is at %d: the test proves nothing", n)
				}
			})
		})
	}
}

// What waits for its turn keeps no room: the suspect that has the turn, in another lane,
// may need it.
func TestWhatWaitsForItsTurnKeepsNoRoom(t *testing.T) {
	squeezed(t, 3, func(f *file, in chan<- amqp.Delivery) {
		f.takeTurn()
		f.put(in, "aw")
		synctest.Wait()
		f.enter()
		f.r.client.turn.Give()
		synctest.Wait() // now it is the room that it waits for, and it does not keep the turn
		f.takeTurn()
		f.r.client.turn.Give()
		if len(f.ran) > 0 {
			t.Errorf("ran %q without room", f.ran)
		}
		f.leave()
		f.await(func(ran []string) bool { return slices.Equal(ran, []string{"aw"}) })
	})
}

// A suspect in its place does not wait for the room that messages have which wait in
// theirs: they wait for its turn.
func TestASuspectThatHasItsTurnNeedsNoRoom(t *testing.T) {
	squeezed(t, 3, func(f *file, _ chan<- amqp.Delivery) {
		l, in := f.lane(false, "aw")
		l.take(<-in, time.Now())
		e := l.ready.Pop()
		e.solo = &solo{e: e}
		f.enter()
		f.takeTurn()
		end := f.run(f.Context(), l)
		l.secluded <- e
		f.await(func(ran []string) bool { return slices.Equal(ran, []string{"aw"}) })
		f.r.client.turn.Give()
		close(in)
		_ = f.ended(end)
		f.leave()
		f.enter()
		f.leave()
	})
}

// takeTurn is what a suspect does.
func (f *file) takeTurn() {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	if !f.r.client.turn.Take(ctx, &f.r.sub.Gate) {
		f.Fatal("there is no turn")
	}
}

// enter takes the room that a message has which waits in its place.
func (f *file) enter() {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	if !f.r.sub.Throttle.Enter(ctx, nil) {
		f.Fatal("there is no room")
	}
}

func (f *file) leave() { f.r.sub.Throttle.Leave(nil, delayqueue.Abandoned) }
