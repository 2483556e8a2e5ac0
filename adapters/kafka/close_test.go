package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/adapters/kafka"
)

// sarama alone waits half a minute for each unanswered request.
func TestCloseWithAnEndedContextIsBoundedWhenTheBrokerIsGone(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	c, ev := openClient(t, kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Policy: quick(1), DrainTimeout: 100 * time.Millisecond, SendTimeout: 400 * time.Millisecond})
	route(t, c, "orders", failFirst(0))
	ev.awaitJoined(t, 1)
	back := make(chan struct{})
	cluster.ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.SleepControl(func() { <-back })
		return nil, nil, false
	})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	err := c.Close(ended)
	took := time.Since(begin)
	close(back)
	if took > 20*time.Second { // sarama's 30
		t.Errorf("took %s", took)
	}
	if err == nil {
		t.Fatal("closed as if the broker had answered")
	}
	for _, part := range []string{"500ms", "DrainTimeout", "SendTimeout", "group billing", "come back"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}
