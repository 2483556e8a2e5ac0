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
func TestDueQueueIsASortedList(t *testing.T) {
	type item struct {
		at time.Time
		id int
	}
	rapid.Check(t, func(t *rapid.T) {
		var q engine.DueQueue[int]
		var model []item
		id := 0
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				// Use few different times, so that some are equal.
				at := origin.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "at")) * time.Second)
				id++
				q.Put(at, id)
				model = append(model, item{at, id})
				slices.SortStableFunc(model, func(a, b item) int { return a.at.Compare(b.at) })
			},
			"pop": func(t *rapid.T) {
				now := origin.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "now")) * time.Second)
				got, ok := q.Pop(now)
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
				q.Delete(func(id int) bool { return id%of == 0 })
				model = slices.DeleteFunc(model, func(i item) bool { return i.id%of == 0 })
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("Len is %d; the model has %d", q.Len(), len(model))
				}
				at, ok := q.Next()
				if ok != (len(model) > 0) || ok && !at.Equal(model[0].at) || !ok && !at.IsZero() {
					t.Fatalf("Next is %s, %v; the model is %v", at, ok, model)
				}
			},
		})
	})
}

// The slice must not keep popped items in memory.
func TestDueQueueKeepsNoPointerToPoppedItems(t *testing.T) {
	type body struct{ _ [1 << 10]byte }
	var q engine.DueQueue[*body]
	var left [3]weak.Pointer[body]
	for i := range left {
		b := new(body)
		left[i] = weak.Make(b)
		q.Put(origin, b)
	}
	for i := range left {
		if _, ok := q.Pop(origin); !ok {
			t.Fatalf("item %d is missing", i)
		}
	}
	runtime.GC()
	for i, w := range left {
		if w.Value() != nil {
			t.Errorf("item %d is still in memory", i)
		}
	}
	runtime.KeepAlive(q)
}

// With a timer for the first item, as lanes use it, nothing is popped before its time.
func TestDueQueuePopsNothingEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q engine.DueQueue[time.Duration]
		start := time.Now()
		for _, d := range []time.Duration{3 * time.Second, 900 * time.Millisecond, 1, 0} {
			q.Put(start.Add(d), d)
		}
		for q.Len() > 0 {
			at, _ := q.Next()
			<-time.After(time.Until(at))
			d, ok := q.Pop(time.Now())
			if waited := time.Since(start); !ok || waited != d {
				t.Errorf("popped after %s, %v; want %s", waited, ok, d)
			}
			if _, ok := q.Pop(time.Now()); ok {
				t.Error("the next item was popped too early")
			}
		}
	})
}
