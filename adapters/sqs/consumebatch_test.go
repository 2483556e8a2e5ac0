package sqs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/middleware"
)

// consumeBatch calls handler for a queue's messages until stop is called.
func (b *bubble) consumeBatch(queue string, cfg Config, bc redeliver.BatchConfig, handler func(context.Context, *Batch) error) (stop func()) {
	cfg.Sink = b
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- ConsumeBatch(ctx, b.config(cfg), []string{queue}, bc, handler) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	}
}

// Each message of a batch has its own answer, and every attempt gets it as it came. Messages of one FIFO group stay in order.
func TestConsumeBatch(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		t.Run(queue, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create(queue)
				largest := 0
				var order []string // of the group of two
				stop := b.consumeBatch(queue, Config{Policy: steps(2, time.Minute)}, redeliver.BatchConfig{Size: 10, Timeout: time.Second}, func(_ context.Context, batch *Batch) error {
					largest = max(largest, len(batch.Messages))
					for _, m := range batch.Messages {
						st, id := m.State(), m.State().ID
						if MessageFromContext(m.Context()) == nil || m.Record.ReceiptHandle != nil || aws.ToString(m.Record.Body) != "body of "+id || batch.Origin != queue || batch.Group != queue {
							b.Errorf("attempt %d of %s gets %+v in a batch of %s", st.Attempt(), id, m.Record, batch.Origin)
						}
						b.mu.Lock() // the sink has the message too, and gets an event at each answer
						b.runs = append(b.runs, run{id, st.Attempt(), time.Since(b.began), "batch"})
						b.mu.Unlock()
						switch {
						case id == "recovers" && st.Attempt() == 1:
							m.RetryAfter(time.Minute)
						case id == "fails":
							m.Answer(errHandler)
						case id == "rejected":
							m.Reject("no such card")
						case strings.HasPrefix(id, "two"):
							order = append(order, id)
							m.Ack()
						}
					}
					return nil
				})
				for _, id := range []string{"two-1", "two-2", "recovers", "fails", "rejected", "fine"} {
					group := ""
					if api.IsFIFO(queue) {
						group, _, _ = strings.Cut(id, "-")
					}
					b.put(queue, id, "body of "+id, group, nil)
				}
				b.advance(10 * time.Minute)
				stop()
				for id, n := range map[string]int{"two-1": 1, "two-2": 1, "recovers": 2, "fails": 3, "rejected": 1, "fine": 1} {
					if runs := b.ran(id); len(runs) != n || runs[n-1].attempt != n {
						b.Errorf("%s ran %v, want %d attempts", id, runs, n)
					}
				}
				if api.IsFIFO(queue) && !slices.IsSorted(order) || largest != 6 {
					b.Errorf("ran in the order %q, in batches of up to %d", order, largest)
				}
				dead := map[string]redeliver.Reason{}
				for _, m := range b.Messages(api.SiblingName(queue, "-dlq")) {
					st := stateOf(t, m, queue)
					dead[st.ID] = st.Reason
				}
				if got, want := fmt.Sprint(dead), fmt.Sprint(map[string]redeliver.Reason{"fails": redeliver.ReasonExhausted, "rejected": redeliver.ReasonRejected}); got != want {
					b.Errorf("in the DLQ is %s, want %s", got, want)
				}
				if n := len(b.Messages(queue)); n != 0 {
					b.Errorf("%d are left", n)
				}
			})
		})
	}
}

// A partial batch is handled and deleted when the service ends, without waiting for more.
func TestConsumeBatchHandlesPartialBatchAtEnd(t *testing.T) {
	inBubble(t, func(b *bubble) {
		b.Create("orders")
		handled := 0
		stop := b.consumeBatch("orders", Config{}, redeliver.BatchConfig{Timeout: time.Hour}, func(_ context.Context, batch *Batch) error {
			handled += len(batch.Messages)
			return nil
		})
		for _, id := range []string{"a", "b", "c"} {
			b.put("orders", id, "v", "", nil)
		}
		b.advance(20 * time.Minute) // hidden from others, far beyond the visibility timeout
		if handled != 0 {
			b.Errorf("%d messages ran without waiting for more", handled)
		}
		stop()
		if n := len(b.Messages("orders")); handled != 3 || n != 0 {
			b.Errorf("%d messages were handled, %d remain", handled, n)
		}
	})
}

