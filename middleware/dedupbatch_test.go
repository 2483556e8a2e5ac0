package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// dedupBatches is a subscription with batches whose duplicates are skipped.
type dedupBatches struct {
	batchLog
	mu      sync.Mutex
	skipped []string
	*redelivertest.Subscription
}

// openDedupBatches calls fn, which may be nil, for batches of up to config.Size.
func openDedupBatches(
	b *redelivertest.Broker, p redeliver.Policy, config redeliver.BatchConfig, dedup middleware.DedupConfigOf[redeliver.Message], fn middleware.BatchHandler,
) *dedupBatches {
	s := &dedupBatches{batchLog: batchLog{b: b}}
	dedup.Skipped = func(m redeliver.Message) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.skipped = append(s.skipped, m.State.ID)
	}
	config.Dedup = must(middleware.DedupBatch(dedup))
	s.Subscription = index(b, p, config, func(ctx context.Context, mb *middleware.MessageBatch) error {
		s.add(mb)
		if fn == nil {
			return nil
		}
		return fn(ctx, mb)
	})
	return s
}

func (s *dedupBatches) wantSkipped(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.skipped)
	if !slices.Equal(s.skipped, want) {
		t.Errorf("skipped %q, want %q", s.skipped, want)
	}
}

// onFirst answers the first attempts of one message.
func onFirst(id string, answer func(*middleware.BatchMessage)) middleware.BatchHandler {
	return func(_ context.Context, mb *middleware.MessageBatch) error {
		for _, m := range mb.Messages {
			if m.Record.UUID == id && m.State().Attempt() == 1 {
				answer(m)
			}
		}
		return nil
	}
}

// A duplicate is not in the batch. A message is marked by its own outcome: b, which fails alone, runs again.
func TestDedupBatchSkipsHandledMessages(t *testing.T) {
	for how, answer := range map[string]func(*middleware.BatchMessage){
		"fails":       func(m *middleware.BatchMessage) { m.Retry() },
		"is nacked":   func(m *middleware.BatchMessage) { m.Record.Nack() },
		"is rejected": func(m *middleware.BatchMessage) { m.Reject("no such card") },
	} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			policy := redeliver.Policy{Backoff: redeliver.Fixed(minute)}
			s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 3}, middleware.DedupConfigOf[redeliver.Message]{}, onFirst("b", answer))
			publish(b, "a", "b", "c")
			<-time.After(hour)
			publish(b, "a", "b", "c")
			b.Wait()
			want := []string{"0s a b c", "1m5s b"}
			if how == "is rejected" {
				want[1] = "1h0m0s b"
			}
			skipped := []string{"a", "b", "c"}
			if how == "is rejected" {
				skipped = []string{"a", "c"}
			}
			s.want(t, want...)
			if s.wantSkipped(t, skipped...); t.Failed() {
				t.Fatal(how)
			}
		})
	}
}

// Nothing is marked when a whole batch fails. Each message is marked when it succeeds.
func TestDedupBatchThatFailsAsAWhole(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}
		s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 3}, middleware.DedupConfigOf[redeliver.Message]{}, func(_ context.Context, mb *middleware.MessageBatch) error {
			if slices.ContainsFunc(mb.Messages, func(m *middleware.BatchMessage) bool { return m.Record.UUID == "bad" }) {
				return errHandler
			}
			return nil
		})
		publish(b, "a", "bad", "c")
		b.Wait()
		publish(b, "a", "c", "d")
		b.Wait()
		s.wantSkipped(t, "a", "c")
		if n := len(s.DeadLetters()); n != 1 {
			t.Errorf("%d dead letters, want that of bad", n)
		}
	})
}

// Of copies in one batch the function gets one. The others are skipped if it succeeds, and run again if it fails.
func TestDedupBatchWithCopies(t *testing.T) {
	for name, c := range map[string]struct {
		answer        func(*middleware.BatchMessage)
		want, skipped []string
	}{
		"no own answer": {func(*middleware.BatchMessage) {}, []string{"0s a b"}, []string{"a"}},
		"own answer":    {func(m *middleware.BatchMessage) { m.Ack() }, []string{"0s a b"}, []string{"a"}},
		"fails":         {func(m *middleware.BatchMessage) { m.RetryAfter(time.Minute) }, []string{"0s a b", "1m5s a"}, []string{"a"}},
		"rejected":      {func(m *middleware.BatchMessage) { m.Reject("no such card") }, []string{"0s a b", "10m5s a"}, nil},
	} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			policy := redeliver.Policy{Backoff: redeliver.Fixed(10 * minute)}
			rejected := false
			s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 3}, middleware.DedupConfigOf[redeliver.Message]{}, func(ctx context.Context, mb *middleware.MessageBatch) error {
				if rejected { // the copy
					return nil
				}
				rejected = true
				return onFirst("a", c.answer)(ctx, mb)
			})
			publish(b, "a", "a", "b")
			b.Wait()
			s.want(t, c.want...)
			if s.wantSkipped(t, c.skipped...); t.Failed() {
				t.Fatal(name)
			}
		})
	}
}

