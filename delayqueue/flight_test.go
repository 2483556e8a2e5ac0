package delayqueue_test

import (
	"context"
	"slices"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

type flyer struct {
	delayqueue.Seat
	name string
	d    *delayqueue.Delivery
	msg  *message.Message
	told []bool
}

func (f *flyer) Delivery() *delayqueue.Delivery { return f.d }
func (f *flyer) Handed() *message.Message       { return f.msg }
func (f *flyer) Moved(forwarded bool)           { f.told = append(f.told, forwarded) }

// Those who are in flight are known whoever lands, in whatever order, also while
// somebody goes through them.
func TestFlightKnowsWhoIsInIt(t *testing.T) {
	f := delayqueue.NewFlight[*flyer]()
	all := make(map[string]*flyer)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		all[name] = &flyer{name: name}
		f.Begin(all[name])
	}
	names := func() (in []string) {
		for e := range f.All {
			in = append(in, e.name)
		}
		slices.Sort(in)
		return in
	}
	land := func(name string, want bool) {
		t.Helper()
		if got := f.Land(all[name], delayqueue.Abandoned); got != want || f.Has(all[name]) {
			t.Errorf("%s: landed %v, want %v; in flight %v", name, got, want, f.Has(all[name]))
		}
	}
	land("b", true)
	land("e", true) // the last one
	land("b", false)
	if got := names(); !slices.Equal(got, []string{"a", "c", "d"}) || f.Len() != 3 {
		t.Errorf("in flight: %v (%d)", got, f.Len())
	}
	f.Begin(all["b"])
	var seen []string
	for e := range f.All {
		if len(seen) == 0 { // all but itself and one land meanwhile
			for _, name := range []string{"a", "b", "c", "d"} {
				if name != e.name && f.Len() > 2 {
					f.Land(all[name], delayqueue.Abandoned)
				}
			}
		}
		seen = append(seen, e.name)
	}
	slices.Sort(seen)
	if got := names(); len(got) != 2 || !slices.Equal(got, seen) {
		t.Errorf("in flight are %v, gone through were %v", got, seen)
	}
}

func TestFlightRingsForWhatIsReported(t *testing.T) {
	f := delayqueue.NewFlight[*flyer]()
	a, b, c := &flyer{name: "a"}, &flyer{name: "b"}, &flyer{name: "c"}
	var landed []string
	poll := func() bool {
		return f.Poll(func(e *flyer, _ delayqueue.Ending) { landed = append(landed, e.name) })
	}
	for range 3 { // also with the room of the time before
		landed = nil
		f.Report(a, delayqueue.Acked)
		f.Report(b, delayqueue.Acked)
		<-f.Bell()
		f.Report(c, delayqueue.Acked)
		if !poll() || !slices.Equal(landed, []string{"a", "b", "c"}) {
			t.Errorf("landed: %v", landed)
		}
		if poll() {
			t.Errorf("landed again: %v", landed)
		}
	}
	f.Close()
	f.Report(a, delayqueue.Acked) // does not wait for anybody
}

// A message that moved on is acked when that was reported. Whoever looked at the reports
// just before, and at the acks just after, took it for one that has succeeded: on a FIFO
// queue, where it waits in place, it was deleted.
func TestTheAckOfWhatHasMovedOnIsNotItsEnd(t *testing.T) {
	sub, d := subscribe(&broker{}, t.Context())
	e := &flyer{name: "a", d: d, msg: message.NewMessage("a", nil)}
	d.Mover = e
	f := delayqueue.NewFlight[*flyer]()
	f.Begin(e)
	f.Handed(e)
	if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil || len(e.told) != 1 {
		t.Fatalf("told %v: %v", e.told, err)
	}
	if !f.Unwatched() {
		t.Error("nobody looks whether it was answered")
	}
	e.msg.Ack()
	var landed []delayqueue.Ending
	land := func(_ *flyer, how delayqueue.Ending) { landed = append(landed, how) }
	f.Poll(land) // the report is on its way still
	f.Report(e, delayqueue.Forwarded)
	f.Poll(land)
	if !slices.Equal(landed, []delayqueue.Ending{delayqueue.Forwarded}) {
		t.Errorf("it landed as %v, want %v alone", landed, delayqueue.Forwarded)
	}
	if f.Unwatched() {
		t.Error("it is still looked for")
	}

	_, plain := subscribe(&broker{}, t.Context())
	other := &flyer{name: "b", d: plain, msg: message.NewMessage("b", nil)}
	plain.Mover = other
	f.Begin(other)
	f.Handed(other)
	other.msg.Ack()
	landed = nil
	if !f.Poll(land) || !slices.Equal(landed, []delayqueue.Ending{delayqueue.Acked}) {
		t.Errorf("one that succeeded landed as %v", landed)
	}
}

