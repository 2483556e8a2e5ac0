package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// failingGroup is a group whose handler fails every message until it is fixed.
type failingGroup struct {
	fixture
	c     *mq.Client
	ev    *events
	fixed atomic.Bool
	mu    sync.Mutex
	seen  []*message.Message // by the fixed handler
}

func newFailingGroup(t *testing.T, p fixture) *failingGroup {
	t.Helper()
	m := &failingGroup{fixture: p}
	m.c, m.ev = openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}})
	route(t, m.c, p.topic, func(msg *message.Message) error {
		if !m.fixed.Load() {
			return errDeclined
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.seen = append(m.seen, msg)
		return nil
	})
	m.ev.awaitJoined(t, 1)
	return m
}

func (m *failingGroup) deadLetter(t *testing.T, n int) (ids []string) {
	t.Helper()
	recs, ids := orders(m.topic, n)
	write(t, m.addrs, recs...)
	m.ev.awaitEnds(t, ids...)
	m.fixed.Store(true)
	return ids
}

func (m *failingGroup) queue(t *testing.T, cfg mq.DeadLetterConfig) deadletter.Queue {
	t.Helper()
	cfg.Topic = m.topic
	q, err := m.c.Operations().DeadLetters(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = q.Close() }) // it may be closed already
	return q
}

func (m *failingGroup) handled() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.seen)
}

func remainingIDs(t *testing.T, q deadletter.Queue) (ids []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for m, err := range deadletter.Browse(ctx, q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.ID)
	}
	return ids
}

var ann = deadletter.ReplayOptions{Who: "ann", Why: "test", Window: 10}

func replayAll(t *testing.T, q deadletter.Queue, r deadletter.ReplayOptions) deadletter.Task {
	t.Helper()
	task, err := deadletter.Replay(t.Context(), q, r)
	if err != nil || task.Status != deadletter.StatusDone {
		t.Fatalf("%s: %s: %v", task.Status, task.Note, err)
	}
	return task
}

func TestOnKafkaTheSettledBeginningOfADLQIsDeleted(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.deadLetter(t, 60)
	q := m.queue(t, mq.DeadLetterConfig{})
	// The first message of each partition stays, so nothing may be deleted.
	kept := ann
	first := make(map[byte]bool)
	for msg, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if p := msg.Position[0]; first[p] {
			kept.Filter.IDs = append(kept.Filter.IDs, msg.ID)
		} else {
			first[p] = true
		}
	}
	replayAll(t, q, kept)
	adm := kadm.NewClient(independent(t, m.addrs))
	begin := func() (begin, end int64) {
		starts, err1 := adm.ListStartOffsets(t.Context(), m.ours("dlq"))
		ends, err2 := adm.ListEndOffsets(t.Context(), m.ours("dlq"))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		starts.Each(func(o kadm.ListedOffset) { begin += o.Offset })
		ends.Each(func(o kadm.ListedOffset) { end += o.Offset })
		return begin, end
	}
	if from, _ := begin(); from != 0 {
		t.Errorf("%d dead letters were deleted although one before each is not settled", from)
	}
	if got := remainingIDs(t, q); len(got) != len(first) {
		t.Errorf("%q are in the DLQ, want the first of %d partitions", got, len(first))
	}
	replayAll(t, q, ann)
	if from, end := begin(); from != 60 || end != 60 {
		t.Errorf("the DLQ begins at %d of %d after all is settled", from, end)
	}
	eventually(t, "all are handled", func() bool { return m.handled() == 60 })
	// Outcomes of deleted records are forgotten.
	latest := make(map[string][]byte)
	state := m.ours("dlq") + ".state"
	for _, r := range read(t, m.addrs, state, int(count(t, m.addrs, state))) {
		latest[string(r.Key)] = r.Value
	}
	for key, value := range latest {
		if key[0] >= '0' && key[0] <= '9' && value != nil {
			t.Errorf("%s still says %s", key, value)
		}
	}
	if tasks, err := deadletter.History(t.Context(), q); err != nil || len(tasks) != 2 {
		t.Errorf("the history has %d tasks, want 2: %v", len(tasks), err)
	}
}

