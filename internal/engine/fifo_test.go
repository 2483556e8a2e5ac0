package engine_test

import (
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver/internal/engine"
)

// A FIFO behaves like a slice under every sequence of operations.
func TestAFIFOBehavesLikeASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q engine.FIFO[int]
		var model []int
		n := 0
		t.Repeat(map[string]func(*rapid.T){
			"push": func(*rapid.T) {
				n++
				q.Push(n)
				model = append(model, n)
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 {
					t.Skip()
				}
				if q.Peek() != model[0] || q.Pop() != model[0] {
					t.Fatal("not the first")
				}
				model = model[1:]
			},
			"delete": func(t *rapid.T) {
				by := rapid.IntRange(2, 5).Draw(t, "by")
				gone := func(i int) bool { return i%by == 0 }
				q.Delete(gone)
				model = slices.DeleteFunc(model, gone)
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) || q.Empty() != (len(model) == 0) {
					t.Fatalf("%d items, want %d", q.Len(), len(model))
				}
			},
		})
	})
}

// A queue that is never empty keeps no more capacity than its largest length needs.
func TestAFIFOThatIsNeverEmptyDoesNotGrow(t *testing.T) {
	var q engine.FIFO[int]
	for i := range 10 {
		q.Push(i)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 1_000_000 {
		q.Push(10 + i)
		if got := q.Pop(); got != i {
			t.Fatalf("%d arrived as number %d", got, i)
		}
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
		t.Errorf("%d bytes were allocated for a million items, ten at once", got)
	}
}
