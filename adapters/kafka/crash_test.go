package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// commitAsDeadOwner commits offset 0 with the metadata of an owner that died.
func commitAsDeadOwner(t *testing.T, addrs []string, partition int32, metadata string) {
	t.Helper()
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: "orders", Partition: partition, At: 0, LeaderEpoch: -1, Metadata: metadata})
	if err := kadm.NewClient(independent(t, addrs)).CommitAllOffsets(t.Context(), "billing", offsets); err != nil {
		t.Fatal(err)
	}
}

// committedMeta returns the metadata of the group's offset of a partition of orders.
func committedMeta(t *testing.T, addrs []string, partition int32) string {
	t.Helper()
	offsets, err := kadm.NewClient(independent(t, addrs)).FetchOffsets(t.Context(), "billing")
	if err != nil {
		t.Fatal(err)
	}
	o, _ := offsets.Lookup("orders", partition)
	return o.Metadata
}

// fillPartitions writes n records to each of some partitions of orders. p0-0 is the first of partition 0.
func fillPartitions(t *testing.T, addrs []string, n int, partitions ...int32) (ids []string) {
	t.Helper()
	var recs []*kgo.Record
	for i := range n {
		for _, p := range partitions {
			r := order("orders", fmt.Sprintf("p%d-%d", p, i))
			r.Partition = p
			recs, ids = append(recs, r), append(ids, string(r.Key))
		}
	}
	put(t, addrs, recs...)
	return ids
}

// overlapRecorder records which messages run at the same time.
type overlapRecorder struct {
	mu     sync.Mutex
	runs   []string
	beside map[string][]string // the messages that ran at the same time
	now    map[string]bool
}

func newOverlapRecorder() *overlapRecorder {
	return &overlapRecorder{beside: make(map[string][]string), now: make(map[string]bool)}
}

func (c *overlapRecorder) begin(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs = append(c.runs, id)
	for other := range c.now {
		c.beside[id] = append(c.beside[id], other)
		c.beside[other] = append(c.beside[other], id)
	}
	c.now[id] = true
}

func (c *overlapRecorder) end(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.now, id)
}

func (c *overlapRecorder) ran(id string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.runs {
		if r == id {
			n++
		}
	}
	return n
}

// Suspects from the window of a dead process run alone: no message of their partition, of other partitions or of other
// subscriptions of the client runs beside them.
func TestSuspectsRunAlone(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders", "refunds")
	addrs := cluster.ListenAddrs()
	ids := fillPartitions(t, addrs, 30, 0, 1)
	refunds, others := orders("refunds", 60)
	write(t, addrs, refunds...)
	commitAsDeadOwner(t, addrs, 0, "redeliver/1 by=dead state=careful end=20 base=0 window=0-4,7")
	commitAsDeadOwner(t, addrs, 1, "redeliver/1 by=dead state=careful end=20 base=0 window=2")
	suspects := []string{"p0-0", "p0-1", "p0-2", "p0-3", "p0-4", "p0-7", "p1-2"}
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	with := newOverlapRecorder()
	work := func(msg *message.Message) error {
		with.begin(msg.UUID)
		defer with.end(msg.UUID)
		<-time.After(10 * time.Millisecond) // for others to begin beside it
		return nil
	}
	route(t, c, "refunds", work)
	route(t, c, "orders", work)
	ev.awaitEnds(t, append(ids, others...)...)
	with.mu.Lock()
	defer with.mu.Unlock()
	for _, id := range suspects {
		if len(with.beside[id]) > 0 {
			t.Errorf("%s ran at the same time as %v", id, with.beside[id])
		}
	}
	if len(with.beside) == 0 {
		t.Error("no two messages ran at the same time; the test proves nothing")
	}
	if n := len(with.runs); n != len(ids)+len(others) {
		t.Errorf("%d runs of %d messages", n, len(ids)+len(others))
	}
}

