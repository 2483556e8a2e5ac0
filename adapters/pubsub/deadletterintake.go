package pubsub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
)

// intakeLanes is how many Subscribes take letters, each one at a time: as many are
// synced at once.
const intakeLanes = 8

// intake takes letters from the DLQ's topic: they are written down, then acked.
type intake struct {
	q    *deadLetters
	held *os.File // intake.lock
	w    *shelfWriter

	ctx  context.Context // ends with the intake
	stop context.CancelFunc
	wg   sync.WaitGroup

	in   chan arrival
	busy atomic.Int64 // messages that are not written down yet

	mu  sync.Mutex
	err error // why nothing could be written the last time
}

// arrival is a letter that came, and where its writer answers.
type arrival struct {
	letter *letter
	done   chan<- error
}

// take begins to take letters, unless that is done already, here or by another process.
func (q *deadLetters) take(ctx context.Context) error {
	q.taking.Lock()
	defer q.taking.Unlock()
	q.mu.Lock()
	busy, closed := q.intake != nil, q.closed
	q.mu.Unlock()
	if closed {
		return errClosed
	}
	if busy {
		return nil
	}
	held, err := tryLock(q.path(intakeLock))
	if err != nil || held == nil {
		return err
	}
	w, err := newWriter(q.shelf)
	if err != nil {
		return errors.Join(err, held.Close())
	}
	in := &intake{q: q, held: held, w: w, in: make(chan arrival)}
	in.ctx, in.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := in.begin(ctx); err != nil {
		return errors.Join(err, in.close())
	}
	q.mu.Lock()
	q.intake = in
	q.mu.Unlock()
	return nil
}

// busy tells whether letters are about to be written here.
func (q *deadLetters) busy() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.intake != nil && q.intake.busy.Load() > 0 && q.intake.trouble() == nil
}

// trouble is why letters cannot be taken here.
func (q *deadLetters) trouble() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.intake == nil {
		return nil
	}
	return q.intake.trouble()
}

func (in *intake) begin(ctx context.Context) error {
	in.wg.Go(in.write)
	for range intakeLanes {
		ch, cancel, err := subscribe(ctx, in.ctx, in.q.c.cfg.Subscriber, in.q.info.DLQ)
		if err != nil {
			return err
		}
		in.wg.Go(func() { in.lane(ch, cancel) })
	}
	return nil
}

// write writes what the lanes bring, together what comes together.
func (in *intake) write() {
	for {
		var all []arrival
		select {
		case a := <-in.in:
			all = append(all, a)
		case <-in.ctx.Done():
			return
		}
		for more := true; more && len(all) < intakeLanes; {
			select {
			case a := <-in.in:
				all = append(all, a)
			default:
				more = false
			}
		}
		letters := make([]*letter, len(all))
		for i, a := range all {
			letters[i] = a.letter
		}
		err := in.w.add(letters)
		in.tell(err)
		for _, a := range all {
			a.done <- err
		}
	}
}

// tell says once that nothing can be written, and that it can again.
func (in *intake) tell(err error) {
	in.mu.Lock()
	was := in.err
	in.err = err
	in.mu.Unlock()
	e := redeliver.SubscriptionChanged{Origin: in.q.info.Origin, Group: in.q.info.Group, Detail: in.q.info.DLQ + " into " + in.q.dir, Err: err}
	switch {
	case was == nil && err != nil:
		e.Change = "dead letters are not taken"
	case was != nil && err == nil:
		e.Change = "dead letters are taken again"
	default:
		return
	}
	in.q.c.cfg.Sink.Event(e)
}

func (in *intake) trouble() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return fmt.Errorf("pubsub: letters of %s cannot be taken, and stay in their topic: %w", in.q.info.DLQ, in.err)
	}
	return nil
}

// lane is one Subscribe. One that ends by itself is made again.
func (in *intake) lane(ch <-chan *message.Message, cancel context.CancelFunc) {
	pause := backoff.NewExponentialBackOff(backoff.WithMaxInterval(longestPause), backoff.WithMaxElapsedTime(0))
	for {
		acked := in.read(ch, pause)
		awaitAck(acked)
		cancel()
		go giveBack(ch)
		for err := errEnded; err != nil; {
			if !in.sleep(pause.NextBackOff()) {
				return
			}
			ch, cancel, err = subscribe(in.ctx, in.ctx, in.q.c.cfg.Subscriber, in.q.info.DLQ)
		}
	}
}

// read takes letters until the channel or the intake ends. It returns the one that was
// acked last, which its subscriber may still be at.
func (in *intake) read(ch <-chan *message.Message, pause *backoff.ExponentialBackOff) (acked *message.Message) {
	for {
		select {
		case raw, ok := <-ch:
			if !ok {
				return acked
			}
			for in.keep(raw) != nil {
				// It stays unacked meanwhile: each nack would be a delivery, and a
				// queue may count those.
				if !in.sleep(pause.NextBackOff()) {
					raw.Nack()
					return nil
				}
			}
			raw.Ack()
			acked = raw
			pause.Reset()
		case <-in.ctx.Done():
			return acked
		}
	}
}

// keep returns when a letter is on the shelf for good.
func (in *intake) keep(raw *message.Message) error {
	in.busy.Add(1)
	defer in.busy.Add(-1)
	done := make(chan error, 1)
	select {
	case in.in <- arrival{letterOf(raw, time.Now()), done}:
		return <-done
	case <-in.ctx.Done():
		return errClosed
	}
}

// sleep is false where the intake has ended.
func (in *intake) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-in.ctx.Done():
		return false
	}
}

// close returns when no more is taken. What was taken and not acked comes back.
func (in *intake) close() error {
	in.stop()
	in.wg.Wait()
	return errors.Join(in.w.close(), in.held.Close())
}
