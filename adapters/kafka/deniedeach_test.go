//go:build prove

package kafka_test

import (
	"slices"
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
	d, used := recordedRun(t)
	d.During(t, slices.DeleteFunc(used, func(op kafkatest.Operation) bool {
		isSecond := op.Key == kmsg.DeleteRecords && op.Name == d.Ours("retry") // within a minute only the first one is reported
		return startsOnly(op) || isRung(op) || isSecond
	}))
}

// Each operation is denied alone before the service starts.
func TestEachOperationDeniedBeforeAStart(t *testing.T) {
	t.Parallel()
	d, used := recordedRun(t)
	for _, op := range used {
		if isRung(op) {
			continue
		}
		t.Run(op.String(), func(t *testing.T) {
			d := d
			if op.Key == kmsg.CreateTopics {
				d = newDenied(t)
			}
			d.Before(t, op)
		})
	}
}

// A topic of redeliver's is deleted, and the service may not create it again.
func TestCreationDeniedWhileRunning(t *testing.T) {
	t.Parallel()
	for _, topic := range []string{"dlq", "retry", "retry.180ms"} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			d, _ := recordedRun(t)
			d.Deleted(t, d.Ours(topic))
		})
	}
}
