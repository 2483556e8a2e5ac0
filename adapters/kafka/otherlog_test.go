package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/mq"
)

// Metadata that list offsets as settled or suspect are believed only for the log that they were written for. The log of
// these tests has lost its end, from offset 3 on, and may have other records there.
func TestRecordsOfAnotherLogRun(t *testing.T) {
	t.Parallel()
	const from, end = 2, 10
	written := time.UnixMilli(1_700_000_000_000)
	records := func(n int, at time.Time) (recs []*kgo.Record, ids []string) {
		recs, ids = orders("orders", n)
		for _, r := range recs {
			r.Timestamp = at
		}
		return recs, ids
	}
	recs, _ := records(end, written)
	last := commitmeta.Identify(end-1, written, recs[end-1].Key, len(recs[end-1].Value))
	lists := commitmeta.Meta{Owner: "dead", State: commitmeta.Left, Alone: -1, Last: last}
	settled, _ := lists.Text(from, commitmeta.Runs{{From: from + 1, To: end}})
	lists.Last = commitmeta.Record{}
	withoutLast, _ := lists.Text(from, commitmeta.Runs{{From: from + 1, To: end}})
	suspects := commitmeta.Meta{Owner: "dead", State: commitmeta.Careful, Alone: -1, Last: last, Suspects: map[int64]int{5: 3}}
	crashed, _ := suspects.Text(from, nil)
	perKey := perKeyPolicy(100 * time.Millisecond)
	for name, c := range map[string]struct {
		text     string
		before   int       // records that the log has when the next owner begins
		written  time.Time // when they were written
		policy   redeliver.Policy
		want     int // messages that run
		crashed  int // messages that go to the DLQ
		reported int
	}{
		"the log is as it was":                              {settled, end, written, quick(1), 1, 0, 0},
		"it is as it was, per key":                          {settled, end, written, perKey, 1, 0, 0},
		"it is shorter":                                     {settled, 3, written, quick(1), 8, 0, 1},
		"it has grown again":                                {settled, end, written.Add(time.Second), quick(1), 8, 0, 1},
		"it has grown again, per key":                       {settled, end, written.Add(time.Second), perKey, 8, 0, 2},
		"it has grown further":                              {settled, 20, written.Add(time.Second), quick(1), 18, 0, 1},
		"an earlier version wrote the list":                 {withoutLast, end, written, quick(1), 8, 0, 1},
		"a suspect of the same log":                         {crashed, end, written, quick(1), 7, 1, 0},
		"a suspect, and the log has grown again":            {crashed, end, written.Add(time.Second), quick(1), 8, 0, 0},
		"a suspect of an earlier version, shorter log":      {"redeliver/1 by=dead state=careful end=10 base=2 suspects=3x3", 3, written, quick(1), 8, 0, 0},
		"the list was copied from another offset by a tool": {strings.Replace(settled, "base=2", "base=1", 1), end, written, quick(1), 8, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
			n := max(end, c.before)
			recs, all := records(n, c.written)
			put(t, p.addrs, recs[:c.before]...)
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: "orders", At: from, LeaderEpoch: -1, Metadata: c.text})
			if err := kadm.NewClient(independent(t, p.addrs)).CommitAllOffsets(t.Context(), "billing", offsets); err != nil {
				t.Fatal(err)
			}
			cfg := slowConfig()
			cfg.Policy = c.policy
			ev, stop := consume(t, p, cfg, succeed)
			ev.awaitJoined(t, 1)
			if c.before < n { // the member has compared the list with the log before it runs a record
				eventually(t, "a record of the shorter log runs", func() bool { return len(ev.attempts()) > 0 })
			}
			for _, r := range recs[c.before:] {
				r.Timestamp = r.Timestamp.Add(time.Second) // others than those that were lost
			}
			put(t, p.addrs, recs[c.before:]...)
			eventually(t, "all are committed", func() bool { return unacked(t, p.addrs, "billing", "orders", 0) == int64(n) })
			stop()
			if ran := ev.attempts(); len(ran) != c.want {
				t.Errorf("%d of %d ran, want %d: %v", len(ran), len(all)-from, c.want, ran)
			}
			if dead := deadIDs(ev); len(dead) != c.crashed {
				t.Errorf("dead letters: %v, want %d", dead, c.crashed)
			}
			if n := suspicions(ev); n > 0 && strings.Contains(c.text, "state=left") {
				t.Errorf("the last owner has ended in order, and %d times it was reported as dead", n)
			}
			if reported := runAgain(ev); len(reported) != c.reported || c.reported > 0 && repeatsIn(t, reported[0]) != end-from-1 {
				t.Errorf("reported %+v, want the %d that run again", reported, end-from-1)
			}
		})
	}
}