// After a DLQ was deleted and created again, outcomes of the earlier one must settle and delete nothing.
func TestOutcomesOfADeletedDLQAreIgnored(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.deadLetter(t, 40)
	q := m.queue(t, mq.DeadLetterConfig{})
	c, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "t"}) // it creates the state topic
	if err = errors.Join(err, c.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour).UnixMilli()
	for p := range 4 {
		put(t, m.addrs, &kgo.Record{
			Topic: m.ours("dlq") + ".state", Key: fmt.Appendf(nil, "%d/0", p),
			Value: fmt.Appendf(nil, `{"through":5000,"first":%d,"last":%d,"outcome":"replayed"}`, old-1000, old),
		})
	}
	if got := remainingIDs(t, q); len(got) != 40 {
		t.Errorf("%d of 40 dead letters are seen", len(got))
	}
	none := ann
	none.Filter.IDs = []string{"no such id"}
	replayAll(t, m.queue(t, mq.DeadLetterConfig{}), none)
	if got := remainingIDs(t, m.queue(t, mq.DeadLetterConfig{})); len(got) != 40 {
		t.Errorf("%d of 40 dead letters are left", len(got))
	}
}

// A task deletes the records that it has settled at its end. If the DLQ was deleted and created again meanwhile, nobody
// has seen the records at these offsets.
func TestOnKafkaATaskDeletesNothingOfADLQThatWasCreatedAgain(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.deadLetter(t, 40)
	q := m.queue(t, mq.DeadLetterConfig{})
	c, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "t"})
	if err != nil {
		t.Fatal(err)
	}
	scan, err := c.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	var purged []deadletter.Settlement
	for len(purged) < 40 {
		msg, err := scan.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		purged = append(purged, deadletter.Settlement{Message: msg, Outcome: deadletter.OutcomePurged})
	}
	if err := c.Settle(t.Context(), deadletter.Task{ID: "t"}, purged); err != nil {
		t.Fatal(err)
	}
	dlq := m.ours("dlq")
	recreate(t, m.fixture, dlq)
	for i := range 20 {
		putOnPartitions(t, fixture{addrs: m.addrs, topic: dlq}, fmt.Sprint(i, "-"), 4)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := remainingIDs(t, m.queue(t, mq.DeadLetterConfig{})); len(got) != 80 {
		t.Errorf("%d of 80 dead letters are left", len(got))
	}
}

