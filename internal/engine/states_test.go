package engine_test

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

func TestStatesAreKnownOnceAndBounded(t *testing.T) {
	s := engine.States[string]{MaxMessages: 2}
	if st := s.Take("a"); st != nil {
		t.Errorf("of nothing: %+v", st)
	}
	s.Put("a", &redeliver.State{Attempts: 1})
	s.Put("b", &redeliver.State{Attempts: 2})
	if st := s.Take("a"); st == nil || st.Attempts != 1 {
		t.Errorf("a is %+v", st)
	}
	if st := s.Take("a"); st != nil {
		t.Errorf("a once more: %+v", st)
	}
	s.Put("c", &redeliver.State{Attempts: 3})
	s.Put("d", &redeliver.State{Attempts: 4}) // above the bound
	if b, c, d := s.Take("b"), s.Take("c"), s.Take("d"); b != nil || c != nil || d == nil || d.Attempts != 4 {
		t.Errorf("above the bound: %+v, %+v, %+v", b, c, d)
	}
}
