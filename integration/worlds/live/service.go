package live

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"

	"github.com/redeliver/redeliver/integration/worlds/plan"
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
	plan.KeyOrder: redeliver.KeyOrder, plan.Unordered: redeliver.Unordered, plan.Blocking: redeliver.Blocking, plan.PerKey: redeliver.PerKey,
}

// HandleBatch handles the messages of a batch side by side.
func HandleBatch[M interface{ Answer(error) bool }](messages []M, handle func(M) error) error {
	var all sync.WaitGroup
	for _, m := range messages {
		all.Go(func() {
			defer func() {
				if p := recover(); p != nil {
					m.Answer(fmt.Errorf("panic: %v", p))
				}
			}()
			m.Answer(handle(m))
		})
	}
	all.Wait()
	return nil
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
