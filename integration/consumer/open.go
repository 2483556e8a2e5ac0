package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Client is a subscriber, with the function that closes its client.
type Client struct {
	message.Subscriber

	End func(context.Context) error
}

// Open calls open until it succeeds. Subscribe of the returned client is repeated in the same way. So a broker that is
// down at the start of a consumer does not end it.
func Open(ctx context.Context, open func() (Client, error)) (Client, error) {
	for {
		c, err := open()
		if err == nil {
			c.Subscriber = retryingSubscriber{c.Subscriber}
			return c, nil
		}
		if err := PauseBeforeRetry(ctx, err); err != nil {
			return Client{}, err
		}
	}
}

type retryingSubscriber struct{ message.Subscriber }

func (p retryingSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for {
		out, err := p.Subscriber.Subscribe(ctx, topic)
		if err == nil {
			return out, nil
		}
		if err := PauseBeforeRetry(ctx, err); err != nil {
			return nil, err
		}
	}
}

// PauseBeforeRetry pauses before another try. It returns the error if another try cannot succeed.
func PauseBeforeRetry(ctx context.Context, err error) error {
	if errors.Is(err, redeliver.ErrConfig) || ctx.Err() != nil {
		return err
	}
	Logf("opening: %v", err)
	Pause(ctx, 200*time.Millisecond)
	return nil
}

// Pause waits for d. It returns false if ctx ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
