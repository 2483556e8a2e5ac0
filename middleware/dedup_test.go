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
	"github.com/redeliver/redeliver/internal/engine/enginetest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// handled runs a handler behind Dedup and records the ids that it gets.
type handled struct {
	mu  sync.Mutex
	ids []string
}

func (h *handled) handle(answer func(*message.Message) error) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		h.mu.Lock()
		h.ids = append(h.ids, msg.UUID)
		h.mu.Unlock()
		if answer == nil {
			return nil
		}
		return answer(msg)
	}
}

func (h *handled) want(t *testing.T, want ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.ids, want) {
		t.Errorf("handled %q, want %q", h.ids, want)
	}
}

func failsFirst(msg *message.Message) error {
	if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() == 1 {
		return errHandler
	}
	return nil
}

// changes returns the changes of the subscription.
func changes(events []redeliver.Event) (all []redeliver.Change) {
	for _, e := range only[redeliver.SubscriptionChanged](events) {
		all = append(all, e.Change)
	}
	return all
}

func TestDedupSkipsHandledMessages(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped []string
		dedup := must(middleware.Dedup(middleware.DedupConfig{TTL: hour, Skipped: func(m *message.Message) { skipped = append(skipped, m.UUID) }}))
		orders := b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), dedup)
		for range 3 {
			publish(b, "a")
			publish(b, "b")
		}
		b.Wait()
		h.want(t, "a", "b")
		if !slices.Equal(skipped, []string{"a", "b", "a", "b"}) || len(orders.DeadLetters()) != 0 {
			t.Errorf("skipped %q", skipped)
		}
		<-time.After(hour)
		publish(b, "a")
		b.Wait()
		h.want(t, "a", "b", "a") // its time was over
	})
}

// A message is marked only after a success, so a failed one is retried, and a copy of a dead letter runs.
func TestDedupMarksOnlySuccesses(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		orders := b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(func(msg *message.Message) error {
			switch st, _ := redeliver.FromContext(msg.Context()); {
			case msg.UUID == "poison":
				return redeliver.Permanent(errHandler)
			case msg.UUID == "panic" && st.Attempt() == 1:
				panic("boo")
			case msg.UUID == "nacks" && st.Attempt() == 1:
				msg.Nack() // which counts as a failure although no error is returned
				return nil
			default:
				return failsFirst(msg)
			}
		}), must(middleware.Dedup(middleware.DedupConfig{})))
		publish(b, "a", "poison", "panic")
		b.Wait()
		publish(b, "a", "poison", "panic")
		b.Wait()
		h.want(t, "a", "poison", "panic", "a", "panic", "poison")
		publish(b, "nacks")
		b.Wait()
		h.want(t, "a", "poison", "panic", "a", "panic", "poison", "nacks", "nacks")
		if n := len(orders.DeadLetters()); n != 2 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// Copies at the same time run one after another: the second is a duplicate when the first succeeds, and runs when the first fails or its
// time is over.
func TestDedupOfCopiesAtTheSameTime(t *testing.T) {
	for how, want := range map[string][]string{"succeeds": {"a"}, "fails": {"a", "a"}, "hangs": {"a", "a"}} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			var h handled
			var busy, runs atomic.Int32
			policy := redeliver.Policy{Timeout: minute, MaxRetries: redeliver.NoRetries}
			b.Open(redelivertest.Config{Group: "search", Policy: policy}).Handle("documents", h.handle(func(*message.Message) error {
				defer busy.Add(-1)
				first := runs.Add(1) == 1
				if busy.Add(1) > 1 && how != "hangs" {
					t.Error("two at once")
				}
				if first && how == "hangs" {
					<-time.After(hour)
					return errHandler
				}
				<-time.After(second)
				if first && how == "fails" {
					return errHandler
				}
				return nil
			}), must(middleware.Dedup(middleware.DedupConfig{})))
			publish(b, "a")
			<-time.After(ms)
			publish(b, "a")
			b.Wait()
			<-time.After(2 * hour)
			if h.want(t, want...); t.Failed() {
				t.Fatal(how)
			}
		})
	}
}

// A copy waits for the handler of the first one, but not for middlewares outside Dedup.
func TestDedupWaitsForTheHandlerOfTheFirstCopy(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		begun := time.Now()
		var skipped []time.Duration
		slow := func(next message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				produced, err := next(msg)
				<-time.After(hour / 2)
				return produced, err
			}
		}
		dedup := must(middleware.Dedup(middleware.DedupConfig{Skipped: func(*message.Message) { skipped = append(skipped, time.Since(begun)) }}))
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Timeout: hour}}).
			Handle("documents", h.handle(func(*message.Message) error { <-time.After(second); return nil }), slow, dedup)
		publish(b, "a", "a")
		b.Wait()
		h.want(t, "a")
		if !slices.Equal(skipped, []time.Duration{second}) {
			t.Errorf("the copy was skipped after %v, want 1s", skipped)
		}
	})
}

