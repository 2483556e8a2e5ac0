package redelivertest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

var errAway = errors.New("the database is down")

// load is a dependency that takes a second for each message.
type load struct {
	now, most atomic.Int64
	answer    atomic.Pointer[error]
}

func (l *load) set(err error) { l.answer.Store(&err) }

func (l *load) handle(*message.Message) error {
	if n := l.now.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	<-time.After(time.Second)
	l.now.Add(-1)
	return *l.answer.Load()
}

// feed publishes messages, rate a second, and returns the maximum number in flight in the last second.
func (l *load) feed(b *redelivertest.Broker, seq *int, rate, seconds int) int64 {
	for range seconds {
		l.most.Store(0)
		for range rate {
			*seq++
			b.Publish("orders", message.NewMessage(fmt.Sprint("m-", *seq), nil))
		}
		<-time.After(time.Second)
	}
	return l.most.Load()
}

// changes records the changes of a subscription. Events would wait until everything is at rest.
type changes struct {
	mu  sync.Mutex
	all []string
}

func (s *changes) Event(e redeliver.Event) {
	if e, ok := e.(redeliver.SubscriptionChanged); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, string(e.Change))
	}
}

func (s *changes) want(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.all, want) {
		t.Errorf("reported %q, want %q", s.all, want)
	}
}

// The number of messages in flight shrinks while the dependency is down, and grows back.
func TestConcurrencyShrinksAndGrowsBack(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l, sink := &load{}, &changes{}
		l.set(nil)
		policy := redeliver.Policy{MaxRetries: 1000, Backoff: redeliver.Fixed(5 * time.Second), Outage: redeliver.Outage{Off: true}}
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: policy, MaxInFlight: 20, MinInFlight: 2, Sink: sink}).Handle("orders", l.handle)
		seq := 0
		if most := l.feed(b, &seq, 15, 5); most < 14 {
			t.Errorf("%d in flight without failures", most)
		}
		l.set(errAway)
		if most := l.feed(b, &seq, 15, 8); most > 2 {
			t.Errorf("%d in flight after 8 s of failures, want 2", most)
		}
		sink.want(t, "throttled")
		l.set(nil)
		if most := l.feed(b, &seq, 15, 5); most < 4 || most > 20 {
			t.Errorf("%d in flight 5 s after the end of the failures: it grows at once, or not at all", most)
		}
		if most := l.feed(b, &seq, 15, 20); most < 14 {
			t.Errorf("%d in flight 25 s after the end of the failures", most)
		}
		b.Wait()
		sink.want(t, "throttled", "throttle over")
		done := 0
		for _, e := range orders.Events() {
			if _, ok := e.(redeliver.Committed); ok {
				done++
			}
		}
		if done != seq {
			t.Errorf("%d of %d messages were committed", done, seq)
		}
	})
}

// Some failures do not reduce the number of messages in flight.
func TestSomeFailuresDoNotShrinkTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		least, rate int
		err         error
		shrinks     bool
	}{
		"not asked for":              {0, 20, errAway, false},
		"errors":                     {2, 20, errAway, true},
		"postponed":                  {2, 20, redeliver.Postpone(errAway), true},
		"permanent":                  {2, 20, redeliver.Permanent(errAway), false},
		"rejected":                   {2, 20, redeliver.Reject("no such card"), false},
		"a few failures in a second": {2, 4, errAway, false},
		"retries after a while":      {2, 20, redeliver.RetryAfter(errAway, time.Hour), true},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				l, sink := &load{}, &changes{}
				l.set(c.err)
				b.Open(redelivertest.Config{
					Group: "billing", Sink: sink, MaxInFlight: 20, MinInFlight: c.least, Policy: redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Fixed(time.Hour), Outage: redeliver.Outage{Off: true}},
				}).Handle("orders", l.handle)
				seq := 0
				l.feed(b, &seq, c.rate, 8)
				if c.shrinks {
					sink.want(t, "throttled")
				} else {
					sink.want(t)
				}
				l.set(nil)
			})
		})
	}
}

// A batch is full when it has all messages that may be in flight.
func TestBatchOfAThrottledSubscription(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var away atomic.Bool
		away.Store(true)
		var last atomic.Int64
		b.Open(redelivertest.Config{
			Group: "search", MaxInFlight: 20, MinInFlight: 2, Policy: redeliver.Policy{MaxRetries: 1000, Backoff: redeliver.Fixed(5 * time.Minute), Outage: redeliver.Outage{Off: true}},
		}).Handle("orders", must(middleware.Batch(redeliver.BatchConfig{Size: 10, Timeout: 10 * time.Minute}, func(_ context.Context, mb *middleware.MessageBatch) error {
			<-time.After(200 * time.Millisecond)
			last.Store(int64(len(mb.Messages)))
			if away.Load() {
				return errAway
			}
			return nil
		})))
		for i := range 1000 {
			b.Publish("orders", message.NewMessage(fmt.Sprint("m-", i), nil))
		}
		<-time.After(time.Minute)
		if n := last.Load(); n != 2 {
			t.Errorf("batches of %d, want the limit of messages in flight", n)
		}
		away.Store(false)
		start := time.Now()
		b.Wait()
		if took := time.Since(start); took > 20*time.Minute {
			t.Errorf("took %s: batches that cannot become full still wait", took)
		}
	})
}
