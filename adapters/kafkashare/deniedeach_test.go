//go:build prove

package kafkashare_test

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// startsOnly reports whether a service uses an operation only when it starts, unless something else changes.
func startsOnly(op kafkatest.Operation) bool {
	return slices.Contains([]kmsg.Key{kmsg.InitProducerID, kmsg.FindCoordinator, kmsg.CreateTopics, kmsg.DescribeConfigs, kmsg.IncrementalAlterConfigs, kmsg.ListGroups}, op.Key) ||
		op.Name == "__share_group_state" || (op.Key == kmsg.OffsetFetch || op.Key == kmsg.ShareGroupHeartbeat) && op.Kind == "topic"
}

// isLong reports whether an operation is about a level for waits that the test does not have. Such levels exist from the
// start, and are like the shortest one.
func isLong(op kafkatest.Operation) bool {
	level, ok := kafkaname.Level("orders.billing.retry", op.Name)
	return ok && level > time.Second
}

// isUnchecked reports whether nothing tells of a refusal: a check of the brokers is left out without its right, a list
// has the groups that the user may describe, and the fake refuses no settings of groups. franz-go repeats a refused
// ShareFetch without a word; the heartbeat needs the same right.
func isUnchecked(op kafkatest.Operation) bool {
	return op.Key == kmsg.ShareFetch && op.Kind == "group" || op.Key == kmsg.ListGroups || (op.Key == kmsg.DescribeConfigs || op.Key == kmsg.IncrementalAlterConfigs) && op.Kind != "topic"
}

// Each operation of a run is denied alone while the service runs. The operations are those of a run, so that a new one is
// tested, too.
func TestEachOperationDeniedAlone(t *testing.T) {
	t.Parallel()
	d, used := recordedRun(t)
	d.During(t, slices.DeleteFunc(used, func(op kafkatest.Operation) bool { return startsOnly(op) || isLong(op) }))
}

// Each operation is denied alone before the service starts.
func TestEachOperationDeniedBeforeAStart(t *testing.T) {
	t.Parallel()
	d, used := recordedRun(t)
	for _, op := range used {
		if isLong(op) || isUnchecked(op) {
			continue
		}
		t.Run(op.String(), func(t *testing.T) {
			d := d
			if op.Key == kmsg.CreateTopics || op.Key == kmsg.IncrementalAlterConfigs {
				d = newDenied(t)
			}
			d.Before(t, op)
		})
	}
}
