package link

import (
	"errors"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/amqptest"
)

// In AMQP's smallest frames no message can wait: each that failed once went to the DLQ.
func TestSmallFramesAreRefused(t *testing.T) {
	for _, c := range []struct {
		broker  uint32
		client  int
		refused bool
	}{
		{4096, 0, true}, {8191, 0, true}, {131072, 4096, true}, {0, 5000, true},
		{8192, 0, false}, {131072, 8192, false}, {0, 0, false},
	} {
		w := amqptest.NewServer(t)
		w.FrameMax.Store(c.broker)
		l := New(Options{URLs: []string{"amqp://guest:guest@localhost/"}, AMQP: amqp091.Config{FrameSize: c.client, Dial: w.Dialer(t)}})
		_, err := l.Get(t.Context())
		if errors.Is(err, redeliver.ErrConfig) != c.refused || c.refused && !strings.Contains(err.Error(), "frame_max") || !c.refused && err != nil {
			t.Errorf("frame_max %d, FrameSize %d: %v", c.broker, c.client, err)
		}
		l.Close()
	}
}
