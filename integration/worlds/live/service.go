package live

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"

	"github.com/redeliver/redeliver/integration/worlds/plan"
	"github.com/redeliver/redeliver/mq"
)

// Policy returns the policy of the process's version.
func (p *Process) Policy() redeliver.Policy {
	v := p.Version
	policy := redeliver.Policy{
		MaxRetries: v.MaxRetries, Immediate: v.Immediate, Backoff: redeliver.Steps(v.Steps...), Timeout: v.Timeout, MaxAge: v.MaxAge,
		Order: orders[v.Order], Outage: redeliver.Outage{Off: !v.Outage},
	}
	if v.MaxRetries == 0 {
		policy.MaxRetries = redeliver.NoRetries
	}
	if v.Rate > 0 {
		policy.Rate = redeliver.Rate{PerSecond: v.Rate}
	}
	return policy
}

var orders = map[string]redeliver.Order{
	plan.OrderFirstAttempts: redeliver.OrderFirstAttempts, plan.OrderNone: redeliver.OrderNone, plan.OrderBlocking: redeliver.OrderBlocking, plan.OrderThroughRetries: redeliver.OrderThroughRetries,
}

// besideKey is the key of the context of a message in a batch that has another one of its key.
type besideKey struct{}

// HandleBatch handles the messages of a batch: those of each key one after another, and the keys side by side. keyOf returns the key
// of a message. With OrderBlocking all are of one key.
func HandleBatch[M interface {
	Answer(error) bool
	Context() context.Context
}](p *Process, messages []M, keyOf func(M) string, handle func(context.Context, M) error) error {
	ofKey := make(map[string][]M)
	for i, m := range messages {
		key := ""
		if p.Version.Order != plan.OrderBlocking {
			if key = keyOf(m); key == "" {
				key = fmt.Sprint("without a key ", i)
			}
		}
		ofKey[key] = append(ofKey[key], m)
	}
	var all sync.WaitGroup
	began := time.Now()
	for _, line := range ofKey {
		all.Go(func() {
			for i, m := range line {
				ctx := m.Context()
				if len(line) > 1 {
					ctx = context.WithValue(ctx, besideKey{}, true)
				}
				if i > 0 && p.Version.Timeout > 0 && time.Since(began) >= p.Version.Timeout {
					<-ctx.Done() // its time is over before it begins
				}
				// On SQS one message is lost alone, and the answer of the next one of its key counts.
				if lost := lostBecause(ctx); lost != nil {
					m.Answer(lost)
					continue
				}
				m.Answer(catchPanic(func() error { return handle(ctx, m) }))
			}
		})
	}
	all.Wait()
	return nil
}

// lostBecause returns why the message of a context is lost to this process, or nil.
func lostBecause(ctx context.Context) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, redeliver.ErrTimeout) {
		return cause
	}
	return nil
}

func catchPanic(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// Route runs a Watermill Router with a handler of the process's topics until ctx ends.
func (p *Process) Route(ctx context.Context, sub watermillmessage.Subscriber, handle func(topic string, m *watermillmessage.Message) error) error {
	router, err := watermillmessage.NewRouter(watermillmessage.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	router.AddMiddleware(middleware.Retry())
	for _, topic := range p.Service.Topics {
		router.AddConsumerHandler(topic, topic, sub, func(m *watermillmessage.Message) error { return handle(topic, m) })
	}
	err = router.Run(ctx)
	_ = router.Close() // after an error of Run, some of its goroutines wait for this
	return err
}

// Pause pauses a group with a client of its operator, and closes the client after resume.
func Pause(c *mq.Client, topic string) (resume func(), err error) {
	ctx := context.Background()
	if err := c.Operations().Pause(ctx, topic, "a world"); err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	return func() {
		for c.Operations().Resume(ctx, topic) != nil {
			time.Sleep(time.Second)
		}
		_ = c.Close(ctx)
	}, nil
}
