package middleware_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine/enginetest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// batchLog records the batches of a function, and when they came.
type batchLog struct {
	b      *redelivertest.Broker
	sorted bool // messages and batches may come in any order
	mu     sync.Mutex
	in     []string
}

// add adds a line: "5s a b" for a batch of a and b five seconds after the start.
func (l *batchLog) add(b *middleware.MessageBatch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ids []string
	for _, m := range b.Messages {
		ids = append(ids, m.Record.UUID)
	}
	if l.sorted {
		slices.Sort(ids)
	}
	l.in = append(l.in, l.b.Elapsed().String()+" "+strings.Join(ids, " "))
}

func (l *batchLog) want(t *testing.T, want ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sorted {
		slices.Sort(l.in)
		slices.Sort(want)
	}
	if !slices.Equal(l.in, want) {
		t.Errorf("batches %q, want %q", l.in, want)
	}
}

// publish publishes messages, one after another, each with its id as its payload.
func publish(b *redelivertest.Broker, ids ...string) {
	for _, id := range ids {
		b.Publish("documents", message.NewMessage(id, []byte(id)))
		synctest.Wait() // it has reached the handler, so the messages come in order
	}
}

func index(b *redelivertest.Broker, p redeliver.Policy, c redeliver.BatchConfig, fn middleware.BatchHandler) *redelivertest.Subscription {
	return b.Open(redelivertest.Config{Group: "search", Policy: p}).Handle("documents", must(middleware.Batch(c, fn)))
}

func TestBatchBySize(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		index(b, redeliver.Policy{}, redeliver.BatchConfig{Size: 3}, func(_ context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			if mb.Origin != "documents" || mb.Group != "search" {
				t.Errorf("a batch of %s for %s", mb.Origin, mb.Group)
			}
			return nil
		})
		publish(b, "a", "b", "c", "d", "e", "f", "g")
		b.Wait()
		l.want(t, "0s a b c", "0s d e f", "5s g")
	})
}

// The wait counts from the first message, and no batch is empty.
func TestBatchByTimeout(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		index(b, redeliver.Policy{}, redeliver.BatchConfig{}, func(_ context.Context, mb *middleware.MessageBatch) error { l.add(mb); return nil })
		<-time.After(hour)
		publish(b, "a")
		<-time.After(4 * second)
		publish(b, "b")
		<-time.After(hour)
		publish(b, "c")
		b.Wait()
		l.want(t, "1h0m5s a b", "2h0m9s c")
	})
}

func TestBatchDefaultSize(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		index(b, redeliver.Policy{}, redeliver.BatchConfig{}, func(_ context.Context, mb *middleware.MessageBatch) error { l.add(mb); return nil })
		publish(b, strings.Fields("1 2 3 4 5 6 7 8 9 10 11")...)
		b.Wait()
		l.want(t, "0s 1 2 3 4 5 6 7 8 9 10", "5s 11")
	})
}

// No batch exceeds Bytes, except a single message that does.
func TestBatchByBytes(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		index(b, redeliver.Policy{}, redeliver.BatchConfig{Bytes: 6}, func(_ context.Context, mb *middleware.MessageBatch) error { l.add(mb); return nil })
		publish(b, "aa", "bbbb", "cccc", "ddd", "eeeeeeeee", "f")
		b.Wait()
		l.want(t, "0s aa bbbb", "0s cccc", "0s ddd", "0s eeeeeeeee", "5s f")
	})
}

// Headers count: a message of many headers and no body once took no room in a batch.
func TestBatchByBytesCountsHeaders(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		index(b, redeliver.Policy{}, redeliver.BatchConfig{Bytes: 20_000}, func(_ context.Context, mb *middleware.MessageBatch) error { l.add(mb); return nil })
		for _, id := range []string{"a", "b", "c"} {
			msg := message.NewMessage(id, []byte(id))
			for n := range 100 {
				msg.Metadata.Set(fmt.Sprint("header ", n), "")
			}
			b.Publish("documents", msg)
			synctest.Wait() // it has reached the handler
		}
		b.Wait()
		l.want(t, "0s a b", "5s c")
	})
}

// The messages that come while a batch runs are the next batch.
func TestBatchNoWait(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		index(b, redeliver.Policy{}, redeliver.BatchConfig{Size: 3, Timeout: redeliver.NoWait}, func(_ context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			<-time.After(second)
			return nil
		})
		publish(b, "a", "b", "c", "d", "e")
		b.Wait()
		l.want(t, "0s a", "1s b c d", "2s e")
	})
}

// A batch that is due while all functions run also gets the messages that come meanwhile.
func TestBatchConcurrency(t *testing.T) {
	for concurrency, want := range map[int][]string{
		0: {"0s a b", "10s c d", "20s e f", "30s g"},
		2: {"0s a b", "0s c d", "10s e f", "10s g"},
		4: {"0s a b", "0s c d", "0s e f", "5s g"},
	} {
		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
			l := &batchLog{b: b, sorted: true}
			index(b, redeliver.Policy{}, redeliver.BatchConfig{Size: 2, Concurrency: concurrency}, func(_ context.Context, mb *middleware.MessageBatch) error {
				l.add(mb)
				<-time.After(10 * second)
				return nil
			})
			publish(b, "a", "b", "c", "d", "e", "f", "g")
			b.Wait()
			l.want(t, want...)
		})
	}
}