// A mark counts for one group and one origin.
func TestDedupIsPerGroupAndOrigin(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		store := must(middleware.NewDedupMemory(0))
		for _, group := range []string{"search", "mail"} {
			for _, topic := range []string{"documents", "letters"} {
				b.Open(redelivertest.Config{Group: group}).Handle(topic, h.handle(nil), must(middleware.Dedup(middleware.DedupConfig{Store: store})))
			}
		}
		for _, topic := range []string{"documents", "letters", "documents"} {
			b.Publish(topic, message.NewMessage("a", nil))
			b.Wait()
		}
		h.want(t, "a", "a", "a", "a")
		if store.Len() != 4 {
			t.Errorf("%d marks", store.Len())
		}
	})
}

// Messages with equal content are not duplicates, unless Derived is set.
func TestDedupRefusesDerivedIDs(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		reported := &events{}
		q := enginetest.New(redeliver.Policy{})
		q.ID, q.Sub.Sink = "derived:cafe", reported // like the id of an adapter for a message without one
		q.Start(t)
		runs := 0
		handler := middleware.Retry()(must(middleware.Dedup(middleware.DedupConfig{Derived: allowed}))(func(*message.Message) ([]*message.Message, error) {
			runs++
			return nil, nil
		}))
		for range 3 {
			msg := q.Deliver()
			if _, err := handler(msg); err != nil {
				t.Fatal(err)
			}
			msg.Ack()
			q.WaitSettled(1)
		}
		wantRuns, wantChanges := 3, []redeliver.Change{redeliver.ChangeDedupRefused}
		if allowed {
			wantRuns, wantChanges = 1, nil
		}
		if got := changes(reported.list()); runs != wantRuns || !slices.Equal(got, wantChanges) {
			t.Errorf("Derived %t: %d runs and %q reported, want %d and %q", allowed, runs, got, wantRuns, wantChanges)
		}
	}
}

func TestDedupByTheUsersID(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), must(middleware.Dedup(middleware.DedupConfig{
			ID: func(m *message.Message) string { return strings.Trim(string(m.Payload), "-") },
		})))
		for _, payload := range []string{"order 1", "order 1-", "-", "-"} {
			b.Publish("documents", message.NewMessage(payload, []byte(payload)))
			b.Wait()
		}
		h.want(t, "order 1", "-", "-") // without an id each message is handled
	})
}

// A message is not marked when a Router publishes produced messages after the middlewares, because that may fail. With PublishInside it is
// marked.
func TestDedupWithProducedMessages(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := read(t, b, redelivertest.Config{})
		runs := 0
		produce := func(msg *message.Message) ([]*message.Message, error) { runs++; return invoice(msg) }
		for _, inside := range []bool{false, true} {
			chain, want := produce, 2
			if inside {
				chain, want = middleware.PublishInside(&outbox{}, "invoices")(produce), 1
			}
			runs = 0
			h := middleware.Retry()(must(middleware.Dedup(middleware.DedupConfig{}))(chain))
			for range 2 {
				msg := orders.deliver("1")
				if _, err := h(msg); err != nil {
					t.Error(err)
				}
				msg.Ack()
			}
			if runs != want {
				t.Errorf("inside %t: %d runs, want %d", inside, runs, want)
			}
		}
		reported := only[redeliver.SubscriptionChanged](orders.reported.list())
		if len(reported) != 1 || !errors.Is(reported[0].Err, middleware.ErrProduced) {
			t.Errorf("reported %+v", reported)
		}
	})
}

// store is a DedupStore that can fail.
type store struct {
	*middleware.DedupMemory
	mu         sync.Mutex
	seen, mark error
}

func (s *store) set(seen, mark error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.mark = seen, mark
}

func (s *store) Seen(ctx context.Context, key string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok || s.seen != nil {
		return false, s.seen
	}
	return s.DedupMemory.Seen(ctx, key)
}

func (s *store) Mark(ctx context.Context, key string, ttl time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := ctx.Deadline(); !ok || s.mark != nil {
		return s.mark
	}
	return s.DedupMemory.Mark(ctx, key, ttl)
}

