package main

import (
	"testing"
	"time"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/examples/adapter"
	"github.com/redeliver/redeliver/internal/adaptertest"
)

// lease is long enough for a machine that is busy.
const lease = 3 * time.Second

// openDeadLetters opens the DLQ with a connection of its own. To kill its process is to lose that connection.
func (h *harness) openDeadLetters(t testing.TB, origin, group string) (q deadletter.Queue, kill func()) {
	db := h.connect(t, origin)
	q = adapter.OpenDeadLetters(db, origin, group, lease)
	return q, func() { _ = db.Close() }
}

// Package deadletter works on the DLQ of an adapter of the user's own as on redeliver's.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	h := &harness{files: make(map[string]string)}
	adaptertest.RunDeadLetters(t, h.kit(), h.openDeadLetters)
}
