package kafka_test

import (
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/deadletter"
)

// countProducers counts the producers that begin on a cluster. If refused, they get an error.
func countProducers(cluster *kfake.Cluster, refused bool) *atomic.Int64 {
	var n atomic.Int64
	cluster.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		n.Add(1)
		if !refused {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		res.ErrorCode = 31 // CLUSTER_AUTHORIZATION_FAILED
		return res, nil, true
	})
	return &n
}

// Its producer batches, and is made once in a claim. A small replay uses the client's producer, and so does a large one
// whose own producer cannot be made.
func TestALargeReplayHasItsOwnProducer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		each    int // on four partitions
		refused bool
		want    int64
	}{
		{"few", 5, false, 0},
		{"many", 50, false, 1},
		{"many, and it is refused", 50, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			q, _ := filledDLQ(t, fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}, c.each)
			n := countProducers(cluster, c.refused)
			task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 80})
			if err != nil || task.Status != deadletter.StatusDone || task.Counts.Replayed != int64(4*c.each) {
				t.Fatalf("the replay ended as %+v: %v", task, err)
			}
			if got := n.Load(); got != c.want {
				t.Errorf("%d producers were made, want %d", got, c.want)
			}
			left, exact, err := q.Count(t.Context())
			if err != nil || !exact || left != 0 {
				t.Errorf("%d are in the DLQ (exactly: %v): %v", left, exact, err)
			}
		})
	}
}
