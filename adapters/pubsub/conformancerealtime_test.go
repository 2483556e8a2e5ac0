//go:build prove

package pubsub

import (
	"testing"

	"github.com/redeliver/redeliver/internal/adaptertest"
)

// TestConformanceInRealTime runs the kit without synctest, whose scheduling differs: TestConformanceInBubbles runs the
// same tests in virtual time.
func TestConformanceInRealTime(t *testing.T) {
	t.Parallel()
	adaptertest.Run(t, newHarness())
}
