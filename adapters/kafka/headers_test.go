package kafka_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/mq"
)

// Numbers of headers that redeliver does not read, of a record of an origin and of one that redeliver wrote.
const (
	tooMany       = 10_001
	tooManyOfOurs = tooMany + 64
)

// withDust adds n empty headers before the headers of a record.
func withDust(rec *kgo.Record, n int) *kgo.Record {
	rec.Headers = append(make([]kgo.RecordHeader, n), rec.Headers...)
	return rec
}

// wantHeaderStub checks a record of the DLQ for a record with too many headers.
func wantHeaderStub(t *testing.T, rec *kgo.Record, body string) (ours map[string]string) {
	t.Helper()
	users, ours := splitBlock(rec.Headers)
	if len(rec.Value) != 0 || len(users) != 0 || ours[redeliver.HeaderTruncated] != fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256([]byte(body))) ||
		ours[redeliver.HeaderReason] != string(redeliver.ReasonUndecodable) || !strings.Contains(ours[redeliver.HeaderError], " headers, and a record with more than 10000 is not read") {
		t.Errorf("a value of %d bytes, %d headers of the user, and %v", len(rec.Value), len(users), ours)
	}
	return ours
}

// A record of a few kilobytes can have millions of headers, each of which once took 413 bytes in the process: for the
// handler's copy, the retry's and the DLQ's.
func TestARecordWithTooManyHeadersIsAStub(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1)})
	ran := make(chan string, 10)
	route(t, c, p.topic, func(msg *message.Message) error {
		ran <- msg.UUID
		return nil
	})
	ev.awaitJoined(t, 1)
	before, dust, behind, elsewhere := order(p.topic, "before"), withDust(order(p.topic, "dust"), tooMany-1), withDust(order(p.topic, "behind"), tooMany-2), order(p.topic, "elsewhere")
	elsewhere.Partition = 1
	put(t, p.addrs, before, dust, behind, elsewhere)
	d, _ := ev.await(t, 1, is[redeliver.DeadLettered])[0].(redeliver.DeadLettered)
	if d.State.Reason != redeliver.ReasonUndecodable || d.State.Attempts != 0 {
		t.Errorf("dead-lettered as %+v", d.State)
	}
	ours := wantHeaderStub(t, read(t, p.addrs, p.ours("dlq"), 1)[0], "dust")
	if ours[redeliver.HeaderOrigin] != p.topic || ours[redeliver.HeaderOriginPartition] != "0" || ours[redeliver.HeaderOriginOffset] != "1" {
		t.Errorf("the stub does not say where the original is: %v", ours)
	}
	all := []string{<-ran, <-ran, <-ran}
	slices.Sort(all)
	if !slices.Equal(all, []string{"before", "behind", "elsewhere"}) {
		t.Errorf("%q have run", all)
	}
}

// The headers of a waiting record end with redeliver's own, so its stub has the state.
func TestAWaitingRecordWithTooManyHeadersIsAStub(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := p.provision(t, quick(1))
	st := redeliver.State{
		ID: "dust", Group: p.group, Origin: p.topic, Attempts: 1, Due: time.Now().Add(time.Second), FirstFailed: time.Now(), LastFailed: time.Now(), Error: "x",
		Source: redeliver.Source{Known: true, Partition: 2, Offset: 77, Timestamp: time.Now()},
	}
	rec := &kgo.Record{Topic: p.ours("retry"), Value: []byte("dust")}
	for _, h := range driver.AppendStateHeaders(st, nil) {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	n := tooManyOfOurs - len(rec.Headers)
	put(t, p.addrs, withDust(rec, n))
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, func(*message.Message) error { return nil })
	ev.await(t, 1, is[redeliver.DeadLettered])
	ours := wantHeaderStub(t, read(t, p.addrs, p.ours("dlq"), 1)[0], "dust")
	if ours[redeliver.HeaderOriginPartition] != "2" || ours[redeliver.HeaderOriginOffset] != "77" || ours[redeliver.HeaderID] != "dust" || ours[redeliver.HeaderAttempt] != "1" {
		t.Errorf("the stub has another state: %v", ours)
	}
}

// Such a record in a DLQ is shown without its headers, and only a purge takes it.
func TestADeadLetterWithTooManyHeadersIsShownAndPurged(t *testing.T) {
	t.Parallel()
	m := newFailingGroup(t, onKafka(t))
	ids := m.deadLetter(t, 1)
	dlq := m.ours("dlq")
	dead := read(t, m.addrs, dlq, 1)[0]
	copied := &kgo.Record{Topic: dlq, Partition: dead.Partition, Key: dead.Key, Value: dead.Value, Headers: dead.Headers}
	put(t, m.addrs, withDust(copied, tooManyOfOurs-len(dead.Headers)))
	q := m.queue(t, mq.DeadLetterConfig{})
	var seen []deadletter.Message
	browse := func() {
		t.Helper()
		seen = nil
		for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, *m)
		}
	}
	browse()
	if len(seen) != 2 || seen[0].Mismatch != "" || len(seen[1].Headers) > 0 || !strings.Contains(seen[1].Mismatch, fmt.Sprint(tooManyOfOurs)+" headers, which are not read") ||
		seen[1].State.Reason != redeliver.ReasonExhausted && seen[1].State.Reason != seen[0].State.Reason {
		t.Fatalf("the DLQ has %+v", seen)
	}
	task, err := deadletter.Replay(t.Context(), q, ann)
	if err != nil || task.Counts.Replayed != 1 || task.Counts.Refused != 1 {
		t.Errorf("the replay says %+v: %v", task.Counts, err)
	}
	task, err = deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{Positions: []deadletter.Position{seen[1].Position}}})
	if err != nil || task.Counts.Purged != 1 {
		t.Errorf("the purge says %+v: %v", task.Counts, err)
	}
	if browse(); len(seen) > 0 {
		t.Errorf("%d are left of %v", len(seen), ids)
	}
}