// Spring Kafka fills a DLQ in transactions, one of which is aborted. Markers of transactions are no messages, and the
// log ends with one.
func TestOnKafkaASpringDLQIsReplayed(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.fixed.Store(true)
	dlt := m.topic + "-dlt"
	kafkatest.MakeTopic(t, kadm.NewClient(independent(t, m.addrs)), 1, nil, dlt)
	spring := func(id string) *kgo.Record {
		rec := order(dlt, id)
		rec.Headers = append(rec.Headers, []kgo.RecordHeader{
			{Key: "tenant", Value: []byte("acme")},
			{Key: "kafka_dlt-original-topic", Value: []byte(m.topic)},
			{Key: "kafka_dlt-original-partition", Value: binary.BigEndian.AppendUint32(nil, 2)},
			{Key: "kafka_dlt-original-offset", Value: binary.BigEndian.AppendUint64(nil, 77)},
			{Key: "kafka_dlt-original-timestamp", Value: binary.BigEndian.AppendUint64(nil, 1_700_000_000_000)},
			{Key: "kafka_dlt-original-consumer-group", Value: []byte(m.group)},
			{Key: "kafka_dlt-exception-fqcn", Value: []byte("org.springframework.kafka.listener.ListenerExecutionFailedException")},
			{Key: "kafka_dlt-exception-cause-fqcn", Value: []byte("java.net.SocketTimeoutException")},
			{Key: "kafka_dlt-exception-message", Value: []byte("Read timed out")},
		}...)
		return rec
	}
	cl := independent(t, m.addrs, kgo.TransactionalID(dlt))
	transact := func(end kgo.TransactionEndTry, ids ...string) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if err := cl.ProduceSync(t.Context(), spring(id)).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	transact(kgo.TryCommit, "a", "b")
	transact(kgo.TryAbort, "never")
	transact(kgo.TryCommit, "c")
	transact(kgo.TryAbort, "never either")
	if err := cl.BeginTransaction(); err != nil { // one is still open: readers stop before it
		t.Fatal(err)
	}
	if err := cl.ProduceSync(t.Context(), spring("undecided")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	q := m.queue(t, mq.DeadLetterConfig{DLQ: dlt})
	if got := fmt.Sprint(remainingIDs(t, q)); got != "[a b c]" {
		t.Fatalf("the DLQ has %s, want a, b and c", got)
	}
	if err := cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	one, err := deadletter.Find(t.Context(), q, "0/0")
	if err != nil {
		t.Fatal(err)
	}
	if st := one.State; one.Writer != deadletter.WriterSpring || st.Error != "Read timed out" || st.ErrorType != "java.net.SocketTimeoutException" ||
		!st.Source.Known || st.Source.Partition != 2 || st.Source.Offset != 77 || st.Source.Timestamp.Unix() != 1_700_000_000 || one.Mismatch != "" || len(one.Foreign) != 8 {
		t.Errorf("a dead letter of Spring's has %+v, %q, %d foreign headers", st, one.Mismatch, len(one.Foreign))
	}
	replayAll(t, q, ann)
	eventually(t, "all are handled", func() bool { return m.handled() == 3 })
	msg := m.seen[0]
	if fmt.Sprint(msg.Metadata) != "map[tenant:acme]" {
		t.Errorf("the handler got the headers %v, want only the user's", msg.Metadata)
	}
	if got := remainingIDs(t, q); len(got) > 0 {
		t.Errorf("%q are still in the DLQ", got)
	}
	if n, _, err := q.Count(t.Context()); n != 0 || err != nil {
		t.Errorf("with nothing but markers and aborted records the DLQ counts %d: %v", n, err)
	}
	if n := count(t, m.addrs, dlt); n == 0 || len(read(t, m.addrs, dlt, 3)) < 3 {
		t.Error("records of a foreign DLQ were deleted")
	}
}

// A purge that reads nothing leaves the records of an open transaction. Its count includes the markers.
func TestOnKafkaAPurgeOfEverythingLeavesOpenTransactions(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	dlt := m.topic + "-dlt"
	kafkatest.MakeTopic(t, kadm.NewClient(independent(t, m.addrs)), 1, nil, dlt)
	cl := independent(t, m.addrs, kgo.TransactionalID(dlt))
	begin := func(id string) {
		t.Helper()
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(t.Context(), order(dlt, id)).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		if err := cl.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	begin("a")
	commit()
	begin("undecided")
	q := m.queue(t, mq.DeadLetterConfig{DLQ: dlt})
	options := deadletter.PurgeOptions{Who: "ann", Why: "a test", Everything: true}
	if f, err := deadletter.DryRunPurge(t.Context(), q, options); err != nil || f.Matched != 2 || !f.About {
		t.Errorf("the forecast is %+v, want about 2, one of which is a marker: %v", f, err)
	}
	if task, err := deadletter.Purge(t.Context(), q, options); err != nil || task.Status != deadletter.StatusDone {
		t.Fatalf("the purge says %+v: %v", task, err)
	}
	commit()
	eventually(t, "the message is left whose transaction was open", func() bool { return fmt.Sprint(remainingIDs(t, q)) == "[undecided]" })
}

// If a DLQ was created again, a purge of everything does not believe the old outcomes, which are of other records.
func TestAPurgeOfEverythingIsNotMisledByAnEarlierDLQ(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	m := newFailingGroup(t, fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing", cluster: cluster})
	dlq := m.ours("dlq")
	cl := independent(t, m.addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	put := func(at time.Time) {
		t.Helper()
		for key := range 3 {
			rec := &kgo.Record{Topic: dlq, Key: []byte(strconv.Itoa(key)), Timestamp: at}
			if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	purge := func(f deadletter.Filter, want int64) {
		t.Helper()
		q := m.queue(t, mq.DeadLetterConfig{})
		task, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "a test", Filter: f, Everything: true})
		if err != nil || task.Counts.Purged != want {
			t.Errorf("the purge says %+v, want %d: %v", task, want, err)
		}
	}
	put(time.Now().Add(-time.Hour))
	purge(deadletter.Filter{Key: []byte("1")}, 1)
	adm := kadm.NewClient(cl)
	if _, err := adm.DeleteTopic(t.Context(), dlq); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.CreateTopic(t.Context(), 4, 1, nil, dlq); err != nil {
		t.Fatal(err)
	}
	cl = independent(t, m.addrs, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	put(time.Now())
	purge(deadletter.Filter{}, 3)
	if left := remainingIDs(t, m.queue(t, mq.DeadLetterConfig{})); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestOnKafkaOneOfManyConcurrentClaimsWins(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	m.deadLetter(t, 1)
	const n = 8
	opened := kafkatest.DeadLetters(m.addrs, time.Minute)
	var winners atomic.Int32
	var all sync.WaitGroup
	begin := make(chan struct{})
	m.queue(t, mq.DeadLetterConfig{})
	for i := range n {
		q, _ := opened(t, m.topic, m.group)
		all.Go(func() {
			<-begin
			_, err := q.Claim(t.Context(), deadletter.Holder{Who: fmt.Sprint("runner ", i), Task: "t"})
			switch {
			case err == nil:
				winners.Add(1)
			case !errors.Is(err, deadletter.ErrHeld):
				t.Error(err)
			}
		})
		t.Cleanup(func() { _ = q.Close() }) // the claim expires
	}
	close(begin)
	all.Wait()
	if winners.Load() != 1 {
		t.Errorf("%d of %d have the claim, want one", winners.Load(), n)
	}
}

// A runner that was stopped for longer than its lease loses the DLQ to another one, and can never write again.
func TestOnKafkaARunnerWithoutItsLeaseCannotWrite(t *testing.T) {
	t.Parallel() // it waits until the lease is renewed
	m := newFailingGroup(t, onKafka(t))
	m.deadLetter(t, 2)
	q := m.queue(t, mq.DeadLetterConfig{Lease: lease})
	c, err := q.Claim(t.Context(), deadletter.Holder{Who: "ann", Task: "t"})
	if err != nil {
		t.Fatal(err)
	}
	scan, err := c.Scan(t.Context(), deadletter.FromStart)
	if err != nil {
		t.Fatal(err)
	}
	one, err := scan.Next(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	put(t, m.addrs, &kgo.Record{
		Topic: m.ours("dlq") + ".state", Key: []byte("lock/claim"),
		Value: fmt.Appendf(nil, `{"epoch":99,"token":"another","who":"ben","task":"u","until":%q}`, time.Now().Add(time.Minute).UTC().Format(time.RFC3339Nano)),
	})
	eventually(t, "the first runner knows that it has lost the DLQ", func() bool {
		err = c.Save(t.Context(), deadletter.Task{ID: "t"})
		return errors.Is(err, deadletter.ErrClaimLost)
	})
	if !strings.Contains(err.Error(), "ben") {
		t.Errorf("its error does not name the new owner: %v", err)
	}
	if errs := c.Send(t.Context(), []*deadletter.Message{one}); !errors.Is(errs[0], deadletter.ErrClaimLost) {
		t.Errorf("it sends: %v", errs[0])
	}
	if err := c.Settle(t.Context(), deadletter.Task{ID: "t"}, []deadletter.Settlement{{Message: one, Outcome: deadletter.OutcomePurged}}); !errors.Is(err, deadletter.ErrClaimLost) {
		t.Errorf("it settles: %v", err)
	}
	if err := c.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if h, ok, err := q.Holder(t.Context()); err != nil || !ok || h.Who != "ben" {
		t.Errorf("the DLQ is held by %+v, %v: %v", h, ok, err)
	}
	if got := remainingIDs(t, q); len(got) != 2 {
		t.Errorf("%q are in the DLQ, want both", got)
	}
}

// A caller whose context ends does not wait for another one, which waits for a broker that cannot read the state.
func TestACallOnADLQEndsWithItsContextWhileAnotherReadsTheState(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	m := newFailingGroup(t, fixture{topic: "orders", group: "billing", cluster: cluster, addrs: cluster.ListenAddrs()})
	ids := m.deadLetter(t, 2)
	q := m.queue(t, mq.DeadLetterConfig{})
	if _, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "a test", Filter: deadletter.Filter{IDs: ids[:1]}}); err != nil {
		t.Fatal(err)
	}
	testEndsWhileAnotherReads(t, cluster, m.ours("dlq.state"), func(ctx context.Context) error {
		_, _, err := q.Count(ctx)
		return err
	})
}

// testEndsWhileAnotherReads tests that a call ends with its context while another such call waits for a topic that cannot be read.
func testEndsWhileAnotherReads(t *testing.T, cluster *kfake.Cluster, topic string, call func(context.Context) error) {
	t.Helper()
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Err: kerr.UnknownServerError, Count: -1})
	first := make(chan error, 1)
	go func() { first <- call(t.Context()) }()
	eventually(t, "the first call reads", func() bool { return fault.Hits() > 0 })
	second := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		second <- call(ctx)
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the second call: %v", err)
		}
	case err := <-first:
		t.Fatalf("the second call waited for the first, which returned %v", err)
	}
	fault.Remove()
	t.Logf("the first call: %v", <-first) // it may have given up
}
