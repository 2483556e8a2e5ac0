package deadletter_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/redelivertest"
)

// hidingDLQ is a DLQ whose readers hide messages, so that a replay with a canary closes its scan to read the whole DLQ.
type hidingDLQ struct{ driver.DLQ }

func (d hidingDLQ) Info() deadletter.Info {
	info := d.DLQ.Info()
	info.ReadEffect = "it hides them"
	return info
}

// A replay that opens its scan again finds the messages that came back meanwhile, and leaves them in the DLQ.
func TestAReplayDoesNotReplayWhatCameBack(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var replayed atomic.Int64
		var fails sync.Map // the replayed message that fails again
		orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: redeliver.NoRetries}}).Handle("orders",
			func(msg *message.Message) error {
				st, _ := redeliver.FromContext(msg.Context())
				if st.Replays > 0 && replayed.Add(1) == 10 {
					fails.Store(msg.UUID, true)
				}
				if _, again := fails.Load(msg.UUID); st.Replays > 0 && !again {
					return nil
				}
				return errors.New("no bank")
			})
		for i := range 30 {
			b.Publish("orders", message.NewMessage(fmt.Sprint(i), nil))
		}
		b.Wait()
		<-time.After(time.Second)
		q := driver.Wrap(orders.DeadLetterQueue(), func(in driver.DLQ) driver.DLQ { return hidingDLQ{in} })
		task, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{
			Who: "ann", Why: "a test", Canary: []int{1}, Watch: time.Second, Window: 5, Rate: 10,
		})
		if c := task.Counts; err != nil || task.Status != deadletter.StatusDone || c.Replayed != 30 || c.Returned != 1 {
			t.Errorf("the replay of 30 messages ended as %s with %+v: %v", task.Status, c, err)
		}
		if left := orders.DeadLetters(); len(left) != 1 {
			t.Errorf("%d messages are left, want the one that came back", len(left))
		}
	})
}
