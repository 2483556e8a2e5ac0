package engine_test

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/internal/engine"
)

var origin = time.Date(2026, 3, 14, 15, 9, 26, 0, time.UTC)

// The model is a list sorted by time, first in first out among equals.
func TestHoldIsASortedList(t *testing.T) {
	type item struct {
		at time.Time
		id int
	}
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(-1, 40).Draw(t, "most")
		bound := max(1, most)
		h := engine.NewHold[int](most)
		var model []item
		var last time.Time
		id := 0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				// Use few different times, so that some are equal.
				at := origin.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "at")) * time.Second)
				id++
				want := len(model) < bound
				if got := h.Put(at, id); got != want {
					t.Fatalf("Put with %d of %d held: %v", len(model), bound, got)
				}
				if want {
					last = at
					model = append(model, item{at, id})
					slices.SortStableFunc(model, func(a, b item) int { return a.at.Compare(b.at) })
				}
			},
			"pop": func(t *rapid.T) {
				now := origin.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "now")) * time.Second)
				got, ok := h.Pop(now)
				want := len(model) > 0 && !model[0].at.After(now)
				if ok != want || ok && got != model[0].id || !ok && got != 0 {
					t.Fatalf("Pop(%s) = %d, %v; the model is %v", now, got, ok, model)
				}
				if ok {
					model = model[1:]
				}
			},
			"delete": func(t *rapid.T) {
				of := rapid.IntRange(2, 5).Draw(t, "of")
				h.Delete(func(id int) bool { return id%of == 0 })
				model = slices.DeleteFunc(model, func(i item) bool { return i.id%of == 0 })
			},
			"": func(t *rapid.T) {
				if h.Len() != len(model) || h.Full() != (len(model) == bound) || !h.Last().Equal(last) {
					t.Fatalf("Len %d, Full %v, Last %s; the model has %d of %d, last %s", h.Len(), h.Full(), h.Last(), len(model), bound, last)
				}
				at, ok := h.Next()
				if ok != (len(model) > 0) || ok && !at.Equal(model[0].at) || !ok && !at.IsZero() {
					t.Fatalf("Next is %s, %v; the model is %v", at, ok, model)
				}
			},
		})
	})
}

// The slice of a hold must not keep popped items in memory.
func TestHoldKeepsNoPointerToPoppedItems(t *testing.T) {
	type body struct{ _ [1 << 10]byte }
	h := engine.NewHold[*body](8)
	var left [3]weak.Pointer[body]
	for i := range left {
		b := new(body)
		left[i] = weak.Make(b)
		h.Put(origin, b)
	}
	for i := range left {
		if _, ok := h.Pop(origin); !ok {
			t.Fatalf("item %d is missing", i)
		}
	}
	runtime.GC()
	for i, w := range left {
		if w.Value() != nil {
			t.Errorf("item %d is not due", i)
		}
	}
	runtime.KeepAlive(h)
}

// With a timer for the first item, as lanes use it, nothing is popped before its time.
func TestHoldPopsNothingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := engine.NewHold[time.Duration](8)
		start := time.Now()
		for _, d := range []time.Duration{3 * time.Second, 900 * time.Millisecond, 1, 0} {
			h.Put(start.Add(d), d)
		}
		for h.Len() > 0 {
			at, _ := h.Next()
			<-time.After(time.Until(at))
			d, ok := h.Pop(time.Now())
			if waited := time.Since(start); !ok || waited != d {
				t.Errorf("held for %s, %v; want %s", waited, ok, d)
			}
			if _, ok := h.Pop(time.Now()); ok {
				t.Error("the next item was popped too early")
			}
		}
	})
}
