package delayqueue_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// bodied is a record whose body may be left out.
type bodied struct {
	record
	body string
}

func (b bodied) Body() []byte { return []byte(b.body) }

// A message that the DLQ refuses for itself kept its place in the partition, and its
// slot, for ever.
func TestWhatTheDLQRefusesIsStubbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tooLarge := fmt.Errorf("%w: too large", delayqueue.ErrRefused)
		b := &broker{schedule: func(context.Context, int) error { return tooLarge }}
		b.bury = func(_ context.Context, try int) error {
			if try == 2 { // the first was the level's
				return tooLarge
			}
			return nil
		}
		sub, d := subscribe(b, t.Context())
		d.Record = bodied{body: "payload"}
		if err := sub.Forward(d, later(t, sub, d), errOurs); err != nil {
			t.Fatal(err)
		}
		want := []string{"level refuses", "dlq refuses", "dlq confirms", "DeadLettered"}
		if got := b.seen(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		st := b.wrote[0]
		if truncated := fmt.Sprintf("7 sha256:%x", sha256.Sum256([]byte("payload"))); st.Truncated != truncated || st.Reason != redeliver.ReasonUnschedulable ||
			!strings.Contains(st.Error, "too large") || !strings.Contains(st.Error, errOurs.Error()) {
			t.Errorf("wrote %+v, want it truncated: %s", st, truncated)
		}
	})
}

// The same for one that was on its way to the DLQ for another reason.
func TestADeadLetterThatIsRefusedIsUnschedulable(t *testing.T) {
	b := &broker{}
	b.bury = func(_ context.Context, try int) error {
		if try == 1 {
			return delayqueue.ErrRefused
		}
		return nil
	}
	sub, d := subscribe(b, t.Context())
	d.Record = bodied{}
	err := redeliver.Permanent(errOurs)
	if err := sub.Forward(d, sub.Decide(d.State(), err, time.Now()), err); err != nil {
		t.Fatal(err)
	}
	if st := b.wrote[0]; st.Reason != redeliver.ReasonUnschedulable || !strings.HasPrefix(st.Truncated, "0 sha256:") {
		t.Errorf("wrote %+v", st)
	}
}

// A DLQ that refuses even a stub takes nothing at all: that is an outage.
func TestARefusedStubIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		b.bury = func(_ context.Context, try int) error {
			if try < 5 {
				return delayqueue.ErrRefused
			}
			return nil
		}
		sub, d := subscribe(b, t.Context())
		d.Record = bodied{}
		err := redeliver.Permanent(errOurs)
		if err := sub.Forward(d, sub.Decide(d.State(), err, time.Now()), err); err != nil {
			t.Fatal(err)
		}
		if got := b.seen(); !slices.Contains(got, "intake paused") || b.wrote[0].Truncated == "" {
			t.Errorf("%q, wrote %+v", got, b.wrote)
		}
	})
}

// An error that nobody knows is this message's own when others are written to the same
// place all the while. Nobody waits for it.
func TestAnUnknownErrorIsARefusalWhileNeighboursAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, d := subscribe(b, t.Context())
		b.schedule = func(ctx context.Context, _ int) error {
			if ctx.Value(key{}) != nil {
				return nil
			}
			return fmt.Errorf("%w: code 4711", delayqueue.ErrDoubtful)
		}
		sub.Scheduler = perMessage{b, map[*delayqueue.Delivery]error{d: fmt.Errorf("%w: code 4711", delayqueue.ErrDoubtful)}}
		over := make(chan error, 1)
		go func() { over <- sub.Forward(d, later(t, sub, d), errOurs) }()
		for range 600 {
			select {
			case err := <-over:
				if err != nil {
					t.Error(err)
				}
				if st := b.wrote[len(b.wrote)-1]; st.Reason != redeliver.ReasonUnschedulable || !strings.Contains(st.Error, "code 4711") {
					t.Errorf("wrote %+v", st)
				}
				if slices.Contains(b.seen(), "intake paused") {
					t.Error("the others were held up")
				}
				return
			case <-time.After(100 * ms):
			}
			neighbour := deliver(sub, t.Context())
			if err := sub.Forward(neighbour, later(t, sub, neighbour), errOurs); err != nil {
				t.Fatal(err)
			}
		}
		t.Fatal("it is still being written after a minute")
	})
}

// Where nothing else is written, or nothing else can be, it is an outage, which is waited
// for.
func TestAnUnknownErrorOfAllIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 5 * minute
		began := time.Now()
		b := &broker{schedule: func(context.Context, int) error {
			if time.Since(began) < outage {
				return delayqueue.ErrDoubtful
			}
			return nil
		}}
		sub, first := subscribe(b, t.Context())
		over := make(chan error, 2)
		forward := func(d *delayqueue.Delivery) { over <- sub.Forward(d, later(t, sub, d), errOurs) }
		go forward(first)
		<-time.After(minute)
		if sub.Gate.Closed() {
			t.Error("the intake is paused for a message that may be the only one")
		}
		go forward(deliver(sub, t.Context()))
		<-time.After(minute)
		if !sub.Gate.Closed() {
			t.Error("the intake is not paused although nothing can be written")
		}
		for range 2 {
			if err := <-over; err != nil {
				t.Error(err)
			}
		}
		if len(events[redeliver.RetryScheduled](b)) != 2 || sub.Gate.Closed() {
			t.Errorf("%q, closed %v", b.seen(), sub.Gate.Closed())
		}
	})
}

// perMessage is a Scheduler that fails the messages of errs.
type perMessage struct {
	*broker
	errs map[*delayqueue.Delivery]error
}

func (p perMessage) Schedule(ctx context.Context, d *delayqueue.Delivery, st *redeliver.State) (string, error) {
	if err := p.errs[d]; err != nil {
		return "level", err
	}
	return p.broker.write(ctx, "level", *st, nil)
}

// A write that moves a message on without a decision of the policy has the same rules.
func TestOnwardIsTriedBeforeTheDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, d := subscribe(b, t.Context())
		dec := &redeliver.Decision{State: d.State(), Action: redeliver.RetryLater}
		tries := 0
		where, err := sub.PersistDecision(d, dec, func(context.Context) (string, error) {
			if tries++; tries < 3 {
				return "next", errTheirs
			}
			return "next", delayqueue.ErrRefused
		})
		if err != nil || where != "dlq" || dec.Action != redeliver.DeadLetter || dec.State.Reason != redeliver.ReasonUnschedulable || tries != 3 {
			t.Errorf("%s %v after %d tries, decided %+v", where, err, tries, dec)
		}
		if errors.Is(err, delayqueue.ErrRefused) {
			t.Error(err)
		}
	})
}
