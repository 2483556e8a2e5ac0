package amqp_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// reconnectingConn is a connection that reconnects after the broker has ended it.
type reconnectingConn struct {
	url  string
	mu   sync.Mutex
	conn *amqp091.Connection
}

func (w *reconnectingConn) channel(t testing.TB) *amqp091.Channel {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for tries := 3; ; tries-- {
		if w.conn == nil || w.conn.IsClosed() {
			conn, err := amqp091.DialConfig(w.url, amqp091.Config{Heartbeat: time.Minute, Locale: "en_US"})
			if err != nil {
				t.Fatal(err)
			}
			w.conn = conn
		}
		ch, err := w.conn.Channel()
		switch {
		case err == nil:
			return ch
		case !errors.Is(err, amqp091.ErrClosed) || tries == 1:
			t.Fatal(err)
		}
	}
}

// do declares or deletes something. If a stalled broker elects no leader for a quorum queue within 5 s, it ends the
// connection. do then tries again.
func (w *reconnectingConn) do(t testing.TB, what func(*amqp091.Channel) error) error {
	t.Helper()
	for tries := 5; ; tries-- {
		ch := w.channel(t)
		err := what(ch)
		_ = ch.Close()
		if broken, ok := errors.AsType[*amqp091.Error](err); !ok || broken.Code != amqp091.InternalError && broken.Code != amqp091.ChannelError || tries == 1 {
			return err
		}
	}
}

// delete deletes queues, whether or not they exist.
func (w *reconnectingConn) delete(t testing.TB, queues ...string) error {
	t.Helper()
	return w.do(t, func(ch *amqp091.Channel) error {
		for _, q := range queues {
			if _, err := ch.QueueDelete(q, false, false, false); err != nil {
				return fmt.Errorf("deleting %s: %w", q, err)
			}
		}
		return nil
	})
}

func (w *reconnectingConn) close() {
	if w.conn != nil {
		_ = w.conn.Close()
	}
}

// confirmed publishes on a channel with confirms, and returns when the broker has all messages. It repeats messages
// that a stalled broker refused.
func confirmed(t testing.TB, ch *amqp091.Channel, exchange, key string, all ...amqp091.Publishing) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	for tries := 10; len(all) > 0; tries-- {
		confirms := make([]*amqp091.DeferredConfirmation, len(all))
		for i, p := range all {
			var err error
			if confirms[i], err = ch.PublishWithDeferredConfirm(exchange, key, true, false, p); err != nil {
				t.Fatal(err)
			}
		}
		var refused []amqp091.Publishing
		for i, c := range confirms {
			taken, err := c.WaitContext(ctx)
			if err != nil {
				t.Fatalf("no confirm of a message to %q %q: %v", exchange, key, err)
			}
			if !taken {
				refused = append(refused, all[i])
			}
		}
		if len(refused) > 0 && (ch.IsClosed() || tries == 1) {
			t.Fatalf("the broker refused %d messages to %q %q; its channel is closed: %t", len(refused), exchange, key, ch.IsClosed())
		}
		all = refused
	}
}
