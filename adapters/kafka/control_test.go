package kafka_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
)

// release makes a command by ann that releases levels, or all levels without names.
func release(levels ...string) deadletter.Command {
	return deadletter.Command{Kind: deadletter.CommandRelease, Who: "ann", Why: "test", Filter: deadletter.WaitingFilter{Levels: levels}, Everything: len(levels) == 0}
}

// cancel makes a command by ann that cancels the matching messages.
func cancel(f deadletter.Filter) deadletter.Command {
	return deadletter.Command{Kind: deadletter.CommandCancel, Who: "ann", Why: "test", Filter: deadletter.WaitingFilter{Filter: f}, Everything: f.All()}
}

// waiting opens the waiting messages with its own client.
func (p fixture) waiting(t *testing.T) mq.Waiting {
	t.Helper()
	c, _ := openClient(t, kafka.Config{Brokers: p.addrs, Group: "ann's"})
	w, err := c.Operations().Waiting(t.Context(), mq.WaitingConfig{Topic: p.topic, Group: p.group})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// provision creates the topics of a subscription without starting a member.
func (p fixture) provision(t *testing.T, policy redeliver.Policy) kafka.Config {
	t.Helper()
	cfg := kafka.Config{Brokers: p.addrs, Group: p.group, Policy: policy}
	c, _ := openClient(t, cfg)
	if err := c.Subscriber().SubscribeInitialize(p.topic); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func sendCommand(t *testing.T, w mq.Waiting, c deadletter.Command) deadletter.Command {
	t.Helper()
	given, err := w.SendCommand(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return given
}

// writeControl writes a record to the control topic that is not a command of ours.
func (p fixture) writeControl(t *testing.T, key string, value any) {
	t.Helper()
	p.writeControlAt(t, time.Now(), key, value)
}

// writeControlAt is writeControl at a time. The in-process Kafka does not support LogAppendTime, so there the record
// has the right time already.
func (p fixture) writeControlAt(t *testing.T, at time.Time, key string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("REDELIVER_TEST_KAFKA") == "" {
		at = time.Now()
	}
	compact, byBroker := "compact", "LogAppendTime"
	kafkatest.MakeTopic(t, kadm.NewClient(independent(t, p.addrs)), 1, map[string]*string{"cleanup.policy": &compact, "message.timestamp.type": &byBroker}, p.ours("control"))
	put(t, p.addrs, &kgo.Record{Topic: p.ours("control"), Key: []byte(key), Value: text, Timestamp: at})
}

// waitingCount returns the number of messages that wait on all levels.
func waitingCount(t *testing.T, w mq.Waiting) (n int64) {
	t.Helper()
	levels, err := w.Levels(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range levels {
		n += l.Depth
	}
	return n
}

// retryAfter returns a policy whose first retry comes after d.
func retryAfter(d time.Duration) redeliver.Policy {
	return redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(d), Levels: []time.Duration{d}}
}

// failOnce fails every message once. The number at the end of its id chooses one of two causes.
func failOnce(msg *message.Message) error {
	if st, _ := redeliver.FromContext(msg.Context()); st.Attempts > 0 {
		return nil
	}
	if strings.ContainsAny(msg.UUID[len(msg.UUID)-1:], "02468") {
		return fmt.Errorf("card %s declined", msg.UUID[len(msg.UUID)-4:])
	}
	return fmt.Errorf("no route to bank %s", msg.UUID[len(msg.UUID)-4:])
}

func (e *events) count(what func(redeliver.Event) bool) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, ev := range e.list {
		if what(ev) {
			n++
		}
	}
	return n
}

// cause returns the fingerprint of waiting messages whose ids end in an odd digit.
func cause(t *testing.T, w mq.Waiting) string {
	t.Helper()
	for m, err := range w.Browse(t.Context(), deadletter.WaitingFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !strings.ContainsAny(m.ID[len(m.ID)-1:], "02468") {
			return deadletter.Fingerprint(m.Message)
		}
	}
	t.Fatal("no message with an odd id waits")
	return ""
}

// A thousand messages wait for an hour, with two causes. One cause is cancelled, then everything is released. The
// consumer is killed three times meanwhile. All messages of the cancelled cause end in the DLQ without another attempt,
// and all others run.
func TestOnKafkaCommandsReleaseAndCancelWaitingMessages(t *testing.T) {
	t.Parallel()
	const n, kills = 1000, 3
	seed := rand.Uint64()
	t.Logf("report: seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	p := onKafka(t)
	ev := newEvents() // of all consumers
	live := func() (kill func()) {
		sc, kill := kafkatest.KillableConfig(t, p.addrs, p.group)
		own := newEvents()
		c, _ := openClient(t, kafka.Config{
			Brokers: p.addrs, Group: p.group, Policy: retryAfter(time.Hour), Sarama: sc, Sink: observe.Sinks(ev, own),
			DrainTimeout: time.Second, SendTimeout: 2 * time.Second, MaxInFlight: 20, MaxRetriesInFlight: 5,
		})
		route(t, c, p.topic, func(msg *message.Message) error {
			if st, _ := redeliver.FromContext(msg.Context()); st.Attempts > 0 {
				<-time.After(10 * time.Millisecond) // of work
			}
			return failOnce(msg)
		})
		own.awaitJoined(t, 1)
		return kill
	}
	kill := live()
	recs, ids := orders(p.topic, n)
	write(t, p.addrs, recs...)
	ev.await(t, n, is[redeliver.RetryScheduled])
	w := p.waiting(t)
	eventually(t, "all wait", func() bool { return waitingCount(t, w) == n })
	// Before the commit, a kill would make them fail again after the release.
	eventually(t, "the origin is committed", func() bool {
		var done int64
		for partition := range int32(4) {
			done += unacked(t, p.addrs, p.group, p.topic, partition)
		}
		return done == n
	})
	canceled := sendCommand(t, w, cancel(deadletter.Filter{Fingerprints: []string{cause(t, w)}}))
	sendCommand(t, w, release()) // on a slow machine some wait on the retry topic
	for i := range kills {
		// First some of both causes, then at any moment.
		ev.await(t, 40*(i+1)+random.IntN(60), is[redeliver.Committed])
		ev.await(t, 40*(i+1)+random.IntN(60), is[redeliver.DeadLettered])
		<-time.After(time.Duration(random.IntN(100)) * time.Millisecond)
		kill()
		kill = live()
	}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		levels, err := w.Levels(context.WithoutCancel(t.Context()))
		t.Logf("%d are committed, %d dead; levels %+v, %v", len(all[redeliver.Committed](ev)), len(all[redeliver.DeadLettered](ev)), levels, err)
		for _, e := range ev.last(60) {
			t.Logf("%T %+v", e, e)
		}
	})
	eventually(t, "nothing waits", func() bool { return waitingCount(t, w) == 0 })
	ran, dead := make(map[string]int), make(map[string]int)
	for _, e := range all[redeliver.Committed](ev) {
		ran[e.State.ID]++
	}
	for _, r := range read(t, p.addrs, p.ours("dlq"), int(count(t, p.addrs, p.ours("dlq")))) { // as an independent client sees them
		_, ours := splitBlock(r.Headers)
		dead[ours[redeliver.HeaderID]]++
		if ours[redeliver.HeaderReason] != string(redeliver.ReasonInvalidated) || ours[redeliver.HeaderAttempt] != "1" || !strings.Contains(ours[redeliver.HeaderError], canceled.ID) {
			t.Errorf("%s is in the DLQ with %v", ours[redeliver.HeaderID], ours)
		}
	}
	twice := 0
	for i, id := range ids {
		if i%2 == 0 && (ran[id] == 0 || dead[id] > 0) || i%2 == 1 && (ran[id] > 0 || dead[id] == 0) {
			t.Errorf("%s ran %d times and is in the DLQ %d times", id, ran[id], dead[id])
		}
		twice += ran[id] + dead[id] - 1
	}
	t.Logf("report: %d kills, %d duplicates", kills, twice)
}

// A release also takes messages that no lane holds yet, and messages that would hop. Messages on other levels keep
// their due times.
func TestOnKafkaAReleaseTakesWholeLevels(t *testing.T) {
	t.Parallel()
	const n = 6000
	p := onKafka(t)
	policy := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(10 * time.Minute), Levels: []time.Duration{10 * time.Minute, time.Hour}}
	cfg := p.provision(t, policy)
	now := time.Now()
	recs := make([]*kgo.Record, 0, n+1)
	ids := make([]string, 0, n)
	for i := range n {
		id := fmt.Sprintf("order-%04d", i)
		wait := time.Hour
		if i%2 == 0 {
			wait += 30 * time.Minute // it would hop to the level of ten minutes
		}
		recs, ids = append(recs, leftOnLevel(p, time.Hour, id, id, int64(i), 1, wait, now)), append(ids, id)
	}
	recs = append(recs, leftOnLevel(p, 10*time.Minute, "other", "other", n, 1, 10*time.Minute, now))
	put(t, p.addrs, recs...)
	w := p.waiting(t)
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, failOnce)
	ev.awaitJoined(t, 1)
	if _, err := w.SendCommand(t.Context(), release("7m")); err == nil || !strings.Contains(err.Error(), "10m, 1h") {
		t.Errorf("a level that does not exist: %v", err)
	}
	sendCommand(t, w, release("1h"))
	ev.awaitEnds(t, ids...)
	eventually(t, "one message waits", func() bool { return waitingCount(t, w) == 1 })
	for id, times := range ev.attempts() {
		if times != 1 || id == "other" {
			t.Errorf("%s ran %d times", id, times)
		}
	}
	if hops := ev.count(is[redeliver.Hopped]); hops > 0 {
		t.Errorf("%d messages hopped", hops)
	}
	operations := c.Operations()
	if n, err := operations.Release(t.Context(), mq.ReleaseConfig{Topic: p.topic, Levels: []time.Duration{7 * time.Minute}}); n != 0 || err == nil || !strings.Contains(err.Error(), "10m, 1h") {
		t.Errorf("released %d of a level that does not exist: %v", n, err)
	}
	if n, err := operations.Release(t.Context(), mq.ReleaseConfig{Topic: p.topic, Reason: "the bank is open"}); n != 1 || err != nil {
		t.Errorf("released %d, want 1: %v", n, err)
	}
	ev.awaitEnds(t, "other")
	all, err := w.Commands(t.Context())
	if err != nil || len(all) != 2 || all[1].Why != "the bank is open" || all[1].Who == "" {
		t.Errorf("the commands are %+v, %v", all, err)
	}
}

