package kafka

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLowestComesFirst(t *testing.T) {
	var h lowest
	var model []uint64
	for range 10_000 {
		if len(model) == 0 || rand.IntN(2) == 0 {
			n := rand.Uint64N(1000)
			h.push(&entry{number: n})
			model = append(model, n)
			continue
		}
		i := slices.Index(model, slices.Min(model))
		if e := h.pop(); e.number != model[i] {
			t.Fatalf("%d, want %d", e.number, model[i])
		}
		model = slices.Delete(model, i, i+1)
	}
	if len(h) != len(model) {
		t.Errorf("%d left, want %d", len(h), len(model))
	}
}
