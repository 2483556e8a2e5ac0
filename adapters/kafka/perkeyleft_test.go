package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// keyed makes a record of a key on partition 0.
func keyed(p fixture, key, id string) *kgo.Record {
	rec := order(p.topic, id)
	rec.Key = []byte(key)
	return rec
}

// leftOnLevel makes a record on a level as a killed member would leave it.
func leftOnLevel(p fixture, level time.Duration, key, id string, offset int64, attempts int, wait time.Duration, at time.Time) *kgo.Record {
	st := redeliver.State{
		ID: id, Group: p.group, Origin: p.topic, Attempts: attempts, Due: time.Now().Add(wait),
		Source: redeliver.Source{Known: true, Offset: offset, Timestamp: at},
	}
	if attempts > 0 {
		st.FirstFailed, st.LastFailed = time.Now(), time.Now()
	}
	rec := ours(kafka.DelayTopicName(p.topic, p.group, level), id, st)
	rec.Key = []byte(key)
	return rec
}

// A kill may leave any half-done state, and the next member restores the order before anything runs. It finds waiting
// records on every level, runs only the newest copy of each, and runs records that were not written to a level in
// order.
func TestOnKafkaPerKeyRestoresTheOrderAfterAKill(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	levels := []time.Duration{200 * time.Millisecond, time.Second}
	cfg := kafka.Config{Policy: perKeyPolicy(levels...), MaxInFlight: 10}
	p.provision(t, cfg.Policy)
	origin := []*kgo.Record{
		keyed(p, "retried", "retried-0"), keyed(p, "retried", "retried-1"), // 0, 1
		keyed(p, "twice", "twice-0"), keyed(p, "twice", "twice-1"), // 2, 3
		keyed(p, "overtaken", "overtaken-0"), keyed(p, "overtaken", "overtaken-1"), keyed(p, "overtaken", "overtaken-2"), // 4, 5, 6
		keyed(p, "anew", "anew-0"), keyed(p, "anew", "anew-1"), // 7, 8
	}
	put(t, p.addrs, origin...)
	at := func(i int) time.Time { return origin[i].Timestamp }
	put(t, p.addrs,
		// Its retry was written, and the origin not committed.
		leftOnLevel(p, levels[1], "retried", "retried-0", 0, 1, time.Second, at(0)),
		// It came back, failed again, and only its next retry was written.
		leftOnLevel(p, levels[0], "twice", "twice-0", 2, 1, 0, at(2)),
		leftOnLevel(p, levels[1], "twice", "twice-0", 2, 2, time.Second, at(2)),
		// A record behind the failure was written before an earlier one.
		leftOnLevel(p, levels[0], "overtaken", "overtaken-2", 6, 0, 0, at(6)),
		leftOnLevel(p, levels[1], "overtaken", "overtaken-0", 4, 1, time.Second, at(4)),
		// The origin was deleted and created again: another record had this offset.
		leftOnLevel(p, levels[0], "anew", "before anew-0", 7, 1, 0, at(7).Add(-time.Hour)),
	)
	var mu sync.Mutex
	ran := make(map[string][]string)
	ev, _ := consume(t, p, cfg, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		ran[string(rec.Key)] = append(ran[string(rec.Key)], fmt.Sprintf("%s/%d", st.ID, st.Attempt()))
		return nil
	})
	var ids []string
	for _, rec := range origin {
		ids = append(ids, string(rec.Value))
	}
	ev.awaitEnds(t, append(ids, "before anew-0")...)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(ran["anew"]) // they have no order
	for key, want := range map[string][]string{
		"retried":   {"retried-0/2", "retried-1/1"},
		"twice":     {"twice-0/3", "twice-1/1"},
		"overtaken": {"overtaken-0/2", "overtaken-1/1", "overtaken-2/1"},
		"anew":      {"anew-0/1", "anew-1/1", "before anew-0/2"},
	} {
		if !slices.Equal(ran[key], want) {
			t.Errorf("of key %s ran %q, want %q", key, ran[key], want)
		}
	}
	ev.noFindings(t)
	eventually(t, "everything is committed", func() bool { return unacked(t, p.addrs, p.group, p.topic, 0) == int64(len(origin)) })
}

