package delayqueue_test

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// starts is how long a batch takes until its function is called, whose messages have
// these sessions: the least of some tries.
func starts(sessions []context.Context) time.Duration {
	least := time.Hour
	for range 3 {
		sub := &delayqueue.Subscription{Policy: redeliver.Policy{Timeout: redeliver.NoTimeout}.WithDefaults()}
		called, done := make(chan time.Time, 1), make(chan struct{})
		config := delayqueue.BatchConfig{Size: len(sessions), Timeout: hour, Concurrency: 1}
		w := delayqueue.NewBatchWorkers(config, sub, func(*delayqueue.Batch, []*delayqueue.Batched) error {
			called <- time.Now()
			return nil
		})
		left := len(sessions)
		one := counting(func() {
			if left--; left == 0 {
				close(done)
			}
		})
		places, deliveries := make([]delayqueue.Place, left), make([]delayqueue.Delivery, left)
		var last time.Time
		for i, session := range sessions {
			deliveries[i] = delayqueue.Delivery{Sub: sub, Record: record{}, ID: "m"}
			deliveries[i].Begin(session)
			last = time.Now()
			w.Give(&places[i], &deliveries[i], &one, 1)
		}
		least = min(least, (<-called).Sub(last))
		<-done
		w.Close()
	}
	return least
}

// dear is a context that takes long to be compared with others.
type dear struct {
	context.Context
	weight [1 << 16]byte
}

func newDear(ctx context.Context, n uint32) context.Context {
	c := dear{Context: ctx}
	binary.LittleEndian.PutUint32(c.weight[len(c.weight)-4:], n) // where it is looked at last
	return c
}

// A batch of messages that each have a session of their own begins in a time that grows
// as their number does, and not as its square.
func TestABatchOfManySessionsBeginsInTime(t *testing.T) {
	const few, times = 32, 32
	var sessions []context.Context
	for i := range few * times {
		sessions = append(sessions, newDear(t.Context(), uint32(i)))
	}
	small, large := starts(sessions[:few]), starts(sessions)
	if large > 40*times*small {
		t.Errorf("a batch of %d sessions begins after %s, and one of %d after %s", few, small, few*times, large)
	}
}

// Its context ends with the last of its sessions, however they are mixed.
func TestABatchEndsWithTheLastOfItsSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errSession := errors.New("revoked")
		one, endOne := context.WithCancelCause(t.Context())
		two, endTwo := context.WithCancelCause(t.Context())
		called, ended := make(chan struct{}), make(chan error)
		_, give := crew(t, &broker{}, redeliver.Policy{}, delayqueue.BatchConfig{Size: 5}, func(ctx context.Context, _ *delayqueue.Batch, _ []*member) error {
			close(called)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})
		for i, session := range []context.Context{one, two, one, two, two} {
			give(string(rune('a'+i)), session)
		}
		<-called
		endTwo(errors.New("the first"))
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it ended while some are left: %v", err)
		default:
		}
		endOne(errSession)
		if err := <-ended; !errors.Is(err, errSession) {
			t.Errorf("it ended with %v", err)
		}
	})
}