// A release counts by the broker's clock. If the sender's clock is ten minutes ahead, it does not release later
// failures, even for a member that restarts.
func TestOnKafkaAReleaseFromAFastClockReleasesNoLaterFailures(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	policy := retryAfter(time.Hour)
	policy.MaxRetries = 3
	cfg := p.provision(t, policy)
	handler := func(msg *message.Message) error {
		if strings.HasPrefix(msg.UUID, "due") {
			return nil
		}
		return errDeclined
	}
	// In each partition a message behind all waiting ones is due. When it has run, the lanes have read the others.
	readAll := func(c *mq.Client, ev *events, round int) {
		t.Helper()
		var recs []*kgo.Record
		var ids []string
		for i := range 4 {
			id := fmt.Sprintf("due-%d-%d", round, i)
			rec := leftOnLevel(p, time.Hour, id, id, int64(1000+i), 1, 0, time.Now())
			rec.Partition = int32(i)
			recs, ids = append(recs, rec), append(ids, id)
		}
		put(t, p.addrs, recs...)
		ev.awaitEnds(t, ids...)
		if err := c.Close(t.Context()); err != nil { // and handlers have returned
			t.Fatal(err)
		}
	}
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, handler)
	ev.awaitJoined(t, 1)
	recs, ids := orders(p.topic, 8)
	write(t, p.addrs, recs...)
	ev.await(t, len(ids), is[redeliver.RetryScheduled])
	w := p.waiting(t)
	eventually(t, "all wait", func() bool { return waitingCount(t, w) == int64(len(ids)) })
	ahead := release()
	ahead.ID, ahead.Created, ahead.Expires = "ahead", time.Now().Add(10*time.Minute), time.Now().Add(24*time.Hour)
	p.writeControlAt(t, ahead.Created, "command/ahead", ahead)
	ev.await(t, 2*len(ids), is[redeliver.RetryScheduled]) // all were released, and failed again
	write(t, p.addrs, order(p.topic, "late"))
	ev.await(t, 2*len(ids)+1, is[redeliver.RetryScheduled])
	readAll(c, ev, 1)
	again, ev2 := openClient(t, cfg)
	route(t, again, p.topic, handler)
	readAll(again, ev2, 2)
	runs := ev.attempts()
	for id, n := range ev2.attempts() {
		runs[id] += n
	}
	for id, n := range runs {
		want := 2
		if id == "late" {
			want = 1
		}
		if n != want && !strings.HasPrefix(id, "due") { // they are above waiting ones, so they run again
			t.Errorf("%s ran %d times, want %d", id, n, want)
		}
	}
}

