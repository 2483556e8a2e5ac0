package sqs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// consume calls handler for a queue's messages until stop is called.
func (b *bubble) consume(queue string, cfg Config, handler func(ctx context.Context, st redeliver.State, m types.Message) error) (stop func()) {
	cfg.Sink = b
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- Consume(ctx, b.config(cfg), []string{queue}, func(ctx context.Context, m types.Message) error {
			st, ok := redeliver.FromContext(ctx)
			if !ok || MessageFromContext(ctx) == nil || m.ReceiptHandle != nil {
				b.Errorf("%s: its context has the state %+v, %v; its receipt is %v", aws.ToString(m.MessageId), st, MessageFromContext(ctx), m.ReceiptHandle)
			}
			if time.Now().Before(st.Due) {
				b.Errorf("%s is early by %s", st.ID, time.Until(st.Due))
			}
			b.mu.Lock()
			b.runs = append(b.runs, run{st.ID, st.Attempt(), time.Since(b.began), "native"})
			b.mu.Unlock()
			return handler(ctx, st, m)
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// Consume handles every kind of answer of a handler. Each attempt gets the message as it came.
func TestConsume(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create(queue)
				policy := steps(3, time.Minute)
				policy.Timeout = 10 * time.Second
				stop := b.consume(queue, Config{Policy: policy}, func(ctx context.Context, st redeliver.State, m types.Message) error {
					if aws.ToString(m.Body) != "body of "+st.ID || aws.ToString(m.MessageAttributes["trace"].StringValue) != "t" || len(m.MessageAttributes) != 2 {
						b.Errorf("attempt %d of %s gets %q, %v", st.Attempt(), st.ID, aws.ToString(m.Body), m.MessageAttributes)
					}
					switch st.ID {
					case "succeeds":
						return nil
					case "recovers":
						if st.Attempt() == 3 {
							return nil
						}
					case "permanent":
						return redeliver.Permanent(errHandler)
					case "panics":
						panic("ours")
					case "hangs":
						<-ctx.Done()
						return ctx.Err()
					}
					return errHandler
				})
				want := map[string]struct {
					attempts int
					reason   redeliver.Reason
				}{
					"succeeds": {attempts: 1}, "recovers": {attempts: 3},
					"fails": {4, redeliver.ReasonExhausted}, "permanent": {1, redeliver.ReasonPermanent},
					"panics": {4, redeliver.ReasonPanic}, "hangs": {4, redeliver.ReasonTimeout},
				}
				for id := range want {
					group := map[bool]string{true: id}[api.IsFIFO(queue)]
					b.put(queue, id, "body of "+id, group, map[string]sqsfake.Attribute{"trace": sqsfake.String("t")})
				}
				b.advance(10 * time.Minute)
				stop()
				dead := map[string]redeliver.State{}
				for _, m := range b.Messages(api.SiblingName(queue, "-dlq")) {
					st := stateOf(t, m, queue)
					dead[st.ID] = st
				}
				for id, want := range want {
					if runs := b.ran(id); len(runs) != want.attempts {
						b.Errorf("%s ran %v, want %d attempts", id, runs, want.attempts)
					}
					if st := dead[id]; st.Reason != want.reason || want.reason != "" && st.Attempts != want.attempts {
						b.Errorf("%s is in the DLQ with %+v, want %+v", id, st, want)
					}
				}
				if n := len(b.Messages(queue)); n != 0 {
					b.Errorf("%d are left", n)
				}
			})
		})
	}
}

// An immediate retry stays in the process, and counts as an attempt.
func TestConsumeRetriesInPlace(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		policy := steps(2, time.Minute)
		policy.Immediate = 1
		stop := b.consume("orders", Config{Policy: policy}, func(context.Context, redeliver.State, types.Message) error { return errHandler })
		b.put("orders", "a", "v", "", nil)
		b.advance(5 * time.Minute)
		stop()
		b.wantRuns("a", 0, 0, time.Minute)
		if n := b.Count("SendMessageBatch"); n != 2 {
			b.Errorf("%d writes, want one to wait and one to the DLQ", n)
		}
	})
}

// Messages of one group run one after another, and wait for one that fails.
func TestConsumeKeepsGroupOrder(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders.fifo")
		stop := b.consume("orders.fifo", Config{Policy: steps(3, time.Minute)}, func(_ context.Context, st redeliver.State, _ types.Message) error {
			<-time.After(time.Second)
			if st.ID == "g3" && st.Attempt() < 3 {
				return errHandler
			}
			return nil
		})
		for i := range 25 {
			b.put("orders.fifo", fmt.Sprint("g", i), "v", "g", nil)
		}
		b.advance(5 * time.Minute)
		stop()
		want := "g0#1 g1#1 g2#1 g3#1 g3#2 g3#3"
		for i := 4; i < 25; i++ {
			want += fmt.Sprintf(" g%d#1", i)
		}
		if got := strings.Join(ids(b.ran("")), " "); got != want {
			b.Errorf("ran %s", got)
		}
	})
}

