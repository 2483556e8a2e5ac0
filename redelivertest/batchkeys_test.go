package redelivertest_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// batchLog has the runs of messages in batches, over several processes.
type batchLog struct {
	mu      sync.Mutex
	rand    *rand.Rand
	bad     map[string]int // how often each message fails
	own     bool           // each message has an answer of its own
	calls   int
	runs    map[string]int
	success map[string]int // the position of the last run that succeeded
	most    int            // messages of one key in a batch
}

// handler returns the batch function of a process that dies when killed returns true.
func (l *batchLog) handler(killed func() bool) middleware.BatchHandler {
	return func(_ context.Context, mb *middleware.MessageBatch) error {
		l.mu.Lock()
		if killed() {
			l.mu.Unlock()
			return nil
		}
		l.calls++
		call, takes := l.calls, time.Duration(1+l.rand.IntN(100))*time.Millisecond
		keys := map[string]int{}
		for _, m := range mb.Messages {
			l.runs[m.Record.UUID]++
			keys[redelivertest.Key(m.Context())]++
			l.most = max(l.most, keys[redelivertest.Key(m.Context())])
		}
		answers := l.rand.Perm(len(mb.Messages))
		l.mu.Unlock()
		<-time.After(takes)
		l.mu.Lock()
		defer l.mu.Unlock()
		if killed() {
			return nil
		}
		var failed error
		for _, i := range answers {
			m := mb.Messages[i]
			err := l.outcomeLocked(m.Record.UUID)
			if err == nil {
				l.success[m.Record.UUID] = 1000*call + i
			} else {
				failed = err
			}
			if l.own {
				m.Answer(err)
			}
		}
		if l.own {
			return nil
		}
		return failed
	}
}

func (l *batchLog) outcomeLocked(id string) error {
	if l.bad[id] == 0 {
		return nil
	}
	l.bad[id]--
	return fmt.Errorf("%s: %w", id, errAway)
}

// Batches of a Router keep the order of keys over failures and kills, in every order, and send only bad messages to the DLQ.
func TestBatchesOfARouterKeepKeys(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) { runBatchesOfARouter(t, b, seed) })
		})
	}
}

func runBatchesOfARouter(t *testing.T, b *redelivertest.Broker, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 2))
	l := &batchLog{rand: r, own: r.IntN(2) == 0, bad: map[string]int{}, runs: map[string]int{}, success: map[string]int{}}
	policy := redeliver.Policy{
		MaxRetries: 1 + r.IntN(4), Backoff: redeliver.Fixed(time.Second), Order: []redeliver.Order{redeliver.OrderFirstAttempts, redeliver.OrderThroughRetries, redeliver.OrderBlocking}[r.IntN(3)],
		MaxCrashes: 100, Outage: redeliver.Outage{Off: true},
	}
	config := redeliver.BatchConfig{Size: 2 + r.IntN(9), Timeout: time.Duration(1+r.IntN(200)) * time.Millisecond, Concurrency: 1 + r.IntN(4)}
	const n = 100
	keys, kills := 1+r.IntN(5), r.IntN(3)
	id := func(i int) string { return fmt.Sprintf("%02d", i) }
	always, fails := map[string]bool{}, map[string]bool{}
	for i := range n {
		switch p := r.IntN(100); {
		case p == 0:
			l.bad[id(i)], always[id(i)] = 1000, true
		case p <= 5:
			l.bad[id(i)] = 1 + r.IntN(policy.MaxRetries)
		}
		fails[id(i)] = l.bad[id(i)] > 0
		msg := message.NewMessage(id(i), nil)
		redelivertest.SetKey(msg, fmt.Sprint("key-", i%keys))
		b.Publish("orders", msg)
	}
	t.Logf("%d keys, %d kills, own answers %t, %+v, %+v", keys, kills, l.own, config, policy)
	var orders *redelivertest.Subscription
	for kill := range kills + 1 {
		var dead bool
		l.mu.Lock()
		maxInFlight, life := config.Size*(1+r.IntN(3)), time.Duration(r.IntN(2000))*time.Millisecond
		l.mu.Unlock()
		client := b.Open(redelivertest.Config{Group: "search", Policy: policy, MaxInFlight: maxInFlight})
		orders = client.Handle("orders", must(middleware.Batch(config, l.handler(func() bool { return dead }))))
		if kill < kills {
			<-time.After(life)
			l.mu.Lock()
			dead = true
			client.Kill()
			l.mu.Unlock()
		}
	}
	b.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	last := map[int]int{}
	for i := range n {
		got := orders.Outcome(id(i))
		if got.Committed == always[id(i)] {
			t.Errorf("%s: %s, want it dead %t", id(i), got, always[id(i)])
		}
		waits, keeps := 0, policy.Order != redeliver.OrderFirstAttempts
		if keeps { // for each earlier one of its key that failed
			waits = 1000
		}
		if most := policy.MaxRetries + 1 + 2*kills + waits; l.runs[id(i)] > most {
			t.Errorf("%s ran %d times, want at most %d", id(i), l.runs[id(i)], most)
		}
		if always[id(i)] || !keeps && (!l.own || fails[id(i)]) { // a message that has failed is overtaken
			continue
		}
		if l.success[id(i)] < last[i%keys] {
			t.Errorf("%s succeeded last at %d, before an earlier one of its key at %d", id(i), l.success[id(i)], last[i%keys])
		}
		last[i%keys] = l.success[id(i)]
	}
}