// A program that may write to the control topic cannot make messages vanish. Records that claim to settle others have
// no effect.
func TestOnKafkaAForgedControlRecordSettlesNothing(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := p.provision(t, retryAfter(2*time.Second))
	bits := make([]byte, 1024)
	for i := range bits {
		bits[i] = 0xff
	}
	for i := range 4 {
		for _, session := range []string{"", "/anybody"} {
			p.writeControl(t, fmt.Sprintf("settled/2s/%d/0%s", i, session), map[string]any{"bits": bits, "first": 0, "last": int64(1) << 62})
			p.writeControl(t, fmt.Sprintf("settled/retry/%d/0%s", i, session), map[string]any{"bits": bits, "first": 0, "last": int64(1) << 62})
		}
	}
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, failOnce)
	recs, ids := orders(p.topic, 40)
	write(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	for id, n := range ev.attempts() {
		if n != 2 {
			t.Errorf("%s ran %d times, want 2", id, n)
		}
	}
}

// The command is older than the consumer. Messages that fail after the command do run.
func TestACancelledMessageDoesNotRunWhenItIsDue(t *testing.T) {
	t.Parallel()
	const n, wait = 40, 2 * time.Second
	p := onKafka(t)
	cfg := p.provision(t, retryAfter(wait))
	var recs []*kgo.Record
	var ids []string
	for i := range n {
		id := fmt.Sprintf("order-%04d", i)
		rec := leftOnLevel(p, wait, id, id, int64(i), 1, wait, time.Now())
		rec.Partition = int32(i % 4)
		recs, ids = append(recs, rec), append(ids, id)
	}
	put(t, p.addrs, recs...)
	w := p.waiting(t)
	sendCommand(t, w, cancel(deadletter.Filter{}))
	c, ev := openClient(t, cfg)
	route(t, c, p.topic, failOnce)
	write(t, p.addrs, order(p.topic, "later-0000"))
	ev.awaitEnds(t, append(ids, "later-0000")...)
	if dead := all[redeliver.DeadLettered](ev); len(dead) != n {
		t.Errorf("%d of %d are dead", len(dead), n)
	}
	for _, d := range all[redeliver.DeadLettered](ev) {
		if d.State.Reason != redeliver.ReasonInvalidated || d.State.Attempts != 1 {
			t.Errorf("%s is dead for %s after %d attempts", d.State.ID, d.State.Reason, d.State.Attempts)
		}
	}
	if runs := ev.attempts(); len(runs) != 1 || runs["later-0000"] != 2 {
		t.Errorf("%v have run", runs)
	}
}