// No attempt is counted while Seen fails. When Mark fails, the message is acked.
func TestDedupStoreThatFails(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		s := &store{DedupMemory: must(middleware.NewDedupMemory(10)), seen: errBroker}
		orders := b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(minute)}}).
			Handle("documents", h.handle(nil), must(middleware.Dedup(middleware.DedupConfig{Store: s})))
		publish(b, "a")
		<-time.After(5*minute + second)
		s.set(nil, errBroker)
		got := orders.Outcome("a")
		if !got.Committed || got.State.Attempts != 0 || len(got.Waits) != 6 || !got.Waits[5].Postponed || !errors.Is(got.Attempts[0].Err, errBroker) {
			t.Error(got)
		}
		publish(b, "a") // its mark was refused
		b.Wait()
		s.set(nil, nil)
		publish(b, "a", "a")
		b.Wait()
		h.want(t, "a", "a", "a")
		if got := changes(orders.Events()); !slices.Equal(got, []redeliver.Change{
			redeliver.ChangeDedupStoreLost, redeliver.ChangeDedupStoreRecovered, redeliver.ChangeDedupMarksLost, redeliver.ChangeDedupMarksRecovered,
		}) {
			t.Errorf("reported %q", got)
		}
	})
}

// timeoutStore records the timeouts of its calls.
type timeoutStore struct{ asked chan time.Duration }

func (p timeoutStore) Seen(ctx context.Context, _ string) (bool, error) {
	deadline, _ := ctx.Deadline()
	p.asked <- time.Until(deadline)
	return false, nil
}

func (p timeoutStore) Mark(ctx context.Context, key string, _ time.Duration) error {
	_, err := p.Seen(ctx, key)
	return err
}

func TestDedupStoreTimeout(t *testing.T) {
	for set, want := range map[time.Duration]time.Duration{0: 5 * second, 2 * second: 2 * second} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			p := timeoutStore{make(chan time.Duration, 2)}
			var h handled
			b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), must(middleware.Dedup(middleware.DedupConfig{Store: p, StoreTimeout: set})))
			publish(b, "a")
			b.Wait()
			if seen, mark := <-p.asked, <-p.asked; seen != want || mark != want {
				t.Errorf("with StoreTimeout %s the store has %s for Seen and %s for Mark, want %s", set, seen, mark, want)
			}
		})
	}
}

// A duplicate is not in the batch, and a message that failed there is not marked.
func TestDedupAroundBatch(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Backoff: redeliver.Fixed(minute)}}).Handle("documents",
			must(middleware.Batch(redeliver.BatchConfig{Size: 3}, func(_ context.Context, mb *middleware.MessageBatch) error {
				l.add(mb)
				for _, m := range mb.Messages {
					if m.Record.UUID == "b" && b.Elapsed() == 0 {
						m.Retry()
					}
				}
				return nil
			})), must(middleware.Dedup(middleware.DedupConfig{})))
		publish(b, "a", "b", "c")
		<-time.After(second)
		publish(b, "a", "b", "c", "d", "e") // b was not handled, so this copy runs, and the retry does not
		b.Wait()
		l.want(t, "0s a b c", "1s b d e")
	})
}

func TestDedupMemoryDropsTheOldestMark(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, _ *redelivertest.Broker) {
		ctx := t.Context()
		s := must(middleware.NewDedupMemory(3))
		known := func() (all string) {
			for i := range 9 {
				if ok, err := s.Seen(ctx, fmt.Sprint(i)); ok && err == nil {
					all += fmt.Sprint(i)
				}
			}
			return all
		}
		mark := func(ids string, ttl time.Duration) {
			for id := range strings.SplitSeq(ids, "") {
				if err := s.Mark(ctx, id, ttl); err != nil {
					t.Error(err)
				}
			}
		}
		mark("1234", hour)
		if known() != "234" {
			t.Errorf("the full store has %s", known())
		}
		mark("25", minute) // again is now the latest mark
		if known() != "245" {
			t.Errorf("it has %s", known())
		}
		<-time.After(minute)
		if known() != "4" {
			t.Errorf("after a minute the store has %s", known())
		}
		<-time.After(hour)
		mark("6", hour)
		if known() != "6" || s.Len() != 1 {
			t.Errorf("after an hour the store has %s, and Len returns %d", known(), s.Len())
		}
	})
}

func TestDedupRefusesBadConfigurations(t *testing.T) {
	err := middleware.DedupConfig{TTL: -1, StoreTimeout: -1}.Validate()
	if c, ok := errors.AsType[*redeliver.ConfigError](err); !ok || len(c.Problems) != 2 {
		t.Error(err)
	}
	if _, err := middleware.Dedup(middleware.DedupConfig{TTL: -1}); !errors.Is(err, redeliver.ErrConfig) {
		t.Error(err)
	}
	if _, err := middleware.NewDedupMemory(-1); !errors.Is(err, redeliver.ErrConfig) {
		t.Error(err)
	}
}