// ConsumeBatch refuses an invalid call before it connects.
func TestConsumeBatchRefusesInvalidCalls(t *testing.T) {
	fine := func(context.Context, *Batch) error { return nil }
	for want, err := range map[string]error{
		"Marshaler NackDelay queues handler BatchConfig.Timeout BatchConfig.Size": ConsumeBatch(t.Context(), Config{MaxInFlight: 5, Marshaler: DefaultMarshaler{}, NackDelay: 1}, nil, redeliver.BatchConfig{Size: 6, Timeout: -5}, nil),
		"BatchConfig.Timeout": ConsumeBatch(t.Context(), Config{}, []string{"orders", "mails"}, redeliver.BatchConfig{Timeout: 12 * time.Hour}, fine),
		"BatchConfig.Size":    ConsumeBatch(t.Context(), Config{}, []string{"orders"}, redeliver.BatchConfig{Size: DefaultMaxInFlight + 1}, fine),
	} {
		refused, ok := errors.AsType[*redeliver.ConfigError](err)
		if !ok {
			t.Fatal(err)
		}
		var fields []string
		for _, p := range refused.Problems {
			fields = append(fields, p.Field)
		}
		if got := strings.Join(fields, " "); got != want {
			t.Errorf("refused for %q, want %q: %v", got, want, err)
		}
	}
}

// A partial batch must run before SQS shows its messages to others, or deletes them. Such a Timeout once was accepted: the
// messages came again and again, or were lost, and no batch ran.
func TestABatchTimeoutThatOutlivesItsMessagesIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		queue, retention string
		policy           redeliver.Policy
		timeout          time.Duration
		refused          bool
	}{
		"12 h":                    {"orders", "1209600", redeliver.Policy{}, 12 * time.Hour, true},
		"with the handler's time": {"orders", "1209600", redeliver.Policy{Timeout: 2 * time.Hour}, 10 * time.Hour, true},
		"with immediate retries":  {"orders", "1209600", redeliver.Policy{Timeout: 2 * time.Hour, Immediate: 1}, 5 * time.Hour, true},
		"the most":                {"orders", "1209600", redeliver.Policy{Timeout: 2 * time.Hour}, 10*time.Hour - time.Second, false},
		"no wait":                 {"orders", "1209600", redeliver.Policy{Timeout: 12 * time.Hour}, redeliver.NoWait, false},
		"the retention":           {"orders", "3600", redeliver.Policy{Timeout: time.Minute}, time.Hour, true},
		"within the retention":    {"orders", "3600", redeliver.Policy{Timeout: time.Minute}, 50 * time.Minute, false},
		"a wait of the group":     {"orders.fifo", "1209600", steps(1, 11*time.Hour), time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bubble) {
				b.Create(c.queue, "MessageRetentionPeriod", c.retention)
				config := Config{Policy: c.policy, Sink: b}
				batch := redeliver.BatchConfig{Size: 10, Timeout: c.timeout}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				err := ConsumeBatch(ctx, b.config(config), []string{c.queue}, batch, func(context.Context, *Batch) error { return nil })
				if errors.Is(err, redeliver.ErrConfig) != c.refused || c.refused && !strings.Contains(err.Error(), "BatchConfig.Timeout") {
					b.Errorf("ConsumeBatch: %v", err)
				}
				handle, err := middleware.Batch(batch, func(context.Context, *middleware.MessageBatch) error { return nil })
				if err != nil {
					b.Fatal(err)
				}
				client := b.start("one", c.queue, config, func(_ redeliver.State, msg *message.Message) error { return handle(msg) })
				group := ""
				if api.IsFIFO(c.queue) {
					group = "g"
				}
				b.put(c.queue, "a", "v", group, nil)
				b.advance(time.Minute)
				b.close(client)
				b.mu.Lock()
				defer b.mu.Unlock()
				var refused []redeliver.SubscriptionChanged
				for _, e := range b.events {
					if e, ok := e.(redeliver.SubscriptionChanged); ok && e.Change == redeliver.ChangeBatchRefused {
						refused = append(refused, e)
					}
				}
				if len(refused) > 0 != c.refused {
					b.Errorf("middleware.Batch: %v", refused)
				}
			})
		})
	}
}
