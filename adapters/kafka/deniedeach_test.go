//go:build prove

package kafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/kafkatest"
)

// startsOnly reports whether a service uses an operation only when it starts, unless something else changes.
func startsOnly(op kafkatest.Operation) bool {
	return op.Key == kmsg.InitProducerID || op.Key == kmsg.FindCoordinator || op.Key == kmsg.CreateTopics
}

// Each operation of a run is denied alone while the service runs. The operations are those of a run, so that a new one is
// tested, too.
func TestEachOperationDeniedAlone(t *testing.T) {
	t.Parallel()
	r, used := recordedRun(t)
	denyDuring(t, r, slices.DeleteFunc(used, func(op kafkatest.Operation) bool { return startsOnly(op) || r.isRung(op) }))
}

// Each operation is denied alone before the service starts. The start is refused with an error that names the right and
// its place, or the service does without it, or reports it as during a run.
func TestEachOperationDeniedBeforeAStart(t *testing.T) {
	t.Parallel()
	r, used := recordedRun(t)
	for _, op := range used {
		if r.isRung(op) {
			continue
		}
		t.Run(op.String(), func(t *testing.T) {
			r := *r
			r.T, r.ev = t, newEvents()
			if op.Key == kmsg.CreateTopics {
				r = *newDeniedRun(t)
				r.put("fine")
			}
			denied := op.Deny(r.cluster)
			defer denied.Remove()
			_, failed, stop := r.begin()
			defer stop()
			r.put("fails")
			r.put("short")
			reported := within(deniedWaits, func() bool { return len(failed) > 0 || denied.Hits() > 0 && r.names(op, 0) })
			if len(failed) > 0 {
				err := <-failed
				if want := op.Need(); !strings.Contains(err.Error(), want) {
					t.Errorf("the error does not name %s: %v", want, err)
				}
				return
			}
			if !reported && denied.Hits() == 0 {
				t.Fatal("it was not needed")
			}
			r.wantReported(op, 0)
			denied.Remove()
			r.wantWorks()
		})
		r.n += 100
	}
}
