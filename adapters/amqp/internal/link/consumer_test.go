package link

import (
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
