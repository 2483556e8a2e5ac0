package live

import (
	"context"
	"errors"
	"slices"
	"testing"
)

type batched struct {
	name   string
	ctx    context.Context
	answer error
}

func (m *batched) Context() context.Context { return m.ctx }

func (m *batched) Answer(err error) bool {
	m.answer = err
	return true
}

// A message of a batch has its own loss only: another process may have the one before it, and its own answer counts.
func TestABatchGoesOnBehindALostMessage(t *testing.T) {
	lostAlone, lose := context.WithCancelCause(t.Context())
	session, end := context.WithCancelCause(t.Context())
	taken, closed := errors.New("another process has it"), errors.New("the process closes")
	all := []*batched{
		{name: "taken", ctx: lostAlone}, {name: "kept", ctx: session}, {name: "closed", ctx: session},
	}
	var ran []string
	err := HandleBatch(&Process{}, all, func(*batched) string { return "key" }, func(_ context.Context, m *batched) error {
		ran = append(ran, m.name)
		switch m.name {
		case "taken":
			lose(taken)
			return taken
		case "kept":
			end(closed)
		}
		return nil
	})
	if want := []string{"taken", "kept"}; err != nil || !slices.Equal(ran, want) {
		t.Errorf("these ran: %q, %v; want %q", ran, err, want)
	}
	for i, want := range []error{taken, nil, closed} {
		if !errors.Is(all[i].answer, want) {
			t.Errorf("%s was answered with %v, want %v", all[i].name, all[i].answer, want)
		}
	}
}