// If a handler does not finish within the drain timeout, its attempt does not count, and its message comes back. If it
// finishes, the message is deleted.
func TestConsumeWaitsForHandlersUntilDrainTimeout(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		stop := b.consume("orders", Config{DrainTimeout: 5 * time.Second, WaitTime: time.Second}, func(ctx context.Context, st redeliver.State, _ types.Message) error {
			select {
			case <-ctx.Done():
				if cause := context.Cause(ctx); !errors.Is(cause, engine.ErrDrained) {
					b.Errorf("the context of %s ended with %v", st.ID, cause)
				}
				return ctx.Err()
			case <-time.After(map[string]time.Duration{"quick": 3 * time.Second, "slow": time.Hour}[st.ID]):
				return nil
			}
		})
		b.put("orders", "quick", "v", "", nil)
		b.put("orders", "slow", "v", "", nil)
		b.advance(time.Second)
		begun := time.Now()
		stop()
		if took := time.Since(begun); took > 7*time.Second {
			b.Errorf("it took %s to end", took)
		}
		b.advance(time.Minute)
		left := b.Messages("orders")
		if len(left) != 1 || len(eventsOf[redeliver.Committed](b)) != 1 {
			b.Errorf("%d messages remain, %d were committed; want one of each", len(left), len(eventsOf[redeliver.Committed](b)))
		}
		stop = b.consume("orders", Config{}, func(context.Context, redeliver.State, types.Message) error { return nil })
		b.advance(time.Minute)
		stop()
		if runs := b.ran("slow"); len(runs) != 2 || runs[1].attempt != 1 || len(b.Messages("orders")) != 0 {
			b.Errorf("slow ran %v", runs)
		}
	})
}

func TestConsumeRefusesInvalidCalls(t *testing.T) {
	h := func(context.Context, types.Message) error { return nil }
	good := newFake().config(Config{})
	with := func(change func(*Config)) Config {
		c := good
		change(&c)
		return c
	}
	for name, c := range map[string]struct {
		cfg    Config
		queues []string
		h      func(context.Context, types.Message) error
		say    []string
	}{
		"nothing":   {good, nil, nil, []string{"queues", "handler"}},
		"a name":    {good, []string{"no name"}, h, []string{"queues[0]"}},
		"twice":     {good, []string{"orders", "http://sqs.test/1/orders"}, h, []string{"queues[1]", "twice"}},
		"Watermill": {with(func(c *Config) { c.Marshaler, c.NackDelay = DefaultMarshaler{}, time.Second }), []string{"orders"}, h, []string{"Marshaler", "NackDelay"}},
		"a policy":  {with(func(c *Config) { c.Policy.MaxRetries = -7 }), []string{"orders"}, h, []string{"Policy.MaxRetries"}},
		"no queue":  {with(func(c *Config) { c.NoProvisioning = true }), []string{"orders"}, h, []string{"queue orders", "queue orders-dlq"}},
	} {
		err := Consume(t.Context(), c.cfg, c.queues, c.h)
		for _, word := range c.say {
			if err == nil || !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: the error is %v, want %s in it", name, err, word)
			}
		}
	}
}

// A start that fails reports the problems of all queues in one redeliver.ConfigError.
func TestConsumeReportsTheProblemsOfAllQueues(t *testing.T) {
	cfg := newFake().config(Config{NoProvisioning: true})
	err := Consume(t.Context(), cfg, []string{"orders", "invoices"}, func(context.Context, types.Message) error { return nil })
	if refused, ok := errors.AsType[*redeliver.ConfigError](err); !ok || len(refused.Problems) != 6 {
		t.Errorf("the error is %v, want the problems of six queues", err)
	}
}

// With a misspelled name, the queue that was meant would run the default policy. A later Subscribe may create the queue,
// unless nothing may be created.
func TestAPolicyOfAQueueThatDoesNotExistIsRefused(t *testing.T) {
	policies := map[string]redeliver.Policy{"orders": steps(1, time.Second), "mails": steps(2, time.Second), "ordesr": steps(3, time.Second)}
	calls := map[string]func(*bubble) error{
		"Consume": func(b *bubble) error {
			return Consume(b.Context(), b.config(Config{Queues: policies}), []string{"orders"}, func(context.Context, types.Message) error { return nil })
		},
		"Subscribe without provisioning": func(b *bubble) error {
			_, err := b.client(b.T, Config{Queues: policies, NoProvisioning: true}).Subscriber().Subscribe(b.Context(), "orders")
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create("orders")
				b.Create("mails")
				err := call(b)
				if !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), `Queues["ordesr"]`) || strings.Contains(err.Error(), `Queues["mails"]`) {
					t.Error(err)
				}
			})
		})
	}
}

// The calls of Subscribe of one client come one after the other, and each may create its queue.
func TestAPolicyOfAQueueThatNothingReadsIsReported(t *testing.T) {
	inBubble(t, func(b *bubble) {
		policies := map[string]redeliver.Policy{"orders": steps(1, time.Second), "mails": steps(2, time.Second), "ordesr": steps(3, time.Second)}
		c := b.client(b.T, Config{Queues: policies, Sink: b})
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s := c.Subscriber()
		for _, queue := range []string{"orders", "mails"} { // neither exists
			if _, err := s.Subscribe(ctx, queue); err != nil {
				b.Fatal(err)
			}
		}
		<-time.After(time.Hour)
		b.mu.Lock()
		var reported []error
		for _, e := range b.events {
			if e, ok := e.(redeliver.SubscriptionChanged); ok && e.Change == redeliver.ChangePolicyUnused {
				reported = append(reported, e.Err)
			}
		}
		b.mu.Unlock()
		if len(reported) != 1 || !strings.Contains(reported[0].Error(), `Queues["ordesr"]`) || strings.Contains(reported[0].Error(), `Queues["mails"]`) {
			b.Errorf("reported %v", reported)
		}
		if err := c.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
}
