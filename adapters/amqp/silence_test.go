package amqp

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

// RabbitMQ 3.10 sends nothing to the consumer of a quorum queue that is deleted and declared again at once. So a channel
// that brings nothing is replaced, unless it has messages, the group is paused, or the broker has no such fault.
func TestASilentChannelIsReplaced(t *testing.T) {
	for _, order := range []redeliver.Order{redeliver.OrderNone, redeliver.OrderThroughRetries} {
		for name, c := range map[string]struct {
			forgets, busy, paused bool
			replaced              bool
		}{
			"silent":       {forgets: true, replaced: true},
			"another one":  {},
			"with a slot":  {forgets: true, busy: true},
			"while paused": {forgets: true, paused: true},
		} {
			t.Run(fmt.Sprint(order, " ", name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					release := make(chan struct{})
					f := newOrderedQueue(t, Config{Policy: redeliver.Policy{Order: order}}, func([]string, redeliver.State) error {
						<-release
						return nil
					})
					var ids []string
					if c.busy {
						ids = []string{"a"}
					}
					s, in := f.source(false, ids...)
					s.mayBeForgotten = c.forgets
					if c.paused {
						f.r.sub.NewGate.Close()
					}
					ctx, stop := context.WithCancel(t.Context())
					began := time.Now()
					end := f.run(ctx, s, in)
					<-time.After(maxSilence - 2*time.Second)
					if why := s.endReason.Load(); why != nil && !c.paused {
						t.Errorf("it ended after %s: %v", time.Since(began), *why)
					}
					<-time.After(5 * time.Second)
					stop() // a source that has ended has its reason by now
					close(release)
					close(in)
					err := <-end
					if errors.Is(err, errSilent) != c.replaced {
						t.Errorf("it ended with %v", err)
					}
				})
			})
		}
	}
}

// A service learns that messages were stuck, and of nothing else: a channel that is replaced while there are no messages is
// no loss.
func TestAForgottenConsumerIsReported(t *testing.T) {
	for name, c := range map[string]struct{ redelivered, silent, reported bool }{
		"came back":         {true, true, true},
		"new":               {false, true, false},
		"after another end": {true, false, false},
	} {
		var reported []error
		f := newOrderedQueue(t, Config{Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			if e, ok := e.(redeliver.SubscriptionChanged); ok && e.Change == redeliver.ChangeDisconnected {
				reported = append(reported, e.Err)
			}
		})}, nil)
		s, in := f.source(false)
		s.silent = c.silent
		in <- amqp091.Delivery{MessageId: "a", DeliveryTag: 1, Redelivered: c.redelivered}
		in <- amqp091.Delivery{MessageId: "b", DeliveryTag: 2, Redelivered: true}
		parsed(s, in)
		if (len(reported) == 1 && errors.Is(reported[0], errForgotten)) != c.reported || !c.reported && len(reported) > 0 {
			t.Errorf("%s: reported %v", name, reported)
		}
	}
}