// A duplicate shows nothing about the function, nor do its copies in the batch: they do not hide that most messages of the function
// fail.
func TestDedupBatchCountsNoDuplicateAsASuccess(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{Backoff: redeliver.Fixed(hour), Outage: redeliver.Outage{Off: true}}
		config := redeliver.BatchConfig{Size: 5, Dedup: must(middleware.DedupBatch(middleware.DedupConfigOf[redeliver.Message]{}))}
		documents := b.Open(redelivertest.Config{Group: "search", Policy: policy, MinInFlight: 5}).Handle("documents",
			must(middleware.Batch(config, func(_ context.Context, mb *middleware.MessageBatch) error {
				for _, m := range mb.Messages {
					if m.Record.UUID != "a" && m.State().Attempt() == 1 {
						m.Retry()
					}
				}
				return nil
			})))
		publish(b, "a")
		<-time.After(minute)
		for i := range 40 {
			publish(b, fmt.Sprint("bad-", i), "a", "a", "a", "a")
			<-time.After(50 * ms)
		}
		b.Wait()
		if !slices.ContainsFunc(documents.Events(), func(e redeliver.Event) bool {
			changed, ok := e.(redeliver.SubscriptionChanged)
			return ok && changed.Change == redeliver.ChangeThrottled
		}) {
			t.Error("all messages of the function failed for two seconds, and their number in flight has not shrunk")
		}
	})
}

// Copies in batches that run at once do not run at the same time, and no batch waits for another one that waits for it.
func TestDedupBatchesWithCopiesOfEachOther(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		first := func(m redeliver.Message) string { return string(m.Body[:1]) }
		s := openDedupBatches(b, redeliver.Policy{Order: redeliver.OrderNone}, redeliver.BatchConfig{Size: 2, Concurrency: 2},
			middleware.DedupConfigOf[redeliver.Message]{ID: first}, func(context.Context, *middleware.MessageBatch) error {
				<-time.After(second)
				return nil
			})
		publish(b, "a1", "b1", "b2", "a2")
		b.Wait()
		s.want(t, "0s a1 b1")
		s.wantSkipped(t, "a2", "b2")
	})
}

// An answer that does not count, because an earlier message of its key failed, leaves no mark. Otherwise the message would not run
// after the earlier one.
func TestDedupBatchDoesNotMarkAnIgnoredAnswer(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{Order: redeliver.OrderThroughRetries, Backoff: redeliver.Fixed(minute)}
		s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 3}, middleware.DedupConfigOf[redeliver.Message]{}, onFirst("1", func(m *middleware.BatchMessage) { m.Retry() }))
		var all []*message.Message
		for _, id := range []string{"1", "2", "3"} {
			m := message.NewMessage(id, nil)
			redelivertest.SetKey(m, "key")
			all = append(all, m)
		}
		b.Publish("documents", all...)
		b.Wait()
		s.wantSkipped(t)
		if got := strings.Join(s.in, ", "); !strings.HasPrefix(got, "0s 1 2 3, 1m") || !strings.HasSuffix(got, " 2 3") || len(s.in) != 3 {
			t.Errorf("batches %q", got)
		}
	})
}

// The batch waits while the store does not answer, and no attempt counts. A mark that the store refuses does not fail a message.
func TestDedupBatchWithAStoreThatFails(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		store := &store{DedupMemory: must(middleware.NewDedupMemory(10)), seen: errBroker}
		policy := redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}
		s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 2}, middleware.DedupConfigOf[redeliver.Message]{Store: store}, nil)
		publish(b, "a", "b")
		<-time.After(5 * minute)
		store.set(nil, errBroker)
		b.Wait()
		for _, id := range []string{"a", "b"} {
			got := s.Outcome(id)
			if !got.Committed || got.State.Attempts != 0 || len(got.Waits) < 3 || !got.Waits[0].Postponed || !errors.Is(got.Attempts[0].Err, errBroker) {
				t.Error(got)
			}
		}
		publish(b, "a", "b") // their marks were refused
		b.Wait()
		store.set(nil, nil)
		publish(b, "a", "b")
		b.Wait()
		publish(b, "a", "b")
		b.Wait()
		s.wantSkipped(t, "a", "b")
		if got := changes(s.Events()); !slices.Equal(got, []redeliver.Change{
			redeliver.ChangeDedupStoreLost, redeliver.ChangeDedupStoreRecovered, redeliver.ChangeDedupMarksLost, redeliver.ChangeDedupMarksRecovered,
		}) {
			t.Errorf("reported %q", got)
		}
	})
}

// hangingStore answers Mark only when its time is over.
type hangingStore struct{ marks atomic.Int32 }