// A suspect whose time is over may still run. The next one waits until its handler has returned, also in the same turn.
func TestASuspectWaitsForOneThatOutlivesItsTimeout(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	ids := fillPartitions(t, addrs, 2, 0)
	commitAsDeadOwner(t, addrs, 0, "redeliver/1 by=dead state=careful end=2 base=0 suspects=0-1")
	p := quick(0)
	p.MaxRetries, p.Timeout = redeliver.NoRetries, 200*time.Millisecond // shorter than a turn
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: p})
	with, release := newOverlapRecorder(), make(chan struct{})
	var first sync.Once
	route(t, c, "orders", func(msg *message.Message) error {
		with.begin(msg.UUID)
		defer with.end(msg.UUID)
		first.Do(func() { <-release }) // it ignores the end of its context
		return nil
	})
	ev.await(t, 1, is[redeliver.HandlerStuck])
	close(release)
	ev.awaitEnds(t, ids...)
	with.mu.Lock()
	defer with.mu.Unlock()
	for id, beside := range with.beside {
		if len(beside) > 0 {
			t.Errorf("%s ran beside %v", id, beside)
		}
	}
}

// Only the suspect that was alone when the process died is charged. After too many crashes it is dead-lettered
// unchanged and without another attempt.
func TestASuspectThatCrashedTooOftenIsDeadLettered(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	ids := fillPartitions(t, addrs, 5, 0)
	commitAsDeadOwner(t, addrs, 0, "redeliver/1 by=dead state=careful end=5 base=0 suspects=0x1,1x2,2,3x2 alone=1")
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	with := newOverlapRecorder()
	route(t, c, "orders", func(msg *message.Message) error {
		with.begin(msg.UUID)
		defer with.end(msg.UUID)
		return nil
	})
	ev.awaitEnds(t, ids...)
	dead := all[redeliver.DeadLettered](ev)
	if len(dead) != 1 || dead[0].State.ID != "p0-1" || dead[0].State.Reason != redeliver.ReasonCrashed || dead[0].State.Attempts != 0 {
		t.Errorf("dead letters are %+v, want p0-1, crashed", dead)
	}
	if with.ran("p0-1") > 0 {
		t.Error("it ran once more")
	}
	if rec := read(t, addrs, "orders.billing.dlq", 1)[0]; string(rec.Key) != "p0-1" || string(rec.Value) != "p0-1" {
		t.Errorf("the dead letter is %s: %s", rec.Key, rec.Value)
	}
}

// A suspect that loses its session repeatedly has not killed its process.
func TestALostSessionChargesNoSuspect(t *testing.T) {
	t.Parallel()
	const losses = 3
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	fillPartitions(t, addrs, 1, 0)
	commitAsDeadOwner(t, addrs, 0, "redeliver/1 by=dead state=careful end=1 base=0 suspects=0")
	p := quick(1)
	p.MaxCrashes = 1
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: p, DrainTimeout: 100 * time.Millisecond})
	entered := make(chan struct{}, losses+1)
	with := newOverlapRecorder()
	route(t, c, "orders", func(msg *message.Message) error {
		with.begin(msg.UUID)
		defer with.end(msg.UUID)
		entered <- struct{}{}
		if with.ran("p0-0") <= losses {
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		return nil
	})
	for range losses {
		<-entered
		// Its commits are refused, too, so the last metadata says that it runs.
		refused := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownMemberID, Count: -1})
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.UnknownMemberID, Count: 1})
		if err := refused.Wait(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		refused.Remove()
	}
	ev.awaitEnds(t, "p0-0")
	if dead := all[redeliver.DeadLettered](ev); len(dead) > 0 {
		t.Errorf("dead letters: %+v", dead)
	}
}

func TestASuspectInterruptedByCloseIsNotCharged(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	fillPartitions(t, addrs, 10, 0)
	commitAsDeadOwner(t, addrs, 0, "redeliver/1 by=dead state=careful end=8 base=0 suspects=0x1,1")
	for range 3 {
		c, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), DrainTimeout: 50 * time.Millisecond})
		entered := make(chan struct{}, 1)
		route(t, c, "orders", func(msg *message.Message) error {
			entered <- struct{}{}
			<-msg.Context().Done()
			return msg.Context().Err()
		})
		<-entered
		if got := committedMeta(t, addrs, 0); !strings.HasSuffix(got, " state=careful end=8 base=0 suspects=0x1,1 alone=0") {
			t.Errorf("while it runs its partition has the metadata %q", got)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := committedMeta(t, addrs, 0); !strings.HasSuffix(got, " state=left end=8 base=0 suspects=0x1,1") {
			t.Errorf("its partition is left with the metadata %q", got)
		}
	}
}

