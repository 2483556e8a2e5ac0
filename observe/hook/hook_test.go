package hook_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/hook"
	"github.com/redeliver/redeliver/redelivertest"
)

var errDeclined = errors.New("card declined")

func letter(id string) redeliver.DeadLettered {
	return redeliver.DeadLettered{State: redeliver.State{ID: id, Origin: "orders", Group: "billing", Reason: redeliver.ReasonExhausted}, Err: errDeclined}
}

// The function is called for the dead letters of a real subscription, with their reasons, and for no other events.
func TestDeadLettersAreReported(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var reported []redeliver.DeadLettered
		h := hook.OnDeadLetter(func(_ context.Context, d redeliver.DeadLettered) error {
			reported = append(reported, d) // read after Close
			return nil
		}, hook.Config{})
		c := b.Open(redelivertest.Config{Group: "billing", Sink: h, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)}})
		orders := c.Handle("orders", func(m *message.Message) error {
			if m.UUID == "good" {
				return nil
			}
			return errDeclined
		})
		for _, id := range []string{"bad", "good", "worse"} {
			b.Publish("orders", message.NewMessage(id, nil))
		}
		for _, id := range []string{"bad", "good", "worse"} {
			orders.Outcome(id)
		}
		if err := h.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(reported) != 2 {
			t.Fatalf("%d were reported, want 2", len(reported))
		}
		for _, d := range reported {
			if s := d.State; s.Reason != redeliver.ReasonExhausted || s.Attempts != 2 || s.Error != "card declined" || d.Where == "" {
				t.Errorf("%s: reason %s, %d attempts, error %q, where %q", s.ID, s.Reason, s.Attempts, s.Error, d.Where)
			}
		}
		if n := h.Counts(); n != (hook.Counts{Delivered: 2}) {
			t.Errorf("%+v", n)
		}
	})
}

// A function that hangs delays no message: dead letters without room are missed and counted, and Close ends with its
// context.
func TestAFunctionThatHangsDelaysNoMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type miss struct {
			id  string
			why error
		}
		var mu sync.Mutex
		var missed []miss
		h := hook.OnDeadLetter(func(ctx context.Context, _ redeliver.DeadLettered) error {
			<-ctx.Done()
			return ctx.Err()
		}, hook.Config{Queue: 2, Missed: func(d redeliver.DeadLettered, why error) {
			mu.Lock()
			defer mu.Unlock()
			missed = append(missed, miss{d.State.ID, why})
		}})
		h.Event(letter("1"))
		synctest.Wait() // it hangs now
		for _, id := range []string{"2", "3", "4"} {
			h.Event(letter(id))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		h.Event(letter("5"))
		synctest.Wait()
		if n, want := h.Counts(), (hook.Counts{Failed: 1, Missed: 4}); n != want {
			t.Errorf("%+v, want %+v", n, want)
		}
		mu.Lock()
		defer mu.Unlock()
		for id, want := range map[string]error{"1": context.Canceled, "2": hook.ErrClosed, "3": hook.ErrClosed, "4": hook.ErrFull, "5": hook.ErrClosed} {
			if i := slices.IndexFunc(missed, func(m miss) bool { return m.id == id }); i < 0 || !errors.Is(missed[i].why, want) {
				t.Errorf("%s was not missed because %v: %v", id, want, missed)
			}
		}
	})
}

// A function that fails or panics is called for the next dead letter.
func TestAFunctionThatFailsIsCalledAgain(t *testing.T) {
	var reported []string
	h := hook.OnDeadLetter(func(_ context.Context, d redeliver.DeadLettered) error {
		reported = append(reported, d.State.ID)
		switch d.State.ID {
		case "fails":
			return errDeclined
		case "panics":
			panic("a nil map")
		}
		return nil
	}, hook.Config{})
	for _, id := range []string{"fails", "panics", "works"} {
		h.Event(letter(id))
	}
	if err := h.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"fails", "panics", "works"}; !slices.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
	if n, want := h.Counts(), (hook.Counts{Delivered: 1, Failed: 2}); n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
	if err := h.Close(t.Context()); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// A hook wants no events of messages that succeed.
func TestAHookWantsOnlyDeadLetters(t *testing.T) {
	h := hook.OnDeadLetter(func(context.Context, redeliver.DeadLettered) error { return nil }, hook.Config{})
	defer func() { _ = h.Close(context.Background()) }()
	sink := observe.Sinks(h).(observe.FilteringSink)
	if sink.Wants(redeliver.Attempted{}) || sink.Wants(redeliver.Committed{}) || !sink.Wants(redeliver.DeadLettered{}) {
		t.Error("the hook wants events that it does not need")
	}
}
