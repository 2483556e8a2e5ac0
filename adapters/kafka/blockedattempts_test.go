package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// blockedRun runs one process after another on a partition whose first message fails, until that is in the DLQ and the
// message behind it has run.
type blockedRun struct {
	addrs  []string
	policy redeliver.Policy
	began  chan struct{} // an attempt of the first message has begun

	mu       sync.Mutex
	attempts []int // of the first message, as its handler saw them
	dead     []redeliver.State
	ends     int
	changes  []redeliver.SubscriptionChanged
	over     chan struct{} // closed when the message behind it has run
}

// Event implements [redeliver.Sink].
func (r *blockedRun) Event(e redeliver.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e := e.(type) {
	case redeliver.DeadLettered:
		r.dead = append(r.dead, e.State)
	case redeliver.SubscriptionChanged:
		r.changes = append(r.changes, e)
	}
}

func (r *blockedRun) count(change redeliver.Change) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.changes {
		if c.Change == change {
			n++
		}
	}
	return n
}

// start starts a process. kill ends it without a last commit, and leave in order.
func (r *blockedRun) start(t *testing.T) (kill, leave func()) {
	t.Helper()
	sc, cut := kafkatest.KillableConfig(t, r.addrs, "billing")
	c, err := kafka.Open(t.Context(), kafka.Config{Brokers: r.addrs, Group: "billing", Policy: r.policy, Sarama: sc, Sink: r, DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	route(t, c, "orders", func(m *message.Message) error {
		if m.UUID != "p0-0" {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.ends++; r.ends == 1 {
				close(r.over)
			}
			return nil
		}
		st, _ := redeliver.FromContext(m.Context())
		r.mu.Lock()
		r.attempts = append(r.attempts, st.Attempt())
		r.mu.Unlock()
		select {
		case r.began <- struct{}{}:
		default:
		}
		return fmt.Errorf("attempt %d: declined", st.Attempt())
	})
	leave = sync.OnceFunc(func() { _ = c.Close(context.Background()) })
	t.Cleanup(leave)
	return cut, leave
}

// newBlockedRun writes the two messages to a broker that accepts metadata of a number of bytes.
func newBlockedRun(t *testing.T, accepted, retries int) *blockedRun {
	t.Helper()
	cluster := fake(t, "orders")
	refuseLongMetadata(cluster, accepted)
	r := &blockedRun{
		addrs: cluster.ListenAddrs(), began: make(chan struct{}), over: make(chan struct{}),
		policy: withoutOutages(redeliver.Policy{MaxRetries: retries, Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(30 * time.Millisecond), MaxCrashes: 100}),
	}
	fillPartitions(t, r.addrs, 2, 0)
	return r
}

// awaitOver returns when the message behind the first one has run.
func (r *blockedRun) awaitOver(t *testing.T) {
	t.Helper()
	for deadline := time.After(waitTimeout); ; {
		select {
		case <-r.began:
		case <-r.over:
			return
		case <-deadline:
			t.Fatal("the message behind it does not run")
		}
	}
}

func (r *blockedRun) isOver() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// The attempts of a message that keeps its place outlive processes that end in order and processes that are killed: each
// kill repeats one attempt at most. That is so where the broker accepts only 100 bytes of metadata.
func TestABlockedMessageKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	const retries, ends = 12, 8
	for _, accepted := range []int{4096, 100} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, killed %v", accepted, killed), func(t *testing.T) {
				t.Parallel()
				r := newBlockedRun(t, accepted, retries)
				for i := 0; i < ends && !r.isOver(); i++ {
					kill, leave := r.start(t)
					for range 1 + rand.IntN(2) {
						select {
						case <-r.began:
						case <-r.over:
						}
					}
					select {
					case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond):
					case <-r.over:
					}
					if killed {
						kill()
					}
					leave()
				}
				if !r.isOver() {
					_, leave := r.start(t)
					r.awaitOver(t)
					leave()
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				atMost := retries + 1
				if killed {
					atMost += ends
				}
				if len(r.attempts) <= retries || len(r.attempts) > atMost {
					t.Errorf("it ran %d times, want %d to %d: %v", len(r.attempts), retries+1, atMost, r.attempts)
				}
				for i, n := range r.attempts[1:] {
					if last := r.attempts[i]; n != last+1 && (!killed || n != last) {
						t.Errorf("attempt %d followed attempt %d", n, last)
					}
				}
				if len(r.dead) != 1 || r.dead[0].Reason != redeliver.ReasonExhausted || r.dead[0].Attempts != retries+1 || r.dead[0].Error != fmt.Sprintf("attempt %d: declined", retries+1) {
					t.Errorf("dead letters: %+v", r.dead)
				}
				if len(r.dead) > 0 && accepted == 4096 && r.dead[0].FirstError != "attempt 1: declined" {
					t.Errorf("the dead letter's first error is %q", r.dead[0].FirstError)
				}
				for _, c := range r.changes {
					if c.Change == redeliver.ChangeAttemptsInMemory {
						t.Errorf("reported: %+v", c)
					}
				}
			})
		}
	}
}