func (*hangingStore) Seen(context.Context, string) (bool, error) { return false, nil }

func (s *hangingStore) Mark(ctx context.Context, _ string, _ time.Duration) error {
	s.marks.Add(1)
	<-ctx.Done()
	return ctx.Err()
}

// A store that hangs delays a batch once, not for each of its messages.
func TestDedupBatchWaitsOnceForAStoreThatHangs(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		store := &hangingStore{}
		took := time.Duration(0)
		s := openDedupBatches(b, redeliver.Policy{}, redeliver.BatchConfig{Size: 4}, middleware.DedupConfigOf[redeliver.Message]{Store: store}, func(_ context.Context, mb *middleware.MessageBatch) error {
			begun := time.Now()
			for _, m := range mb.Messages {
				m.Ack()
			}
			took = time.Since(begun)
			return nil
		})
		publish(b, "a", "b", "c", "d")
		b.Wait()
		if took != 5*second || store.marks.Load() != 1 || !s.Outcome("d").Committed {
			t.Errorf("the answers took %s, with %d marks", took, store.marks.Load())
		}
	})
}

// The answer of a function that exceeded its Timeout is ignored, but its messages were handled: their retries are duplicates.
func TestDedupBatchMarksLateSuccesses(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{Timeout: minute, Backoff: redeliver.Fixed(10 * minute)}
		s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 2}, middleware.DedupConfigOf[redeliver.Message]{}, func(context.Context, *middleware.MessageBatch) error {
			<-time.After(2 * minute)
			return nil
		})
		publish(b, "a", "b")
		b.Wait()
		s.want(t, "0s a b")
		s.wantSkipped(t, "a", "b")
	})
}

// panickingStore panics once in each method.
type panickingStore struct {
	*middleware.DedupMemory
	seen, mark sync.Once
}

func (s *panickingStore) Seen(ctx context.Context, key string) (bool, error) {
	s.seen.Do(func() { panic("seen") })
	return s.DedupMemory.Seen(ctx, key)
}

func (s *panickingStore) Mark(ctx context.Context, key string, ttl time.Duration) error {
	s.mark.Do(func() { panic("mark") })
	return s.DedupMemory.Mark(ctx, key, ttl)
}

// A panic of the store is an error of the store: it postpones the batch, or leaves a message without a mark.
func TestDedupBatchWithAStoreThatPanics(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		store := &panickingStore{DedupMemory: must(middleware.NewDedupMemory(10))}
		policy := redeliver.Policy{MaxRetries: redeliver.NoRetries, Backoff: redeliver.Fixed(minute)}
		s := openDedupBatches(b, policy, redeliver.BatchConfig{Size: 1}, middleware.DedupConfigOf[redeliver.Message]{Store: store}, nil)
		publish(b, "a")
		b.Wait()
		if got := s.Outcome("a"); !got.Committed || len(got.Waits) != 1 || !got.Waits[0].Postponed || len(s.DeadLetters()) != 0 {
			t.Error(got)
		}
		publish(b, "a")
		b.Wait()
		publish(b, "a")
		b.Wait()
		s.wantSkipped(t, "a")
	})
}

func TestDedupBatchRefusesBadConfigurations(t *testing.T) {
	if _, err := middleware.DedupBatch(middleware.DedupConfigOf[redeliver.Message]{TTL: -1}); !errors.Is(err, redeliver.ErrConfig) {
		t.Error(err)
	}
}

// usersDedup is a BatchDedup that a service writes for itself: it acks the messages whose body it has seen.
type usersDedup struct {
	mu      sync.Mutex
	seen    map[string]bool
	handled []string
}

// Begin implements [redeliver.BatchDedup].
func (d *usersDedup) Begin(_ context.Context, all []redeliver.BatchedMessage) (rest []redeliver.BatchedMessage, end func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, m := range all {
		msg := m.Message()
		if d.seen[string(msg.Body)] {
			m.Answer(nil)
			continue
		}
		m.OnEnd(func(handled bool) {
			d.mu.Lock()
			defer d.mu.Unlock()
			if handled {
				d.handled = append(d.handled, msg.State.ID)
				d.seen[string(msg.Body)] = true
			}
		})
		rest = append(rest, m)
	}
	return rest, nil, nil
}

// A dedup can be written without redeliver's own: its interface has all that it needs.
func TestBatchesAskADedupOfTheUsersOwn(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		d := &usersDedup{seen: map[string]bool{"b": true}}
		index(b, redeliver.Policy{Backoff: redeliver.Fixed(minute)}, redeliver.BatchConfig{Size: 3, Dedup: d}, func(_ context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			return nil
		})
		publish(b, "a", "b", "c")
		b.Wait()
		l.want(t, "0s a c")
		slices.Sort(d.handled)
		if want := []string{"a", "c"}; !slices.Equal(d.handled, want) {
			t.Errorf("handled %q, want %q", d.handled, want)
		}
	})
}
