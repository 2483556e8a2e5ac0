package kafka_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

// faulty is a place on a Kafka whose faults the test makes, with its topics.
func faulty(t *testing.T, cfg kafka.Config) (*kfake.Cluster, place, kafka.Config) {
	t.Helper()
	cluster := fake(t, "orders")
	p := place{addrs: cluster.ListenAddrs(), topic: "orders", group: "billing"}
	cfg.Brokers, cfg.Group = p.addrs, p.group
	provision, _ := open(t, cfg)
	if err := provision.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	return cluster, p, cfg
}

// waits puts n messages on each partition of the level of an hour, which failed a minute ago.
func (p place) waits(t *testing.T, n int) (ids []string) {
	t.Helper()
	var recs []*kgo.Record
	for i := range 4 * n {
		id := fmt.Sprintf("order-%04d", i)
		failed := time.Now().Add(-time.Minute).Add(time.Duration(i) * time.Millisecond).Truncate(time.Millisecond)
		rec := ours(kafka.DelayTopic(p.topic, p.group, time.Hour), id, redeliver.State{
			ID: id, Group: p.group, Origin: p.topic, Attempts: 1, Due: failed.Add(time.Hour), FirstFailed: failed, LastFailed: failed,
			Error: "card declined", Source: redeliver.Source{Known: true, Offset: int64(i), Timestamp: failed},
		})
		rec.Timestamp, rec.Partition = failed, int32(i%4)
		recs, ids = append(recs, rec), append(ids, id)
	}
	put(t, p.addrs, recs...)
	return ids
}

// settles notes that the first n records of each partition of that level were settled.
func (p place) settles(t *testing.T, n int, session string, first, last time.Time) {
	t.Helper()
	bits := make([]byte, 1024)
	for i := range n {
		bits[i/8] |= 1 << (i % 8)
	}
	value, err := json.Marshal(map[string]any{"bits": bits, "first": first.UnixMilli(), "last": last.UnixMilli()})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		put(t, p.addrs, &kgo.Record{Topic: p.ours("control"), Key: fmt.Appendf(nil, "settled/1h/%d/0%s", i, session), Value: value})
	}
}

func allOf() deadletter.Command {
	c := release(deadletter.Filter{})
	c.Everything = true
	return c
}

// A delay topic was deleted and made anew. One message that is released at an offset
// which was settled then must not take the others with it.
func TestWhatAnEarlierLifeSettledSwallowsNothing(t *testing.T) {
	t.Parallel()
	for name, session := range map[string]string{"of before there were sessions": "", "of another session": "/earlier"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, cfg := faulty(t, kafka.Config{Policy: waitsFor(time.Hour)})
			day := time.Now().Add(-24 * time.Hour)
			p.settles(t, 1000, session, day, day.Add(time.Hour))
			ids := p.waits(t, 10)
			w := p.waiting(t)
			one := give(t, w, release(deadletter.Filter{IDs: ids[len(ids)-1:]}))
			c, ev := open(t, cfg)
			route(t, c, p.topic, clerk)
			ev.awaitEnds(t, ids[len(ids)-1])
			eventually(t, "the command is done", func() bool { return progressOf(t, w, one.ID).Status(time.Now()) == "done" })
			give(t, w, allOf())
			ev.awaitEnds(t, ids...)
			for id, n := range ev.attempts() {
				if n != 1 {
					t.Errorf("%s ran %d times", id, n)
				}
			}
		})
	}
}

