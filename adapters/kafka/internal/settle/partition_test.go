package settle

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// testPartition returns a partition that counts no crashes, and whose lane calls posted for each Post.
func testPartition(posted func()) *Partition {
	accept := func(_ sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
		return make([]error, len(all))
	}
	p := NewPartition(NewCommitter(CommitterConfig{Commit: accept}), Config{Crash: crash.Config{Sub: &engine.Subscription{}}})
	p.lane = countingLane(posted)
	return p
}

// addRecord adds the record with the next offset and returns its number.
func addRecord(t *testing.T, p *Partition) uint64 {
	t.Helper()
	m := &message{Record: &sarama.ConsumerMessage{Offset: int64(p.track.next)}}
	if err := p.Add(m); err != nil {
		t.Fatal(err)
	}
	return m.Seq
}

// However long one message takes, the settled records above it fit into a commit.
func TestNothingBeginsTooFarAboveTheLowestUnsettledRecord(t *testing.T) {
	t.Parallel()
	posted := 0
	p := testPartition(func() { posted++ })
	slow := addRecord(t, p)
	for range MaxSpan - 1 {
		n := addRecord(t, p)
		if p.IsTooFar(n) {
			t.Fatalf("record %d does not begin", n)
		}
		p.Settle(n)
	}
	far := addRecord(t, p)
	if !p.IsTooFar(far) {
		t.Error("a record that is too far ahead began")
	}
	if lowest := p.Settle(slow); lowest != far || p.IsTooFar(far) {
		t.Errorf("it does not begin when the lowest unsettled record is %d", lowest)
	}
}