// Every message has its own attempts, delay and end, whatever else is in its batch.
func TestBatchKeepsEachMessagesState(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		orders := index(b, redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Steps(10*second, 20*second)}, redeliver.BatchConfig{Size: 4},
			func(_ context.Context, mb *middleware.MessageBatch) error {
				l.add(mb)
				for _, m := range mb.Messages {
					switch {
					case m.Record.UUID == "poison":
						m.Reject("no such schema")
					case m.Record.UUID == "busy" && m.State().Attempt() == 1:
						m.RetryAfter(minute)
					case m.Record.UUID == "down":
						m.Answer(fmt.Errorf("attempt %d: %w", m.State().Attempt(), errHandler))
					}
				}
				return nil
			})
		publish(b, "fine", "poison", "busy", "down")
		<-time.After(9 * second)
		publish(b, "later") // the retry of down is in a batch of retries
		down := orders.Outcome("down")
		l.want(t, "0s fine poison busy down", "14s later", "15s down", "35s down", "1m5s busy") // the last attempt is alone and does not wait
		if down.State.Reason != redeliver.ReasonExhausted || down.State.Attempts != 3 || down.State.Error != "attempt 3: the bank is closed" {
			t.Error(down)
		}
		if got := orders.Outcome("poison"); got.State.Reason != redeliver.ReasonRejected || got.State.Error != "rejected: no such schema" || len(got.Attempts) != 1 {
			t.Error(got)
		}
		if got := orders.Outcome("busy"); !got.Committed || len(got.Attempts) != 2 || got.Waits[0].Delay != minute {
			t.Error(got)
		}
		for _, id := range []string{"fine", "later"} {
			if got := orders.Outcome(id); !got.Committed || len(got.Attempts) != 1 {
				t.Error(got)
			}
		}
	})
}

// An answer takes effect while the batch still runs.
func TestBatchAnswersTakeEffectAtOnce(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := index(b, redeliver.Policy{Backoff: redeliver.Fixed(minute)}, redeliver.BatchConfig{Size: 3}, func(_ context.Context, mb *middleware.MessageBatch) error {
			if mb.Messages[0].Record.UUID != "a" {
				return nil
			}
			mb.Messages[0].Ack()
			mb.Messages[1].Retry()
			<-time.After(5 * second)
			return nil
		})
		publish(b, "a", "b", "c")
		b.Wait()
		for id, took := range map[string]time.Duration{"a": 0, "b": 65 * second, "c": 5 * second} { // b waits for its batch
			if got := orders.Outcome(id); got.Took != took || !got.Committed {
				t.Error(got)
			}
		}
	})
}

// An immediate retry is in a smaller batch, here alone.
func TestBatchWithImmediateRetries(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		l := &batchLog{b: b}
		orders := index(b, redeliver.Policy{Immediate: 1, MaxRetries: 2}, redeliver.BatchConfig{Size: 2}, func(_ context.Context, mb *middleware.MessageBatch) error {
			l.add(mb)
			for _, m := range mb.Messages {
				if m.Record.UUID == "b" && m.State().Attempt() == 1 {
					m.Retry()
				}
			}
			return nil
		})
		publish(b, "a", "b")
		if got := orders.Outcome("b"); !got.Committed || len(got.Attempts) != 2 || len(got.Waits) != 0 {
			t.Error(got)
		}
		l.want(t, "0s a b", "0s b")
	})
}

// Batch works without Retry and without a subscriber of redeliver.
func TestBatchOfOtherMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		h := must(middleware.Batch(redeliver.BatchConfig{Size: 3}, func(ctx context.Context, mb *middleware.MessageBatch) error {
			if _, ok := ctx.Deadline(); ok || mb.Origin != "" || mb.Messages[0].State().ID != "" {
				t.Error("there is neither a policy nor a subscription")
			}
			mb.Messages[1].RetryAfter(hour)
			return errHandler
		}))
		var got []<-chan answer
		for i := range 3 {
			got = append(got, run(func(msg *message.Message) ([]*message.Message, error) { return nil, h(msg) }, message.NewMessage(fmt.Sprint(i), nil)))
		}
		first, second, third := <-got[0], <-got[1], <-got[2]
		answers := []error{first.err, second.err, third.err}
		slices.SortFunc(answers, func(x, y error) int { return strings.Compare(x.Error(), y.Error()) })
		after, ok := errors.AsType[*redeliver.RetryAfterError](answers[2])
		if answers[0] != errHandler || answers[1] != errHandler || !ok || after.After != hour || time.Since(start) != 0 { //nolint:errorlint // the identical error
			t.Errorf("%v", answers)
		}
	})
}