// If retention deletes the record that the list is relative to, the list still applies.
func TestAListOutlivesTheRecordsBelowIt(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	ids := fillPartitions(t, p.addrs, 100, 0)
	ev, stop := consume(t, p, slowConfig(), hangOn(ids[2]))
	ev.awaitEnds(t, append(ids[:2:2], ids[3:]...)...)
	stop()
	var until kadm.Offsets
	until.Add(kadm.Offset{Topic: "orders", At: 10, LeaderEpoch: -1})
	if _, err := kadm.NewClient(independent(t, p.addrs)).DeleteRecords(t.Context(), until); err != nil {
		t.Fatal(err)
	}
	more := order("orders", "more")
	put(t, p.addrs, more)
	ev, stop = consume(t, p, slowConfig(), succeed)
	ev.awaitEnds(t, "more")
	eventually(t, "all are committed", func() bool { return unacked(t, p.addrs, "billing", "orders", 0) == 101 })
	stop()
	if ran := ev.attempts(); len(ran) != 1 {
		t.Errorf("%v ran, want only the last", ran)
	}
}

// suspicions returns how often a last owner was reported as dead.
func suspicions(ev *events) (n int) {
	for _, c := range all[redeliver.SubscriptionChanged](ev) {
		if c.Change == redeliver.ChangeSuspectsRunAlone {
			n++
		}
	}
	return n
}

func deadIDs(ev *events) (ids []string) {
	for _, d := range all[redeliver.DeadLettered](ev) {
		ids = append(ids, fmt.Sprintf("%s: %s", d.State.ID, d.State.Reason))
	}
	return ids
}

// The group of a service reads uncommitted records by default. The record that it has read last may be one of them.
func TestARecordOfAnOpenTransactionNamesTheLog(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	ids := fillPartitions(t, p.addrs, 20, 0)
	writer := independent(t, p.addrs, kgo.TransactionalID("writer"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := writer.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writer.EndTransaction(context.Background(), kgo.TryAbort); err != nil {
			t.Error(err)
		}
	})
	open := order(p.topic, "open")
	if err := writer.ProduceSync(t.Context(), open).FirstErr(); err != nil {
		t.Fatal(err)
	}
	t.Run("the first owner", func(t *testing.T) {
		ev, _ := wrap(t, p, slowConfig(), hangOn(ids[0]))
		ev.awaitEnds(t, append(ids[1:], "open")...)
	})
	ev, _ := wrap(t, p, slowConfig(), succeed)
	ev.awaitEnds(t, ids[0])
	eventually(t, "all are committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == open.Offset+1 })
	if ran := ev.attempts(); len(ran) != 1 || len(runAgain(ev)) > 0 {
		t.Errorf("ran %v, want only %s; reported %v", ran, ids[0], runAgain(ev))
	}
}

// shortened is an interceptor that changes the value, as one that decrypts it.
type shortened struct{}

func (shortened) OnConsume(rec *sarama.ConsumerMessage) { rec.Value = rec.Value[1:] }

// An owner sees records behind the interceptors of its client.
func TestAnInterceptedRecordNamesTheLog(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	ids := fillPartitions(t, p.addrs, 20, 0)
	begin := func(h message.NoPublishHandlerFunc) (*mq.Client, *events) {
		cfg := slowConfig()
		cfg.Brokers, cfg.Group, cfg.Sarama = p.addrs, p.group, sarama.NewConfig()
		cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
		cfg.Sarama.Consumer.Interceptors = []sarama.ConsumerInterceptor{shortened{}}
		c, ev := openClient(t, cfg)
		route(t, c, p.topic, h)
		return c, ev
	}
	first, ev := begin(func(msg *message.Message) error {
		if msg.UUID == ids[0] {
			<-msg.Context().Done()
			return msg.Context().Err()
		}
		return nil
	})
	ev.awaitEnds(t, ids[1:]...)
	if err := first.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	_, ev = begin(func(*message.Message) error { return nil })
	ev.awaitEnds(t, ids[0])
	eventually(t, "all are committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == int64(len(ids)) })
	if ran := ev.attempts(); len(ran) != 1 || len(runAgain(ev)) > 0 {
		t.Errorf("ran %v, want only %s; reported %v", ran, ids[0], runAgain(ev))
	}
}

// The offsets of an earlier topic are replaced at once, also on partitions without records.
func TestATopicThatWasCreatedAgainIsReportedOnce(t *testing.T) {
	t.Parallel()
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	earlier, _ := commitmeta.Ended("dead", "7Zl2hRiCRuqDSlzQ1RMKxw").Text(0, nil)
	var offsets kadm.Offsets
	for partition := range int32(4) {
		offsets.Add(kadm.Offset{Topic: p.topic, Partition: partition, At: 7, LeaderEpoch: -1, Metadata: earlier})
	}
	if err := kadm.NewClient(independent(t, p.addrs)).CommitAllOffsets(t.Context(), p.group, offsets); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		ev, stop := consume(t, p, slowConfig(), succeed)
		stop()
		if lost := all[redeliver.MessagesLost](ev); len(lost) != want {
			t.Errorf("reported %v, want %d", lost, want)
		}
		if n := unacked(t, p.addrs, p.group, p.topic, 0); n != 0 {
			t.Errorf("the group has committed %d, want 0", n)
		}
	}
}
