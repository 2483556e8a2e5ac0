package deadletter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	"github.com/redeliver/redeliver/redelivertest"
)

// halfRemovingDLQ is a DLQ that removes only half of the messages of one Remove, before or after it has recorded the
// entries.
type halfRemovingDLQ struct {
	driver.DLQ
	fails   int // how many calls of Remove with messages still have to fail
	records bool
}

func (d *halfRemovingDLQ) Connect(ctx context.Context) (driver.Session, error) {
	s, err := d.DLQ.Connect(ctx)
	return &halfSession{s, d}, err
}

type halfSession struct {
	driver.Session
	d *halfRemovingDLQ
}

func (s *halfSession) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	if len(msgs) == 0 || s.d.fails == 0 {
		return s.Session.Remove(ctx, msgs, entries...)
	}
	s.d.fails--
	if !s.d.records {
		return errors.New("no broker")
	}
	return errors.Join(s.Session.Remove(ctx, msgs[:len(msgs)/2], entries...), errors.New("half of the removal is refused"))
}

// A task counts each message once, even if a removal fails half-way and another runner resumes the task.
func TestARemovalThatFailsIsCountedOnce(t *testing.T) {
	for _, records := range []bool{true, false} {
		for _, kind := range []deadletter.Kind{deadletter.KindReplay, deadletter.KindPurge} {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				orders := b.Open(redelivertest.Config{Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}).Handle("orders",
					func(msg *message.Message) error {
						if st, _ := redeliver.FromContext(msg.Context()); st.Replays > 0 {
							return nil
						}
						return errors.New("no bank")
					})
				for i := range 20 {
					b.Publish("orders", message.NewMessage(fmt.Sprint(i), nil))
				}
				b.Wait()
				d := &halfRemovingDLQ{fails: 1, records: records}
				q := driver.Wrap(orders.DeadLetterQueue(), func(in driver.DLQ) driver.DLQ { d.DLQ = in; return d })
				var task deadletter.Task
				var err error
				if kind == deadletter.KindReplay {
					task, err = deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "a test", Window: 10})
				} else {
					task, err = deadletter.Purge(t.Context(), q, deadletter.PurgeOptions{Who: "ann", Why: "a test", Window: 10, Everything: true})
				}
				if err == nil || task.Status != deadletter.StatusFailed {
					t.Fatalf("the task ended as %s: %v", task.Status, err)
				}
				task, err = deadletter.Resume(t.Context(), q, task.ID, deadletter.ResumeOptions{Who: "ben"})
				if err != nil || task.Counts.Replayed+task.Counts.Purged != 20 || len(task.Settling) > 0 {
					t.Errorf("%s, recorded %v: it counts %+v of 20: %v", kind, records, task.Counts, err)
				}
				if left := len(orders.DeadLetters()); left > 0 {
					t.Errorf("%d are left", left)
				}
			})
		}
	}
}
