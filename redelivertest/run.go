package redelivertest

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver/middleware"
)

// Run runs test in a bubble of testing/synctest, with a new broker. Time is virtual there: it stands
// still while any goroutine has something to do, and then jumps to the next due time. So delays of
// hours take no time, and are exact to the nanosecond. Time begins at midnight UTC of 2000-01-01.
//
// The rules of synctest apply: no t.Run and t.Parallel inside, no network, and every goroutine must
// end before the test does. A handler that should hang waits for t.Context().
func Run(t *testing.T, test func(t *testing.T, b *Broker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(t)) })
}

// waitIdle waits until every other goroutine in the bubble is blocked. It returns false at once if there is no bubble.
func waitIdle() (bubble bool) {
	defer func() {
		if recover() != nil { // synctest has no other way to detect a bubble
			bubble = false
		}
	}()
	synctest.Wait()
	return true
}

// Start runs a Router, returns when its handlers have subscribed, and closes it at the end of the
// test. It fails the test if the Router cannot run.
func (b *Broker) Start(router *message.Router) {
	b.tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		if err := router.Run(ctx); err != nil {
			failed <- err
		}
	}()
	b.tb.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case <-router.Running():
	case err := <-failed:
		b.tb.Fatalf("redelivertest: running the router: %v", err)
	}
}

// Handle runs a handler behind middleware.Retry on a Router of its own until the test ends, as one
// more member of the client's group. It returns the subscription, which reports what happens. Other
// middlewares run inside Retry.
func (c *Client) Handle(topic string, h message.NoPublishHandlerFunc, inside ...message.HandlerMiddleware) *Subscription {
	c.service.b.tb.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: c.service.cfg.DrainTimeout}, watermill.NopLogger{})
	if err != nil {
		c.service.b.tb.Fatalf("redelivertest: making a router: %v", err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddMiddleware(inside...)
	router.AddConsumerHandler(topic, topic, c.Subscriber(), h)
	c.service.b.Start(router)
	return c.Subscription(topic)
}