// Where the broker refuses all metadata, attempts are counted in memory, and that is reported. The message ends in the
// process that has run all its attempts.
func TestAttemptsAreCountedInMemoryWithoutMetadata(t *testing.T) {
	t.Parallel()
	const retries = 5
	r := newBlockedRun(t, 0, retries)
	_, leave := r.start(t)
	<-r.began
	<-r.began
	leave()
	first := len(r.attempts)
	_, leave = r.start(t)
	r.awaitOver(t)
	leave()
	if n := len(r.attempts); n != first+retries+1 || r.attempts[first] != 1 {
		t.Errorf("it ran %d times after the first process: %v", n-first, r.attempts)
	}
	if len(r.dead) != 1 || r.dead[0].Attempts != retries+1 {
		t.Errorf("dead letters: %+v", r.dead)
	}
	if n := r.count(redeliver.ChangeAttemptsInMemory); n != 2 {
		t.Errorf("reported %d times, want once by each process", n)
	}
}

// A message inherits what a commit says about its own record: not after the topic was created again, and not in a log that
// has another record there. It does not wait for longer than any wait.
func TestABlockedMessageInheritsItsOwnStateOnly(t *testing.T) {
	t.Parallel()
	const offset = 1
	written := time.UnixMilli(1_700_000_000_000)
	rec := order("orders", "p0-1")
	noted := func(edit func(*commitmeta.Meta)) string {
		now := time.Now()
		m := commitmeta.Meta{Owner: "dead", State: commitmeta.Left, Alone: -1}
		m.Head = commitmeta.HeadOf(commitmeta.Identify(offset, written, rec.Key, len(rec.Value)), &redeliver.State{
			Attempts: 4, FirstFailed: now.Add(-time.Minute), LastFailed: now, Due: now.Add(time.Second), Error: "no answer", ErrorType: "T",
		})
		if edit != nil {
			edit(&m)
		}
		text, _ := m.Text(offset, nil)
		return text
	}
	for name, c := range map[string]struct {
		text    string
		written time.Time
		order   redeliver.Order
		want    int // attempts
	}{
		"the same":                    {noted(nil), written, redeliver.OrderBlocking, 4},
		"the same, another order":     {noted(nil), written, redeliver.OrderFirstAttempts, 4},
		"the same, in no order":       {noted(nil), written, redeliver.OrderNone, 4},
		"the same, per key":           {noted(nil), written, redeliver.OrderThroughRetries, 4},
		"another record":              {noted(nil), written.Add(time.Second), redeliver.OrderBlocking, 0},
		"the topic was created again": {noted(func(m *commitmeta.Meta) { m.Topic = "7Zl2hRiCRuqDSlzQ1RMKxw" }), written, redeliver.OrderBlocking, 0},
		"due in an hour":              {noted(func(m *commitmeta.Meta) { m.Head.Due += time.Hour.Milliseconds() }), written, redeliver.OrderBlocking, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := fake(t, "orders").ListenAddrs()
			recs, ids := orders("orders", 3)
			recs[offset].Key, recs[offset].Value, recs[offset].Headers = rec.Key, rec.Value, rec.Headers
			recs[2].Key = rec.Key
			for _, r := range recs {
				r.Timestamp = c.written
			}
			put(t, addrs, recs...)
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: "orders", At: offset, LeaderEpoch: -1, Metadata: c.text})
			if err := kadm.NewClient(independent(t, addrs)).CommitAllOffsets(t.Context(), "billing", offsets); err != nil {
				t.Fatal(err)
			}
			p := quick(10)
			if p.Order = c.order; p.Order == redeliver.OrderBlocking {
				p.Levels, p.Backoff = nil, redeliver.Fixed(20*time.Millisecond)
			}
			cl, ev := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: p})
			began := time.Now()
			var mu sync.Mutex
			var ran []redeliver.State
			var at []time.Time
			route(t, cl, "orders", func(m *message.Message) error {
				st, _ := redeliver.FromContext(m.Context())
				mu.Lock()
				defer mu.Unlock()
				ran, at = append(ran, st), append(at, time.Now())
				return nil
			})
			if strings.Contains(name, "created again") {
				ev.awaitEnds(t, ids[0]) // the topic is read from its beginning
			}
			ev.awaitEnds(t, "p0-1", ids[2])
			mu.Lock()
			defer mu.Unlock()
			for i, st := range ran {
				if st.ID != "p0-1" {
					continue
				}
				if st.Attempts != c.want || c.want > 0 && (st.Error != "no answer" || st.ErrorType != "T" || st.FirstFailed.IsZero()) {
					t.Errorf("it runs with %+v, want %d attempts", st, c.want)
				}
				if c.want > 0 && at[i].Before(st.Due) || st.Due.After(began.Add(31*time.Second)) {
					t.Errorf("it began at %s and was due at %s", at[i], st.Due)
				}
			}
			if last := ran[len(ran)-1]; c.order != redeliver.OrderNone && last.ID != ids[2] {
				t.Errorf("%s ran last, and not the one behind it", last.ID)
			}
		})
	}
}