// The control topic cannot be read when the lanes begin: they go on without it, and
// learn later what was released before them. Nothing of that is released once more.
func TestWhatIsSettledIsLearnedWhenTheControlTopicIsBack(t *testing.T) {
	t.Parallel()
	const n = 10
	cluster, p, cfg := faulty(t, kafka.Config{Policy: waitsFor(time.Hour)})
	settled := p.waits(t, n)
	p.settles(t, n, "/earlier", time.Now().Add(-time.Hour), time.Now())
	var due []string // behind them, and the lane lets it go
	var recs []*kgo.Record
	for i := range 4 {
		id := fmt.Sprint("due-", i)
		rec := left(p, time.Hour, id, id, int64(1000+i), 1, 0, time.Now())
		rec.Partition = int32(i)
		due, recs = append(due, id), append(recs, rec)
	}
	put(t, p.addrs, recs...)
	give(t, p.waiting(t), allOf())
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: p.ours("control"), Err: kerr.UnknownServerError, Count: -1})
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.awaitEnds(t, due...) // all four go on, and know nothing
	ev.await(t, 1, notRead)
	fault.Remove()
	eventually(t, "the lanes have passed over all that was settled", func() bool { return lag(t, p) == 0 })
	runs := ev.attempts()
	for _, id := range settled {
		if runs[id] > 0 {
			t.Errorf("%s ran %d times although it was released before", id, runs[id])
		}
	}
}

// An answer that takes longer than SendTimeout is waited for: who does not would copy
// again what is only unanswered.
func TestWhatIsReleasedIsNotCopiedAgainWhileItsAnswerIsLate(t *testing.T) {
	t.Parallel()
	cluster, p, cfg := faulty(t, kafka.Config{Policy: waitsFor(time.Hour), SendTimeout: 200 * time.Millisecond})
	ids := p.waits(t, 3)
	answer, asked := make(chan struct{}), make(chan struct{}, 100)
	cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		if produce, ok := req.(*kmsg.ProduceRequest); ok && produce.Topics[0].Topic == p.ours("retry") {
			asked <- struct{}{}
			cluster.SleepControl(func() { <-answer })
		} else {
			cluster.KeepControl()
		}
		return nil, nil, false
	})
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.joined(t, 1)
	w := p.waiting(t)
	command := give(t, w, allOf())
	<-asked
	<-time.After(3 * time.Second) // what is wrong would show in that time; what is right does not depend on it
	close(answer)
	ev.awaitEnds(t, ids...)
	eventually(t, "the command is done", func() bool { return progressOf(t, w, command.ID).Status(time.Now()) == "done" })
	if got := count(t, p.addrs, p.ours("retry")); got != int64(len(ids)) {
		t.Errorf("%d copies of %d messages", got, len(ids))
	}
}

// One error that passes, at the start, and the member reads commands all the same.
func TestAPassingErrorAtTheStartIsTriedAgain(t *testing.T) {
	t.Parallel()
	cluster, p, cfg := faulty(t, kafka.Config{Policy: waitsFor(time.Hour)})
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.DescribeConfigs}, Resource: p.ours("control"), Err: kerr.UnknownServerError, Count: -1})
	ids := p.waits(t, 3)
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	ev.joined(t, 1)
	ev.await(t, 1, notRead)
	give(t, p.waiting(t), allOf())
	fault.Remove()
	ev.awaitEnds(t, ids...)
	for id, n := range ev.attempts() {
		if n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// A member that may not read a delay topic is in the group and does the rest: nothing
// else says that what is there waits for ever.
func TestAPartitionThatMayNotBeReadIsTold(t *testing.T) {
	t.Parallel()
	cluster, p, cfg := faulty(t, kafka.Config{Policy: waitsFor(time.Hour)})
	level := kafka.DelayTopic(p.topic, p.group, time.Hour)
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: level, Err: kerr.TopicAuthorizationFailed, Count: -1})
	c, ev := open(t, cfg)
	route(t, c, p.topic, clerk)
	told, ok := ev.await(t, 1, func(e redeliver.Event) bool {
		c, ok := e.(redeliver.SubscriptionChanged)
		return ok && c.Change == "a partition is not read"
	})[0].(redeliver.SubscriptionChanged)
	if !ok || told.Err == nil || !strings.Contains(told.Detail, level+"/") || !strings.Contains(told.Detail, "grant Read") {
		t.Errorf("%+v", told)
	}
}