func TestBatchRefusesBadConfigurations(t *testing.T) {
	refused := func(c redeliver.BatchConfig, fn middleware.BatchHandler) error {
		_, err := middleware.Batch(c, fn)
		return err
	}
	none := func(context.Context, *middleware.MessageBatch) error { return nil }
	bad := redeliver.BatchConfig{Size: -1, Bytes: -2, Timeout: -3, Concurrency: -4}
	endless := redeliver.BatchConfig{Timeout: math.MaxInt64} // its end would be before its beginning
	for err, problems := range map[error]int{refused(bad, nil): 5, bad.Validate(): 4, refused(redeliver.BatchConfig{}, nil): 1, refused(endless, none): 1} {
		if c, ok := errors.AsType[*redeliver.ConfigError](err); !ok || len(c.Problems) != problems {
			t.Errorf("%v, want %d problems", err, problems)
		}
	}
	if err := refused(redeliver.BatchConfig{Timeout: redeliver.NoWait}, none); err != nil {
		t.Error(err)
	}
}

// A Size above MaxInFlight is refused: the reason is reported to the sink, and no message runs.
func TestABatchSizeAboveMaxInFlightIsRefused(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var reported []redeliver.SubscriptionChanged
		var mu sync.Mutex
		open := func(most int) *redelivertest.Client {
			return b.Open(redelivertest.Config{Group: "search", MaxInFlight: most, Sink: redeliver.SinkFunc(func(e redeliver.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e, ok := e.(redeliver.SubscriptionChanged); ok {
					reported = append(reported, e)
				}
			})})
		}
		l := &batchLog{b: b, sorted: true}
		handler := func() message.NoPublishHandlerFunc {
			return must(middleware.Batch(redeliver.BatchConfig{Size: 3}, func(_ context.Context, mb *middleware.MessageBatch) error { l.add(mb); return nil }))
		}
		small := open(2)
		orders := small.Handle("documents", handler())
		publish(b, "a", "b", "c")
		<-time.After(hour) // far beyond Timeout and Policy.Timeout
		l.want(t)
		mu.Lock()
		if len(reported) != 1 || reported[0].Change != redeliver.ChangeBatchRefused || reported[0].Origin != "documents" || !errors.Is(reported[0].Err, redeliver.ErrConfig) {
			t.Errorf("reported %+v", reported)
		}
		mu.Unlock()
		if err := small.Close(t.Context()); err != nil {
			t.Error(err)
		}
		open(3).Handle("documents", handler())
		for _, id := range []string{"a", "b", "c"} {
			if got := orders.Outcome(id); !got.Committed || got.State.Attempts != 0 || len(got.Waits) != 0 {
				t.Error(got)
			}
		}
		l.want(t, "1h0m10s a b c") // the drain timeout of the first one
	})
}

// The function may keep, sort and cut the slice of messages.
func TestBatchSliceIsTheFunctionsOwn(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		orders := index(b, redeliver.Policy{}, redeliver.BatchConfig{Size: 3}, func(_ context.Context, mb *middleware.MessageBatch) error {
			slices.SortFunc(mb.Messages, func(x, y *middleware.BatchMessage) int { return bytes.Compare(y.Record.Payload, x.Record.Payload) })
			clear(mb.Messages[1:])
			mb.Messages = nil
			return nil
		})
		publish(b, "a", "b", "c")
		for _, id := range []string{"a", "b", "c"} {
			if got := orders.Outcome(id); !got.Committed {
				t.Error(got)
			}
		}
	})
}

// With an in-process Pub/Sub, the context of a message may have the values of its publisher's, a handler under Retry. A
// batch uses the message's own attempt, not the publisher's.
func TestBatchIgnoresTheAttemptOfThePublisher(t *testing.T) {
	type tracer struct{}
	for name, retry := range map[string]message.HandlerMiddleware{
		"alone": func(h message.HandlerFunc) message.HandlerFunc { return h },
		"retry": middleware.Retry(),
	} {
		t.Run(name, func(t *testing.T) {
			var of []string
			h := retry(func(msg *message.Message) ([]*message.Message, error) {
				msg.SetContext(context.WithValue(msg.Context(), tracer{}, "its own")) // a middleware in between
				return nil, must(middleware.Batch(redeliver.BatchConfig{Size: 1}, func(_ context.Context, mb *middleware.MessageBatch) error {
					of = append(of, mb.Origin+" "+mb.Group)
					return nil
				}))(msg)
			})
			outer, inner := enginetest.New(redeliver.Policy{}).Start(t), enginetest.New(redeliver.Policy{})
			inner.Sub.Origin = "prices"
			outside := outer.Deliver()
			_, err := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
				inner.Context = context.WithoutCancel(msg.Context())
				msg = inner.Start(t).Deliver()
				defer msg.Ack()
				return h(msg)
			})(outside)
			outside.Ack()
			if err != nil || !slices.Equal(of, []string{"prices billing"}) {
				t.Errorf("batches of %q, and %v", of, err)
			}
		})
	}
}