// An orderly end leaves no suspects, and metadata of other programs is ignored.
func TestAnOrderlyEndIsNoCrash(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	commitAsDeadOwner(t, addrs, 0, "consumed by the batch job")
	for i := range 3 {
		c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
		route(t, c, "orders", func(*message.Message) error { return nil })
		ev.awaitEnds(t, fillPartitions(t, addrs, 20, 0)...)
		if i == 0 {
			eventually(t, "the handled messages are committed", func() bool { return unacked(t, addrs, "billing", "orders", 0) == 20 })
			if got := committedMeta(t, addrs, 0); !strings.HasSuffix(got, " state=run") {
				t.Errorf("while it works, its partition has the metadata %q", got)
			}
		}
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := committedMeta(t, addrs, 0); !strings.HasSuffix(got, " state=left") {
			t.Errorf("its partition is left with the metadata %q", got)
		}
		for _, ch := range all[redeliver.SubscriptionChanged](ev) {
			if ch.Change == redeliver.ChangeSuspectsRunAlone {
				t.Errorf("took the last owner for dead: %s", ch.Detail)
			}
		}
	}
}

// If the broker refuses metadata, crashes are not counted, which is reported once. Offsets are committed.
func TestRefusedCommitMetadataStopsNoMessage(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	refused := cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.OffsetMetadataTooLarge, Count: -1,
		When: func(req kmsg.Request) bool {
			commit, ok := req.(*kmsg.OffsetCommitRequest)
			return ok && slices.ContainsFunc(commit.Topics, func(t kmsg.OffsetCommitRequestTopic) bool {
				return slices.ContainsFunc(t.Partitions, func(p kmsg.OffsetCommitRequestTopicPartition) bool { return p.Metadata != nil && *p.Metadata != "" })
			})
		},
	})
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1)})
	route(t, c, "orders", func(*message.Message) error { return nil })
	ev.awaitEnds(t, fillPartitions(t, addrs, 50, 0, 1)...)
	for _, p := range []int32{0, 1} {
		eventually(t, "the handled messages are committed", func() bool { return unacked(t, addrs, "billing", "orders", p) == 50 })
	}
	if refused.Hits() == 0 {
		t.Error("nothing was refused; the test proves nothing")
	}
	reported := 0
	for _, ch := range all[redeliver.SubscriptionChanged](ev) {
		if ch.Change == redeliver.ChangeCrashesUncounted {
			reported++
		}
	}
	if reported != 1 {
		t.Errorf("reported %d times that crashes are not counted", reported)
	}
}

// With OrderBlocking, a failed suspect runs alone in each attempt, and holds up no other partition while it waits.
func TestABlockedSuspectHoldsUpNoOtherPartition(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	ids := fillPartitions(t, addrs, 3, 0)
	commitAsDeadOwner(t, addrs, 0, "redeliver/1 by=dead state=careful end=3 base=0 suspects=0")
	p := redeliver.Policy{MaxRetries: 500, Backoff: redeliver.Fixed(100 * time.Millisecond), Order: redeliver.OrderBlocking}
	c, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: p})
	with := newOverlapRecorder()
	failed, between := make(chan struct{}, 10), make(chan struct{})
	route(t, c, "orders", func(msg *message.Message) error {
		with.begin(msg.UUID)
		defer with.end(msg.UUID)
		if msg.UUID == "p1-0" { // while the suspect waits
			close(between)
		}
		if msg.UUID != "p0-0" {
			return nil
		}
		if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() < 3 {
			failed <- struct{}{}
			return errDeclined
		}
		select {
		case <-between:
			return nil
		default:
			return errDeclined // fail once more: no other message has run yet
		}
	})
	<-failed
	fillPartitions(t, addrs, 1, 1)
	ev.awaitEnds(t, append(ids, "p1-0")...)
	with.mu.Lock()
	defer with.mu.Unlock()
	if len(with.beside["p0-0"]) > 0 {
		t.Errorf("it ran at the same time as %v", with.beside["p0-0"])
	}
	if dead := all[redeliver.DeadLettered](ev); len(dead) > 0 {
		t.Errorf("dead letters: %+v", dead)
	}
}
