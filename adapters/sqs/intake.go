package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// partialBatchPause is the pause after a receive that brought less than it could: what
	// comes meanwhile shares the next request.
	partialBatchPause = 20 * time.Millisecond
	// Bounds of what a lane has in hand, those included that wait: how many messages,
	// or how many may be in flight where that is more, and their bytes.
	defaultMaxHeldMessages = 10_000
	defaultMaxHeldBytes    = 128 << 20
)

// heldLimit is how much a lane may have in hand. A receive begins only when ten messages
// of the largest size that the queue takes keep within it.
type heldLimit struct{ messages, bytes int }

// room is how many messages may still be asked for.
func (b heldLimit) room(messages, bytes, largest int) int {
	return min(b.messages-messages, (b.bytes-bytes)/max(1, largest))
}

// intake decides how many messages may be received now: pollers take, the lane says how much room there is.
type intake struct {
	mu       sync.Mutex
	more     sync.Cond
	size     int // of a request
	accept   int // the lane takes so many more
	reserved int // messages are asked for, or lie here for the lane
	// hand is how many messages are settled and not yet deleted, and how many more may be in hand. It is called with mu held.
	heldRoom      func() (settled, more int)
	activePollers int // how many pollers are at it: as many as find full batches
	maxPollers    int
}

func newIntake(maxAhead, pollers int, heldRoom func() (settled, more int)) *intake {
	in := &intake{size: min(maxBatch, maxAhead), heldRoom: heldRoom, activePollers: 1, maxPollers: pollers}
	in.more.L = &in.mu
	return in
}

// setRoom says how many more messages the lane takes, and how many it has got since the last call.
func (in *intake) setRoom(accept, got int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.accept = accept
	in.reserved -= got
	in.more.Broadcast()
}

// wake has pollers ask again: there is more room in hand.
func (in *intake) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.more.Broadcast()
}

// wakeAtEnd has take see the end of ctx, which must be called before it, once. done
// takes that back.
func (in *intake) wakeAtEnd(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.more.Broadcast()
	})
}

// reserve waits until there is room for a whole request, and until poller n is
// needed. It is false when ctx has ended; see until.
func (in *intake) reserve(ctx context.Context, n int) (int, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for ctx.Err() == nil {
		if settled, more := in.heldRoom(); n < in.activePollers && min(in.accept-settled, more)-in.reserved >= in.size {
			in.reserved += in.size
			return in.size, true
		}
		in.more.Wait()
	}
	return 0, false
}

// release takes a part of a take back, for which no messages came.
func (in *intake) release(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.reserved -= n
	in.more.Broadcast()
}

// adaptPollers says how full a request was.
func (in *intake) adaptPollers(n, want int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n < want {
		in.activePollers = max(in.activePollers-1, 1)
	} else if in.activePollers < in.maxPollers {
		in.activePollers++
		in.more.Broadcast()
	}
}

// poll receives until ctx ends. Between failures it pauses with backoff.
func (s *source) poll(ctx context.Context, n int) {
	pause := newPause()
	defer s.intake.wakeAtEnd(ctx)()
	wait := time.Second // the first look tells that the queue can be read
	var p pauseLength
	for {
		want, ok := s.intake.reserve(ctx, n)
		if !ok {
			return
		}
		found, err := s.fetchMessages(want, s.groups.receiveWait(p, wait))
		switch {
		case isContextEnd(ctx, err):
			return
		case err != nil:
			s.r.disconnected(s.queue.name, err)
			if isMissingQueue(err) { // it was deleted under us
				if err := s.client.provision(ctx, s.layout); err != nil && ctx.Err() == nil {
					s.r.disconnected(s.queue.name, err)
				}
			}
			sleep(ctx, pause.NextBackOff())
		default:
			wait = s.nextWait(wait, found)
			pause.Reset()
			s.r.consuming()
			s.intake.adaptPollers(found, want)
			if 0 < found && found < want {
				sleep(ctx, partialBatchPause)
			}
			s.groups.pause(ctx, &p, found, want)
		}
	}
}

// fetchMessages receives up to so many messages, which were taken of the intake, and hands them to the lane.
func (s *source) fetchMessages(want int, wait time.Duration) (found int, err error) {
	msgs, err := s.receive(want, wait)
	if len(msgs) == 0 {
		s.intake.release(want)
		return 0, err
	}
	s.groups.expectMessages()
	defer s.groups.messagesArrived()
	all := s.registerMessages(msgs, time.Now(), s.visibilityFor(wait))
	s.intake.release(want - len(all))
	s.passToLane(all)
	return len(msgs), err
}

// newPause is how long is waited between receives that fail.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(minRetryPause/5),
		backoff.WithMaxInterval(maxRetryPause/2), backoff.WithMaxElapsedTime(0))
}

// sleep waits for d. It is false when ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