// At MaxWaiting the origin pauses, and it resumes when fewer messages wait. Nothing is reordered.
func TestOnKafkaPerKeyBoundsWaitingMessages(t *testing.T) {
	t.Parallel()
	const messages, maxWaiting, inFlight = 600, 50, 5
	p := onKafka(t)
	var mu sync.Mutex
	seen := make(map[string]bool)
	heal := make(chan struct{})
	policy := perKeyPolicy(100 * time.Millisecond)
	policy.MaxRetries = 10_000
	ev, _ := consume(t, p, kafka.Config{MaxWaiting: maxWaiting, MaxInFlight: inFlight, Policy: policy}, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		mu.Lock()
		seen[string(rec.Value)] = true
		mu.Unlock()
		select {
		case <-heal:
			return nil
		default:
			return errDeclined
		}
	})
	var recs []*kgo.Record
	var ids []string
	for i := range messages {
		id := fmt.Sprintf("m-%03d", i)
		recs, ids = append(recs, keyed(p, fmt.Sprint("key ", i%200), id)), append(ids, id)
	}
	put(t, p.addrs, recs...)
	paused := ev.await(t, 1, isChange(redeliver.ChangePartitionPaused))[0].(redeliver.SubscriptionChanged)
	if !strings.Contains(paused.Detail, "MaxWaiting is 50") {
		t.Errorf("%q does not say why", paused.Detail)
	}
	ev.await(t, 20*maxWaiting, is[redeliver.Attempted]) // the retries go on
	mu.Lock()
	n := len(seen)
	mu.Unlock()
	waiting := make(map[string]bool)
	for _, h := range all[redeliver.Hopped](ev) {
		waiting[h.State.ID] = true
	}
	for _, r := range all[redeliver.RetryScheduled](ev) {
		waiting[r.State.ID] = true
	}
	if bound := maxWaiting + 10*inFlight; n > bound || len(waiting) > bound {
		t.Errorf("%d messages failed and %d waited, which is more than MaxWaiting and what may be in flight, %d", n, len(waiting), bound)
	}
	close(heal)
	ev.awaitEnds(t, ids...)
	ev.await(t, 1, isChange(redeliver.ChangePartitionResumed))
	last := make(map[int]int)
	for _, c := range all[redeliver.Committed](ev) {
		i := slices.Index(ids, c.State.ID)
		if before, ok := last[i%200]; ok && before > i {
			t.Errorf("%s was committed after %s", ids[i], ids[before])
		}
		last[i%200] = i
	}
}

// Several records are written to a level at once. So a kill may leave a record on a level, and an earlier one of its
// key on the origin. The later record is read first, because the origin's only slot is taken, but must not run first.
// The origin must not pause at MaxWaiting, because the waiting record waits for it.
func TestOnKafkaAWaitingRecordDoesNotOvertakeTheOrigin(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	cfg := kafka.Config{Policy: perKeyPolicy(200 * time.Millisecond), MaxInFlight: 1, MaxRetriesInFlight: 5, MaxWaiting: 1}
	p.provision(t, cfg.Policy)
	recs := []*kgo.Record{keyed(p, "other", "other"), keyed(p, "key", "first"), keyed(p, "key", "second")}
	put(t, p.addrs, recs...)
	put(t, p.addrs, leftOnLevel(p, 200*time.Millisecond, "key", "second", 2, 0, 0, recs[2].Timestamp))
	wantOrder(t, p, cfg)
}

// wantOrder checks that other, first and second run in this order, while other holds the only slot. Large records are
// between them.
func wantOrder(t *testing.T, p fixture, cfg kafka.Config) {
	t.Helper()
	var mu sync.Mutex
	var ran []string
	early := make(chan struct{}, 1)
	ev, _ := consume(t, p, cfg, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		if len(rec.Value) > 100 {
			return nil
		}
		mu.Lock()
		ran = append(ran, string(rec.Value))
		mu.Unlock()
		switch string(rec.Value) {
		case "other":
			select { // enough time for a wrong second message
			case <-early:
			case <-time.After(500 * time.Millisecond):
			}
		case "second":
			early <- struct{}{}
		}
		return nil
	})
	ev.awaitEnds(t, "other", "first", "second")
	mu.Lock()
	defer mu.Unlock()
	if !slices.Equal(ran, []string{"other", "first", "second"}) {
		t.Errorf("ran %q", ran)
	}
}

// All earlier records of a key run first, however far apart they are and however small MaxWaiting is.
func TestOnKafkaAllEarlierRecordsOfAKeyRunFirst(t *testing.T) {
	t.Parallel()
	const between = 60 // of 100 KB, six fetches
	p := onKafka(t)
	cfg := kafka.Config{Policy: perKeyPolicy(200 * time.Millisecond), MaxInFlight: 1, MaxRetriesInFlight: 5, MaxWaiting: 10}
	p.provision(t, cfg.Policy)
	recs := []*kgo.Record{keyed(p, "other", "other")}
	for i := range between {
		rec := keyed(p, fmt.Sprint("between ", i), "between")
		rec.Value = randomBytes(byte(i), 100<<10)
		recs = append(recs, rec)
	}
	recs = append(recs, keyed(p, "key", "first"), keyed(p, "key", "second"))
	put(t, p.addrs, recs...)
	put(t, p.addrs, leftOnLevel(p, 200*time.Millisecond, "key", "second", between+2, 0, 0, recs[between+2].Timestamp))
	wantOrder(t, p, cfg)
}

