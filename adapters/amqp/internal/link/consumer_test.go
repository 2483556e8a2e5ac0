package link

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
)

// RabbitMQ 3.10 answers the cancel of a consumer twice if its queue is deleted meanwhile. The connection still serves its other
// channels.
func TestACancelThatIsAnsweredTwiceStopsNoOtherChannel(t *testing.T) {
	t.Parallel()
	for _, twice := range []bool{false, true} {
		w := amqptest.NewServer(t)
		w.Twice.Store(twice)
		in, err := StartConsumer(w.Ch, "orders", ConsumerTag, 1)
		if err != nil {
			t.Fatal(err)
		}
		err = StopConsumer(w.Ch, ConsumerTag)
		if errors.Is(err, amqp091.ErrCommandInvalid) != twice || (err != nil) != twice || w.Ch.IsClosed() != twice {
			t.Errorf("answered twice: %t; it returned %v, and the channel is closed: %t", twice, err, w.Ch.IsClosed())
		}
		for range in { // it has ended
		}
		opened := make(chan error, 1)
		go func() {
			_, err := w.Conn.Channel()
			opened <- err
		}()
		select {
		case err := <-opened:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("the connection opens no other channel")
		}
	}
}

// A call ends with its context, also if the connection reads nothing any more and so opens no channel.
func TestACallEndsWithItsContextIfNoChannelOpens(t *testing.T) {
	t.Parallel()
	w := amqptest.NewServer(t)
	w.Twice.Store(true)
	l := New(Options{URLs: []string{"amqp://guest:guest@localhost/"}, AMQP: amqp091.Config{Dial: w.Dialer(t)}})
	t.Cleanup(l.Close)
	ch, err := l.Channel(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ch.Close() }) // first: then the connection reads again
	if err := ch.Cancel(ConsumerTag, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Call(ctx, l, "orders", func(*amqp091.Channel) (bool, error) { return true, nil })
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it returned %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the call does not end")
	}
}
