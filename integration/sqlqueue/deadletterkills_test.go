//go:build prove

package main

import (
	"testing"

	"github.com/redeliver/redeliver/internal/adaptertest"
)

// A runner that dies between any two calls of the driver loses nothing and counts nothing twice.
func TestDeadLetterKills(t *testing.T) {
	t.Parallel()
	h := &harness{files: make(map[string]string)}
	adaptertest.RunDeadLetterKills(t, h.kit(), h.openDeadLetters)
}
