package delayqueue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// shrunk is a subscription that has room for one message, because all have failed.
func shrunk(t *testing.T) *delayqueue.Subscription {
	t.Helper()
	sub, _ := subscribe(&broker{}, t.Context())
	sub.Shrink(1, 16)
	fail := func() {
		d := deliver(sub, t.Context())
		if !sub.Throttle.Enter(t.Context(), nil) {
			t.Fatal("no room")
		}
		if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil {
			t.Fatal(err)
		}
		sub.Throttle.Leave(d, delayqueue.Forwarded)
	}
	for range 10 {
		fail()
	}
	<-time.After(time.Second)
	fail()
	if limit := sub.Throttle.Limit(); limit != 1 {
		t.Fatalf("there is room for %d, want 1", limit)
	}
	return sub
}

// Who waits for room gets it in turn, and who comes later is not before them: a
// subscriber that leaves a message here for a time bounds how many wait before it.
func TestWhoWaitsForRoomGetsItInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := shrunk(t)
		room := &sub.Throttle
		if !room.Enter(t.Context(), nil) {
			t.Fatal("no room")
		}
		var mu sync.Mutex
		var got []string
		wait := func(who string) context.CancelFunc {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				if room.Enter(ctx, nil) {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, who)
				}
			}()
			synctest.Wait() // it stands in the line
			return cancel
		}
		seen := func() string {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return fmt.Sprint(got)
		}
		wait("first")
		leaves := wait("leaves")
		wait("second")
		leaves()
		synctest.Wait()
		wait("third")
		for _, want := range []string{"[first]", "[first second]", "[first second third]"} {
			room.Leave(nil, delayqueue.Abandoned)
			late, cancel := context.WithTimeout(t.Context(), time.Second)
			if room.Enter(late, nil) { // while the first of the line has not woken yet
				t.Fatalf("who came last was before %s", want)
			}
			cancel()
			if got := seen(); got != want {
				t.Fatalf("got room: %s, want %s", got, want)
			}
		}
		room.Leave(nil, delayqueue.Abandoned)
		if !room.Enter(t.Context(), nil) {
			t.Error("the room of who had left the line is lost")
		}
	})
}

// passenger is a message in flight that nobody handles.
type passenger struct {
	delayqueue.Seat
	d *delayqueue.Delivery
}

func (p *passenger) Delivery() *delayqueue.Delivery { return p.d }
func (p *passenger) Handed() *message.Message       { return nil }

// The lanes of a subscription take turns, too; and one that has nothing to begin when
// its turn comes keeps the room from nobody.
func TestLanesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := shrunk(t)
		lanes := make([]*delayqueue.Flight[*passenger], 3)
		for i := range lanes {
			lanes[i] = delayqueue.NewFlight[*passenger]()
			lanes[i].Bound(&sub.Throttle)
		}
		has := func(lane int) bool {
			select {
			case <-lanes[lane].More():
				return lanes[lane].Room()
			default:
				return false
			}
		}
		first := &passenger{d: deliver(sub, t.Context())}
		if !lanes[0].Room() {
			t.Fatal("no room")
		}
		lanes[0].Begin(first)
		if lanes[1].Room() || lanes[2].Room() {
			t.Fatal("there is room for two")
		}
		lanes[0].Land(first, delayqueue.Abandoned)
		if lanes[0].Room() || !has(1) || has(2) {
			t.Error("the next is not the second lane's turn")
		}
		lanes[1].Yield() // what was ready there is gone
		if has(0) {
			t.Error("the room that the second lane gave back is not the third's")
		}
		lanes[2].Close() // it has not asked since
		if !has(0) {
			t.Error("a lane that ends keeps its room")
		}
		if lanes[1].Room() {
			t.Error("there is room for two")
		}
		lanes[1].Yield()
		lanes[0].Yield()
		if !slices.ContainsFunc([]int{0, 1}, has) {
			t.Error("the room is lost")
		}
	})
}