// sarama's own commits could undo the one that has the attempts.
func TestWrapRefusesBlocking(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	client, group := ownGroup(t, addrs, "billing")
	blocking := redeliver.Policy{Order: redeliver.OrderBlocking}
	_, err := kafka.Wrap(t.Context(), client, group, kafka.Config{Group: "billing", Policy: blocking, Topics: map[string]redeliver.Policy{"orders": blocking}}, []string{"orders"}, succeed)
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || len(bad.Problems) != 2 || bad.Problems[0].Field != "Policy.Order" || bad.Problems[1].Field != `Topics["orders"].Order` || !strings.Contains(err.Error(), "Consume") {
		t.Errorf("Wrap with OrderBlocking: %v", err)
	}
}

// A message of a batch keeps its attempts, too, also those of immediate retries when its process ends in order.
func TestABlockedMessageOfABatchKeepsItsAttempts(t *testing.T) {
	t.Parallel()
	const retries = 40
	p := fixture{addrs: fake(t, "orders").ListenAddrs(), topic: "orders", group: "billing"}
	ids := fillPartitions(t, p.addrs, 5, 0)
	var mu sync.Mutex
	var attempts []int
	began := make(chan struct{}, 100)
	handle := func(_ context.Context, b *kafka.Batch) error {
		for _, m := range b.Messages {
			if string(m.Record.Key) != ids[1] {
				m.Ack()
				continue
			}
			mu.Lock()
			attempts = append(attempts, m.State().Attempt())
			mu.Unlock()
			m.Answer(errDeclined)
			began <- struct{}{}
		}
		return nil
	}
	cfg := kafka.Config{Policy: redeliver.Policy{
		MaxRetries: retries, Immediate: 2, Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(50 * time.Millisecond),
	}}
	for range 3 {
		_, stop := consumeBatch(t, p, cfg, redeliver.BatchConfig{Size: 3, Timeout: redeliver.NoWait}, handle)
		<-began
		stop()
	}
	ev, stop := consumeBatch(t, p, cfg, redeliver.BatchConfig{Size: 3, Timeout: redeliver.NoWait}, handle)
	ev.awaitEnds(t, ids[1:]...)
	stop()
	mu.Lock()
	defer mu.Unlock()
	for i, n := range attempts {
		if n != i+1 {
			t.Errorf("attempts %v, want 1 to %d", attempts, retries+1)
			break
		}
	}
	if dead := deadIDs(ev); len(attempts) != retries+1 || len(dead) != 1 || dead[0] != ids[1]+": exhausted" {
		t.Errorf("%d attempts, dead letters %v", len(attempts), dead)
	}
}