// A purge by position reads no record of the DLQ, because one that is read is decoded first.
func TestAPurgeByPositionReadsNothing(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	m := newFailingGroup(t, fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing", cluster: cluster})
	m.deadLetter(t, 3)
	dlq := m.ours("dlq")
	q := m.queue(t, mq.DeadLetterConfig{})
	var at []deadletter.Position
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if at = append(at, m.Position); len(at) == 2 {
			break
		}
	}
	var read atomic.Bool
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			if topic.Topic == dlq {
				read.Store(true)
			}
		}
		return nil, nil, false
	})
	nowhere := []deadletter.Position{"0/77", "99/0", "x", at[0]}
	for _, want := range []int64{2, 0} {
		task, err := deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "test", Filter: deadletter.Filter{Positions: append(nowhere, at[1])}})
		if err != nil || task.Status != deadletter.StatusDone || task.Counts.Purged != want {
			t.Errorf("the purge says %+v, want %d: %v", task.Counts, want, err)
		}
	}
	options := deadletter.PurgeOptions{Filter: deadletter.Filter{Positions: at[:1]}}
	if f, err := deadletter.DryRunPurge(t.Context(), q, options); err != nil || f.Matched != 0 {
		t.Errorf("a second purge would remove %d: %v", f.Matched, err)
	}
	if read.Load() {
		t.Error("the DLQ was read")
	}
	if left := remainingIDs(t, q); len(left) != 1 {
		t.Errorf("%q are left", left)
	}
	if !read.Load() {
		t.Error("the test does not see that the DLQ is read")
	}
}

// A purge of everything reads nothing either. It removes what was in the DLQ when it was counted, not what arrives later, and
// deletes the records.
func TestAPurgeOfEverythingReadsNothing(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	m := newFailingGroup(t, fixture{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing", cluster: cluster})
	m.deadLetter(t, 5)
	dlq := m.ours("dlq")
	q := m.queue(t, mq.DeadLetterConfig{})
	var at []deadletter.Position
	for m, err := range deadletter.Browse(t.Context(), q, deadletter.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if at = append(at, m.Position); len(at) == 2 {
			break
		}
	}
	all := deadletter.PurgeOptions{Who: "ann", Why: "test", Everything: true}
	one := all
	one.Filter.Positions = at[1:] // so that there is a hole
	if task, err := deadletter.Purge(t.Context(), q, one); err != nil || task.Counts.Purged != 1 {
		t.Fatalf("the purge says %+v: %v", task, err)
	}
	var read atomic.Bool
	cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		for _, topic := range req.(*kmsg.FetchRequest).Topics {
			if topic.Topic == dlq {
				read.Store(true)
			}
		}
		return nil, nil, false
	})
	if f, err := deadletter.DryRunPurge(t.Context(), q, all); err != nil || f.Matched != 4 || f.Scanned != 4 || f.About {
		t.Errorf("the forecast is %+v: %v", f, err)
	}
	all.Expect = 3
	if task, err := deadletter.Purge(t.Context(), q, all); !errors.Is(err, deadletter.ErrTooMany) {
		t.Errorf("the purge of more than expected says %+v: %v", task, err)
	}
	all.Expect = 100
	var once sync.Once
	all.Report.Progress = func(deadletter.Task) {
		once.Do(func() { write(t, m.addrs, &kgo.Record{Topic: dlq, Value: []byte("late")}) }) // after the count
	}
	if task, err := deadletter.Purge(t.Context(), q, all); err != nil || task.Status != deadletter.StatusDone || task.Counts.Purged != 4 {
		t.Errorf("the purge says %+v: %v", task, err)
	}
	if read.Load() {
		t.Error("the DLQ was read")
	}
	if left := remainingIDs(t, q); len(left) != 1 {
		t.Errorf("%q are left", left)
	}
	if !read.Load() {
		t.Error("the test does not see that the DLQ is read")
	}
	starts, err := kadm.NewClient(independent(t, m.addrs)).ListStartOffsets(t.Context(), dlq)
	if err != nil {
		t.Fatal(err)
	}
	deleted := int64(0)
	starts.Each(func(o kadm.ListedOffset) { deleted += o.Offset })
	if deleted != 5 {
		t.Errorf("%d records are deleted, want 5", deleted)
	}
}