// What all others wait for begins although there is no room, and so does, in an outage,
// what must begin because its part of the subscription ends.
func TestWhatMustBeginHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := shrunk(t)
		if !full.Throttle.Enter(t.Context(), nil) {
			t.Fatal("no room")
		}
		out := watched(t, &broker{}, nil)
		for i := range 3 {
			of(out, fmt.Sprint(i), t.Context()).Decide(errOurs, time.Now())
		}
		for name, c := range map[string]struct {
			sub  *delayqueue.Subscription
			how  func(*delayqueue.Flight[*passenger])
			want bool
		}{
			"full":                        {full, func(*delayqueue.Flight[*passenger]) {}, false},
			"full, and all wait for it":   {full, (*delayqueue.Flight[*passenger]).Squeeze, true},
			"full, and it is owed":        {full, (*delayqueue.Flight[*passenger]).Owes, false},
			"outage":                      {out, func(*delayqueue.Flight[*passenger]) {}, false},
			"outage, and all wait for it": {out, (*delayqueue.Flight[*passenger]).Squeeze, true},
			"outage, and it is owed":      {out, (*delayqueue.Flight[*passenger]).Owes, true},
			"nothing is bounded":          {&delayqueue.Subscription{}, (*delayqueue.Flight[*passenger]).Owes, true},
		} {
			f := delayqueue.NewFlight[*passenger]()
			f.Bound(&c.sub.Throttle)
			if c.how(f); f.Room() != c.want {
				t.Errorf("%s: room %t, want %t", name, !c.want, c.want)
			}
			f.Yield()
		}
	})
}

// A lane that ends with the probe in flight leaves that to another one, at once.
func TestALaneThatEndsLeavesItsProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sub := watched(t, &broker{}, nil)
		for i := range 3 {
			of(sub, fmt.Sprint(i), t.Context()).Decide(errOurs, time.Now())
		}
		<-time.After(sub.Policy.Outage.Probe)
		lanes := [2]*delayqueue.Flight[*passenger]{delayqueue.NewFlight[*passenger](), delayqueue.NewFlight[*passenger]()}
		for _, f := range lanes {
			f.Bound(&sub.Throttle)
		}
		if !lanes[0].Room() {
			t.Fatal("no probe may begin")
		}
		lanes[0].Begin(&passenger{d: deliver(sub, t.Context())})
		if lanes[1].Room() {
			t.Fatal("two probes may begin")
		}
		if lanes[0].Close(); !lanes[1].Room() {
			t.Error("the probe went with its lane")
		}
	})
}

// A flight that nothing bounds has room: who waits for that is not to wait for ever.
func TestAFlightThatNothingBoundsHasRoom(t *testing.T) {
	f := delayqueue.NewFlight[*passenger]()
	select {
	case <-f.More():
	default:
		t.Error("it is waited for")
	}
	if f.Yield(); !f.Room() {
		t.Error("it has none")
	}
}

// Who asks when there will be room takes none where there is some, and does not stand in
// the line; where there is none, they are told when there is.
func TestAskingForRoomTakesNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open, _ := subscribe(&broker{}, t.Context())
		open.Shrink(1, 16)
		tight := shrunk(t)
		ask := func(sub *delayqueue.Subscription) (f *delayqueue.Flight[*passenger], now bool) {
			f = delayqueue.NewFlight[*passenger]()
			f.Bound(&sub.Throttle)
			select {
			case <-f.More():
				return f, true
			default:
				return f, false
			}
		}
		for _, sub := range []*delayqueue.Subscription{open, tight} {
			if f, now := ask(sub); !now || f.Waits() != nil {
				t.Errorf("with room for %d: at once %t, waits %t", sub.Throttle.Limit(), now, f.Waits() != nil)
			}
		}
		if !tight.Throttle.Enter(t.Context(), nil) {
			t.Fatal("the room is taken by who only asked")
		}
		if f, now := ask(tight); now || f.Waits() == nil {
			t.Errorf("without room: at once %t, waits %t", now, f.Waits() != nil)
		}
	})
}

// It shrinks to half of what was in flight, not of what might have been, and says so.
func TestWhatIsShrunkIsWhatWasUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, _ := subscribe(b, t.Context())
		sub.Shrink(1, 100)
		var all []*delayqueue.Delivery
		for range 12 {
			all = append(all, deliver(sub, t.Context()))
			sub.Throttle.Enter(t.Context(), all[0])
		}
		for i, d := range all {
			how := delayqueue.Acked
			if i > 1 {
				how = delayqueue.Forwarded
				if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil {
					t.Fatal(err)
				}
			}
			if i == len(all)-1 {
				<-time.After(time.Second)
			}
			sub.Throttle.Leave(d, how)
		}
		told := events[redeliver.SubscriptionChanged](b)
		if want := "10 of 12 messages failed in a second; at most 6 of 100 are in flight now, and fewer if that goes on"; len(told) != 1 || told[0].Detail != want {
			t.Errorf("told %+v, want %q", told, want)
		}
		if limit := sub.Throttle.Limit(); limit != 6 {
			t.Errorf("there is room for %d, want 6", limit)
		}
	})
}