// A session may load more than MaxWaiting records. Then the origin is paused from the start. Duplicates alone do not
// pause it.
func TestOnKafkaMoreThanMaxWaitingIsLoaded(t *testing.T) {
	t.Parallel()
	const messages, maxWaiting = 300, 50
	p := onKafka(t)
	cfg := kafka.Config{Policy: perKeyPolicy(200 * time.Millisecond), MaxWaiting: maxWaiting, MaxInFlight: 10}
	p.provision(t, cfg.Policy)
	var origin, waiting []*kgo.Record
	var ids []string
	for i := range messages + 1 {
		id := fmt.Sprintf("m-%03d", i)
		origin, ids = append(origin, keyed(p, fmt.Sprint("key ", i%100), id)), append(ids, id)
	}
	put(t, p.addrs, origin...)
	for i, rec := range origin[:messages] {
		waiting = append(waiting, leftOnLevel(p, 200*time.Millisecond, string(rec.Key), ids[i], int64(i), 1, 0, rec.Timestamp))
	}
	put(t, p.addrs, waiting...)
	var mu sync.Mutex
	ran := make(map[string]int)
	ev, _ := consume(t, p, cfg, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		if id := string(rec.Value); id == ids[messages] && len(ran) <= messages-maxWaiting {
			t.Errorf("%s began when %d of %d had run, and no more than %d may wait", id, len(ran), messages, maxWaiting)
		} else if id != ids[messages] && st.Attempt() != 2 {
			t.Errorf("attempt %d of %s, which waits for its second", st.Attempt(), id)
		}
		ran[string(rec.Value)]++
		return nil
	})
	ev.awaitEnds(t, ids...)
	mu.Lock()
	defer mu.Unlock()
	for id, n := range ran {
		if n > 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}

// Suspects run alone, and the messages behind them wait for them. A suspect that fails must still hold up its key.
func TestPerKeyKeepsTheOrderBehindAFailedSuspect(t *testing.T) {
	t.Parallel()
	const suspects, behind = 40, 40
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	var recs []*kgo.Record
	var ids []string
	for i := range suspects {
		ids = append(ids, fmt.Sprint("suspect ", i))
		recs = append(recs, keyed(p, fmt.Sprint("key ", i), ids[i]))
	}
	for i := range behind { // those behind the last suspect come first
		id := fmt.Sprint("behind ", i)
		ids, recs = append(ids, id), append(recs, keyed(p, fmt.Sprint("key ", suspects-1-i), id))
	}
	put(t, p.addrs, recs...)
	commitAsDeadOwner(t, p.addrs, 0, fmt.Sprintf("redeliver/1 by=dead state=careful end=%d base=0 window=0-%d", len(recs), suspects-1))
	var mu sync.Mutex
	settled := make(map[string]bool)
	ev, _ := consume(t, p, kafka.Config{Policy: perKeyPolicy(200 * time.Millisecond)}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		mu.Lock()
		defer mu.Unlock()
		key, isSuspect := string(rec.Key), strings.HasPrefix(string(rec.Value), "suspect")
		if st, _ := redeliver.FromContext(ctx); isSuspect && st.Attempt() == 1 {
			return errDeclined
		}
		if isSuspect {
			settled[key] = true
		} else if !settled[key] {
			t.Errorf("%s of %s ran before the suspect of its key was settled", rec.Value, key)
		}
		return nil
	})
	ev.awaitEnds(t, ids...)
	if n := len(all[redeliver.RetryScheduled](ev)); n != suspects {
		t.Errorf("%d suspects failed once, want %d", n, suspects)
	}
}

// The group's offset of a level that was deleted and created again does not apply. A session must load all its records,
// as it reads them.
func TestPerKeyLoadsALevelThatWasCreatedAgain(t *testing.T) {
	t.Parallel()
	const wait, others = 3 * time.Second, 3000 // so many that the level's lane pauses before it reads the first of the key
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	cfg := kafka.Config{Policy: perKeyPolicy(wait)}
	p.provision(t, cfg.Policy)
	origin := []*kgo.Record{keyed(p, "key", "first"), keyed(p, "key", "second")}
	put(t, p.addrs, origin...)
	var waiting []*kgo.Record
	for range others {
		rec := leftOnLevel(p, wait, "", "other", 0, 0, wait, origin[0].Timestamp)
		rec.Key, rec.Value = nil, make([]byte, 1<<10)
		waiting = append(waiting, rec)
	}
	put(t, p.addrs, append(waiting, leftOnLevel(p, wait, "key", "first", 0, 0, wait, origin[0].Timestamp))...)
	var offsets kadm.Offsets
	offsets.AddOffset("orders", 0, 1, -1)
	offsets.Add(kadm.Offset{Topic: kafka.DelayTopicName("orders", "billing", wait), At: others + 1, LeaderEpoch: -1, Metadata: "redeliver/1 by=left topic=earlier state=left"})
	if err := kadm.NewClient(independent(t, p.addrs)).CommitAllOffsets(t.Context(), "billing", offsets); err != nil {
		t.Fatal(err)
	}
	var first atomic.Bool
	ev, _ := consume(t, p, cfg, func(_ context.Context, rec *sarama.ConsumerMessage) error {
		switch string(rec.Value) {
		case "first":
			first.Store(true)
		case "second":
			if !first.Load() {
				t.Error("the second message of the key ran before the first, which waits on a level")
			}
		}
		return nil
	})
	ev.awaitEnds(t, "first", "second")
}