func TestAnExpiredCancelHasNoEffect(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	c, ev := openClient(t, p.provision(t, retryAfter(time.Hour)))
	route(t, c, p.topic, failOnce)
	ev.awaitJoined(t, 1)
	recs, ids := orders(p.topic, 20)
	write(t, p.addrs, recs...)
	ev.await(t, len(ids), is[redeliver.RetryScheduled])
	w := p.waiting(t)
	sendCommand(t, w, cancel(deadletter.Filter{IDs: []string{"nobody"}})) // creates the control topic
	expired := cancel(deadletter.Filter{})
	expired.ID, expired.Created, expired.Expires = "expired", time.Now(), time.Now()
	p.writeControlAt(t, expired.Created, "command/expired", expired)
	sendCommand(t, w, release("1h"))
	ev.awaitEnds(t, ids...)
	if dead := ev.count(is[redeliver.DeadLettered]); dead > 0 {
		t.Errorf("%d are dead", dead)
	}
}

// A pause is in the control topic. It ends although the group has lost its other topics.
func TestAPauseOfAGroupWithoutTopicsEnds(t *testing.T) {
	t.Parallel()
	p := newDoctorCase(t)
	p.provision(t, p.policy)
	c, _ := openClient(t, p.config(p.policy))
	if err := c.Operations().Pause(t.Context(), p.topic, "the bank is closed"); err != nil {
		t.Fatal(err)
	}
	if _, err := kadm.NewClient(independent(t, p.addrs)).DeleteTopics(t.Context(), p.topic, p.ours("retry")); err != nil {
		t.Fatal(err)
	}
	if err := c.Operations().Resume(t.Context(), p.topic); err != nil {
		t.Fatal(err)
	}
	if mark, err := c.Operations().Paused(t.Context(), p.topic); mark != nil || err != nil {
		t.Errorf("still paused: %+v, %v", mark, err)
	}
}