// Offsets with large gaps need much room in a commit. A record begins only if the commit surely has room for it and for
// all others that run, whichever of them are settled first.
func TestNothingBeginsThatACommitCannotList(t *testing.T) {
	t.Parallel()
	posted := 0
	p := testPartition(func() { posted++ })
	add := func() *message {
		m := &message{Record: &sarama.ConsumerMessage{Offset: int64(p.track.next) << 20}}
		if err := p.Add(m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	slow := add()
	p.Begin(slow)
	var running []uint64
	next := add()
	for ; !p.IsTooFar(next.Seq); next = add() {
		p.Begin(next)
		if running = append(running, next.Seq); len(running) > commitmeta.MaxSureSpan {
			t.Fatal("the records that run are not bounded")
		}
		if len(running)%100 == 0 { // a commit counts the room again
			p.dirty = true
			p.takeSnapshot()
		}
	}
	if len(running) < 200 {
		t.Errorf("only %d run beside a slow one", len(running))
	}
	for _, odd := range []uint64{1, 0} { // every second record first, which makes the most runs
		for _, n := range running {
			if n%2 == odd {
				p.Settle(n)
			}
		}
		if snap := p.takeSnapshot(); snap.metadata.Unlisted >= 0 {
			t.Fatalf("%d records run, and a commit does not list those from offset %d on", len(running), snap.metadata.Unlisted)
		}
	}
	if posted == 0 || p.IsTooFar(next.Seq) {
		t.Errorf("all that ran are one run of offsets, and the next does not begin; the lane was asked to ask again %d times", posted)
	}
	if p.Settle(slow.Seq); p.track.mark != next.Record.Offset-1<<20+1 {
		t.Errorf("the mark is %d", p.track.mark)
	}
}

// A retry that kills its process is committed as a suspect before it begins. If that commit left out the origin, the
// next process would run the first attempt again, and it would write another retry that kills.
func TestACommitForOneMessageCommitsAllPartitions(t *testing.T) {
	t.Parallel()
	committed := make(map[string]int64)
	committer := NewCommitter(CommitterConfig{Commit: func(_ sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
		for _, c := range all {
			committed[c.Topic] = c.Offset
		}
		return make([]error, len(all))
	}})
	origin, level := testPartition(func() {}), testPartition(func() {})
	origin.cfg.Topic, level.cfg.Topic = "origin", "level"
	committer.partitions = map[*Partition]struct{}{origin: {}, level: {}}
	origin.Settle(addRecord(t, origin))
	level.committer = committer
	guarded{level}.Commit(true)
	committer.flush()
	if offset, has := committed["level"]; !has || offset != 0 || committed["origin"] != 1 {
		t.Errorf("committed %v", committed)
	}
}

// A broker refuses a request with too much metadata whole. The commit that a message waits for is in the last request.
func TestALargeCommitIsSplit(t *testing.T) {
	t.Parallel()
	var requests [][]cluster.OffsetCommit
	var refusal error
	committer := NewCommitter(CommitterConfig{Commit: func(_ sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
		requests = append(requests, all)
		return slices.Repeat([]error{refusal}, len(all))
	}})
	const partitions = 400
	full := testPartition(func() {}) // its settled records need a long text
	addRecord(t, full)               // is not settled
	random := rand.New(rand.NewPCG(1, 2))
	for range 12_000 {
		if number := addRecord(t, full); random.IntN(2) == 0 {
			full.Settle(number)
		}
	}
	for range partitions {
		p := testPartition(func() {})
		p.track, p.dirty = full.track, true
		committer.partitions[p] = struct{}{}
	}
	awaited := NewPartition(committer, Config{Topic: "awaited", Crash: crash.Config{Sub: &engine.Subscription{Turn: engine.NewTurn()}}})
	awaited.lane = countingLane(func() {})
	committer.partitions[awaited] = struct{}{}
	awaited.dirty = true
	refusal = sarama.ErrNotCoordinatorForConsumer
	if again := committer.flush(); !again || len(requests) != 1 {
		t.Fatalf("after a refusal %d requests were sent; try again: %v", len(requests), again)
	}
	requests, refusal = nil, nil
	if committer.flush() {
		t.Error("it wants to try again")
	}
	n := 0
	for i, request := range requests {
		size := 0
		for j, one := range request {
			n++
			size += len(one.Metadata)
			if last := i == len(requests)-1 && j == len(request)-1; last != (one.Topic == "awaited") {
				t.Errorf("%s is offset %d of request %d", one.Topic, j, i)
			}
		}
		if size > 1<<20 {
			t.Errorf("request %d has %d bytes of metadata", i, size)
		}
	}
	if len(requests) < 2 || n != partitions+1 {
		t.Errorf("%d offsets in %d requests", n, len(requests))
	}
}

// A commit in flight may lack what settled after its snapshot, so it is not the last one.
func TestTheLastCommitFollowsTheOneInFlight(t *testing.T) {
	t.Parallel()
	p := testPartition(func() {})
	p.Settle(addRecord(t, p))
	earlier := p.takeSnapshot()
	lastCommit := p.requestLastCommit()
	if lastCommit == nil {
		t.Fatal("nothing is left to commit")
	}
	earlier.apply(nil)
	last := p.takeSnapshot()
	if last == nil {
		t.Fatal("the previous commit was taken for the last one")
	}
	select {
	case <-lastCommit:
		t.Error("the partition did not wait for its last commit")
	default:
	}
	last.apply(nil)
	select {
	case <-lastCommit:
	default:
		t.Error("the partition still waits after its last commit")
	}
}

// A record that an earlier session settled is settled, and moves the mark.
func TestARecordOfAnEarlierSessionIsSettled(t *testing.T) {
	t.Parallel()
	p := NewPartition(NewCommitter(CommitterConfig{}), Config{Settled: commitmeta.Runs{{From: 1, To: 2}}, Crash: crash.Config{Sub: &engine.Subscription{}}})
	first := addRecord(t, p)
	if err := p.Add(&message{Record: &sarama.ConsumerMessage{Offset: 1}}); err == nil || p.dirty {
		t.Fatalf("error %v, dirty %v", err, p.dirty)
	}
	if p.Settle(first); p.track.mark != 2 || !p.dirty {
		t.Errorf("the mark is %d", p.track.mark)
	}
}

// countingLane is a lane that calls a function for each Post.
type countingLane func()

func (p countingLane) Post(func()) bool                                                { p(); return true }
func (p countingLane) Revise(func(*driver.Message[*sarama.ConsumerMessage]))           {}
func (p countingLane) Abandon(*driver.Message[*sarama.ConsumerMessage], error)         {}
func (p countingLane) ReturnUnrun(func(*driver.Message[*sarama.ConsumerMessage]) bool) {}