// A middleware around Retry may still use the context of a message that has moved on: it
// ends when the Router has answered. That of one that is acked ends with it.
func TestTheContextOfWhatHasMovedOnEndsWithItsAnswer(t *testing.T) {
	f := delayqueue.NewFlight[*flyer]()
	poll := func() { f.Poll(func(*flyer, delayqueue.Ending) {}) }
	_, d := subscribe(&broker{}, t.Context())
	e := &flyer{name: "a", d: d, msg: message.NewMessage("a", nil)}
	f.Begin(e)
	f.Land(e, delayqueue.Forwarded)
	if poll(); d.Err() != nil {
		t.Errorf("its context has ended before its handler answered: %v", d.Err())
	}
	e.msg.Ack()
	if poll(); d.Err() == nil {
		t.Error("its context lives on")
	}
	var many []*flyer
	for range 1025 { // as many as handlers are waited for, and one
		_, d := subscribe(&broker{}, t.Context())
		e := &flyer{d: d, msg: message.NewMessage("b", nil)}
		many = append(many, e)
		f.Begin(e)
		f.Land(e, delayqueue.Forwarded)
	}
	if poll(); many[0].d.Err() == nil || many[1].d.Err() != nil {
		t.Errorf("the oldest of 1,025 and the next one: %v, %v; want the oldest's alone to have ended", many[0].d.Err(), many[1].d.Err())
	}

	_, d = subscribe(&broker{}, t.Context())
	e = &flyer{name: "b", d: d, msg: message.NewMessage("b", nil)}
	f.Begin(e)
	e.msg.Ack()
	if f.Land(e, delayqueue.Acked); d.Err() == nil {
		t.Error("the context of one that succeeded lives on")
	}
}

// choosy wants no event of every message.
type choosy struct{ told []redeliver.Event }

func (c *choosy) Event(e redeliver.Event) { c.told = append(c.told, e) }
func (c *choosy) Wants(e redeliver.Event) bool {
	switch e.(type) {
	case redeliver.Attempted, redeliver.Committed:
		return false
	default:
		return true
	}
}

// A sink that does not want what every message has is told of the rest, and of
// nothing that has to be made.
func TestEventsThatNobodyWantsAreNotMade(t *testing.T) {
	sink := new(choosy)
	ctx, cancel := context.WithCancel(t.Context())
	run := func(err error) {
		sub := &delayqueue.Subscription{Origin: "orders", Group: "billing", Sink: sink, Policy: redeliver.Policy{}.WithDefaults()}
		d := &delayqueue.Delivery{Sub: sub, ID: "1"}
		d.Begin(ctx)
		e := &flyer{d: d}
		f := delayqueue.NewFlight[*flyer]()
		f.Begin(e)
		tk := &task{handle: func(context.Context) error {
			if err != nil {
				cancel()
			}
			return err
		}}
		how, _ := tk.work(d)
		f.Land(e, how)
	}
	run(nil)
	if len(sink.told) != 0 {
		t.Errorf("of a success it was told %v", sink.told)
	}
	run(errTheirs) // and its session ends
	if len(sink.told) != 1 {
		t.Fatalf("of a failure it was told %v", sink.told)
	}
	if _, ok := sink.told[0].(redeliver.Abandoned); !ok {
		t.Errorf("of a failure it was told %v", sink.told)
	}
	sub := &delayqueue.Subscription{Sink: sink}
	if n := testing.AllocsPerRun(100, func() {
		if sub.Wants(redeliver.Attempted{}) || sub.Wants(redeliver.Committed{}) {
			t.Error("wanted")
		}
	}); n > 0 {
		t.Errorf("to ask takes %v allocations", n)
	}
	if (&delayqueue.Subscription{}).Wants(redeliver.Attempted{}) {
		t.Error("no sink wants something")
	}
	if plain := (&delayqueue.Subscription{Sink: redeliver.SinkFunc(func(redeliver.Event) {})}); !plain.Wants(redeliver.Attempted{}) {
		t.Error("a sink that does not say wants all")
	}
}
