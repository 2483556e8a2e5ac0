package kafka_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// rejoining makes a follower's session end while its window is about to be committed. The
// group has not changed by that, so it keeps its generation, and the window is taken after
// the next session has read its offsets, or after a while.
type rejoining struct {
	mu      sync.Mutex
	armed   bool
	leader  string        // of the members
	held    string        // the member whose window is held
	told    bool          // that its session is over
	joined  bool          // it has joined again
	kept    bool          // and has kept its generation
	fetched chan struct{} // closed when it reads its offsets after that
}

// heldMost is longer than a lane waits for its last commit and its messages together.
const heldMost = 5 * time.Second

func (j *rejoining) control(cluster *kfake.Cluster) {
	var generation int32
	cluster.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		j.mu.Lock()
		hold := false
		switch r := req.(type) {
		case *kmsg.SyncGroupRequest:
			if len(r.GroupAssignment) > 0 {
				j.leader = r.MemberID
			}
			if j.told && r.MemberID == j.held {
				j.joined, j.kept = true, r.Generation == generation
			}
		case *kmsg.TxnOffsetCommitRequest:
			if hold = j.armed && j.held == "" && r.MemberID != j.leader; hold {
				j.held, generation = r.MemberID, r.Generation
			}
		case *kmsg.HeartbeatRequest:
			if j.held == r.MemberID && !j.told {
				j.told = true
				res := r.ResponseKind().(*kmsg.HeartbeatResponse)
				res.ErrorCode = kerr.RebalanceInProgress.Code
				j.mu.Unlock()
				return res, nil, true
			}
		case *kmsg.OffsetFetchRequest:
			if j.joined {
				select {
				case <-j.fetched:
				default:
					close(j.fetched)
				}
			}
		}
		j.mu.Unlock()
		if hold {
			cluster.SleepControl(func() {
				timer := time.NewTimer(heldMost)
				defer timer.Stop()
				select {
				case <-j.fetched:
				case <-timer.C:
				}
			})
		}
		return nil, nil, false
	})
}

// A session that follows another one in the same generation read its offsets while the
// window of that one was on its way: all that was in it came again, and was forwarded twice.
func TestTransactionsOfASessionEndBeforeTheNextOneBegins(t *testing.T) {
	t.Parallel()
	const n = 200
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	j := &rejoining{fetched: make(chan struct{})}
	j.control(cluster)
	ev := newEvents() // of both
	var mu sync.Mutex
	failed := make(map[string]bool)
	for i := range 2 {
		sc := sarama.NewConfig()
		sc.ClientID = fmt.Sprint("member", i)
		sc.Consumer.Offsets.Initial = sarama.OffsetOldest
		sc.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
		c, _ := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), Transactions: true, Sarama: sc, Sink: ev, DrainTimeout: 100 * time.Millisecond})
		route(t, c, "orders", func(msg *message.Message) error {
			if j.leads(sc.ClientID) { // a window of its own would keep the other from its offsets
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			failed[msg.UUID] = true
			return errDeclined
		})
	}
	if _, err := cluster.WaitGroupStable(t.Context(), "billing", 2); err != nil {
		t.Fatal(err)
	}
	j.mu.Lock()
	j.armed = true
	j.mu.Unlock()
	recs, ids := orders("orders", n)
	write(t, addrs, recs...)
	ev.awaitEnds(t, ids...)
	j.mu.Lock()
	told, joined, kept := j.told, j.joined, j.kept
	j.mu.Unlock()
	if !told || !joined || !kept {
		t.Fatalf("the follower's session ended: %v; it joined again: %v; and kept its generation: %v", told, joined, kept)
	}
	mu.Lock()
	defer mu.Unlock()
	onceEach(t, addrs, []string{"orders.billing.dlq"}, len(failed))
	onceEach(t, addrs, []string{"orders.billing.retry.100ms", "orders.billing.retry"}, len(failed))
}

// leads tells whether the group's leader is the member of a client.
func (j *rejoining) leads(client string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.HasPrefix(j.leader, client)
}
