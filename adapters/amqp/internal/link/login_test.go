package link

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
)

// newServed returns a link to a fake broker, logged in.
func newServed(t *testing.T) (*amqptest.Server, *Link) {
	t.Helper()
	w := amqptest.NewServer(t)
	l := New(Options{URLs: []string{"amqp://guest:guest@localhost/"}, AMQP: amqp091.Config{Dial: w.Dialer(t)}})
	t.Cleanup(l.Close)
	if _, err := l.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, l
}

// The broker denies everything on a connection whose token has expired. Only a new login helps. A link once kept the
// connection, and no message was written any more.
func TestADenialLeadsToANewLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newServed(t)
		s := NewSender(l)
		send := func() error { return s.Send(t.Context(), "", "orders.retry", amqp091.Publishing{}) }
		if err := send(); err != nil {
			t.Fatal(err)
		}
		was := l.current()
		<-time.After(time.Minute)
		w.Stale.Store(w.Logins.Load())
		if err := send(); err != nil {
			t.Errorf("after the token has expired: %v", err)
		}
		if now := l.current(); now == was || !was.IsClosed() || w.Published.Load() != 2 {
			t.Errorf("%d messages are published, want 2; the old connection is closed: %t", w.Published.Load(), was.IsClosed())
		}
		before := w.Logins.Load()
		<-time.After(time.Minute)
		w.Stale.Store(before)
		errs := s.SendAll(t.Context(), 100, func(int) (Outgoing, error) { return Outgoing{Key: "orders.retry"}, nil })
		if err := errors.Join(errs...); err != nil || w.Logins.Load() != before+1 {
			t.Errorf("100 publishes at once: %v, with %d logins, want one", err, w.Logins.Load()-before)
		}
	})
}

// A denial that is right must not take the connection from its other users. The broker gets few logins for it.
func TestALastingDenialKeepsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newServed(t)
		was, before := l.current(), w.Logins.Load()
		w.Denied = "secret"
		read := func() error {
			return l.Do(t.Context(), func(l *Link) error {
				ch, err := l.Channel(t.Context())
				if err != nil {
					return err
				}
				_, err = StartConsumer(ch, "secret", ConsumerTag, 1)
				return err
			})
		}
		for range 600 { // ten minutes
			if err := read(); !IsDenied(err) {
				t.Fatalf("got %v, want a denial", err)
			}
			<-time.After(time.Second)
		}
		if now := l.current(); now != was {
			t.Error("the connection was replaced")
		}
		if n := w.Logins.Load() - before; n < 10 || n > 20 {
			t.Errorf("%d logins in ten minutes, want about one a minute", n)
		}
		w.Denied = ""
		<-time.After(time.Minute)
		if err := read(); err != nil {
			t.Errorf("once it is allowed: %v", err)
		}
	})
}

// A link without other users closes its connection.
func TestADroppedLinkLogsInAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, l := newServed(t)
		if l.Drop() {
			t.Error("a login was dropped at once")
		}
		<-time.After(minLoginPause)
		before := w.Logins.Load()
		if !l.Drop() || l.current() != nil {
			t.Error("it was not dropped")
		}
		if _, err := l.Get(t.Context()); err != nil || w.Logins.Load() != before+1 {
			t.Errorf("%d logins, want one more than %d: %v", w.Logins.Load(), before, err)
		}
	})
}
