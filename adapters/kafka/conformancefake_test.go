//go:build prove

package kafka_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// TestConformance runs the kit on a fake whose broker itself refuses records. integration/kafka runs it on a real broker.
func TestConformance(t *testing.T) {
	t.Parallel()
	cluster := fake(t)
	h := kafkatest.New(t, cluster.ListenAddrs(), func(prefix string) func() {
		return cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1,
			When: func(req kmsg.Request) bool {
				produce, ok := req.(*kmsg.ProduceRequest)
				return ok && slices.ContainsFunc(produce.Topics, func(t kmsg.ProduceRequestTopic) bool { return strings.HasPrefix(t.Topic, prefix) })
			},
		}).Remove
	})
	h.Compresses = false // integration/kafka runs the message of 105 MB
	adaptertest.Run(t, h)
}
