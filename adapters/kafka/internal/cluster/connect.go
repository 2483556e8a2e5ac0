package cluster

import (
	"cmp"
	"context"
	"fmt"

	"github.com/IBM/sarama"
)

// Call calls a function that takes no context, such as sarama's. If ctx ends first, Call returns the cause, and the
// call continues in the background.
func Call[T any](ctx context.Context, call func() (T, error)) (T, error) {
	return callWithContext(ctx, inGoroutine, call, nil)
}

// callWithContext is Call, and passes a late result to discard, which may be nil. start runs the call: it is inGoroutine,
// or the Go method of a WaitGroup.
func callWithContext[T any](ctx context.Context, start func(func()), call func() (T, error), discard func(T)) (T, error) {
	type answer struct {
		made T
		err  error
	}
	done := make(chan answer)
	start(func() {
		made, err := call()
		select {
		case done <- answer{made, err}:
		case <-ctx.Done():
			if err == nil && discard != nil {
				discard(made)
			}
		}
	})
	select {
	case a := <-done:
		return a.made, a.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("kafka: %w", context.Cause(ctx))
	}
}

func inGoroutine(f func()) { go f() }

// WithinDialTimeout connects within ctx and the dial timeout. sarama's constructors alone take longer, because they try
// every broker several times.
func WithinDialTimeout[T any](ctx context.Context, brokers []string, cfg *sarama.Config, connect func() (T, error), discard func(T)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.Net.DialTimeout,
		fmt.Errorf("no broker of %v answered within %s; %s", brokers, cfg.Net.DialTimeout, connectionHint(cfg)))
	defer cancel()
	return callWithContext(ctx, inGoroutine, connect, discard)
}

// Dial makes a sarama client within ctx and the dial timeout.
func Dial(ctx context.Context, brokers []string, cfg *sarama.Config) (sarama.Client, error) {
	return WithinDialTimeout(ctx, brokers, cfg, func() (sarama.Client, error) { return NewClient(brokers, cfg) }, func(c sarama.Client) { _ = c.Close() })
}

// NewClient makes a sarama client. Its error names the settings to check.
func NewClient(brokers []string, cfg *sarama.Config) (sarama.Client, error) {
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("kafka: connecting to %v: %w; %s", brokers, err, connectionHint(cfg))
	}
	return client, nil
}

// connectionHint names the settings to check when no broker answers. Many brokers close the connection without an error
// if TLS, user or password are wrong.
func connectionHint(cfg *sarama.Config) string {
	encrypted, user := "off", "off"
	if cfg.Net.TLS.Enable {
		encrypted = "on"
	}
	if cfg.Net.SASL.Enable {
		mechanism := cmp.Or(cfg.Net.SASL.Mechanism, sarama.SASLTypePlaintext)
		user = fmt.Sprintf("%s as user %q", mechanism, cfg.Net.SASL.User)
	}
	return fmt.Sprintf("check the addresses, Sarama.Net.TLS (%s) and Sarama.Net.SASL (%s)", encrypted, user)
}
