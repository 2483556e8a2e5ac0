package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
)

// Client is a subscriber, and what closes the client behind it.
type Client struct {
	message.Subscriber

	End func(context.Context) error
}

// Open calls open until it is done, and so does the client with Subscribe: a service that starts while its broker is down
// is started again by its parent.
func Open(ctx context.Context, open func() (Client, error)) (Client, error) {
	for {
		c, err := open()
		if err == nil {
			c.Subscriber = patient{c.Subscriber}
			return c, nil
		}
		if err := Again(ctx, err); err != nil {
			return Client{}, err
		}
	}
}

type patient struct{ message.Subscriber }

func (p patient) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	for {
		out, err := p.Subscriber.Subscribe(ctx, topic)
		if err == nil {
			return out, nil
		}
		if err := Again(ctx, err); err != nil {
			return nil, err
		}
	}
}

// Again pauses before something that failed is tried again. It returns the error of what is not worth it.
func Again(ctx context.Context, err error) error {
	if errors.Is(err, redeliver.ErrConfig) || ctx.Err() != nil {
		return err
	}
	Sayf("opening: %v", err)
	Pause(ctx, 200*time.Millisecond)
	return nil
}

// Pause returns after d, and false when ctx has ended before.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
