package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
)

const (
	// fewPause is the pause after a receive that brought less than it could: what
	// comes meanwhile shares the next request.
	fewPause = 20 * time.Millisecond
	// Bounds of what a lane has in hand, those included that wait: how many messages,
	// or how many may be in flight where that is more, and their bytes.
	handMost  = 10_000
	handBytes = 128 << 20
)

// bound is how much a lane may have in hand. A receive begins only when ten messages
// of the largest size that the queue takes keep within it.
type bound struct{ messages, bytes int }

// room is how many messages may still be asked for.
func (b bound) room(messages, bytes, largest int) int {
	return min(b.messages-messages, (b.bytes-bytes)/max(1, largest))
}

// intake decides how many messages may be received now: pollers take, the lane says how much room there is.
type intake struct {
	mu     sync.Mutex
	more   sync.Cond
	size   int // of a request
	accept int // the lane takes so many more
	asked  int // messages are asked for, or lie here for the lane
	// hand is how many messages are settled and not yet deleted, and how many more may be in hand. It is called with mu held.
	hand  func() (settled, more int)
	eager int // how many pollers are at it: as many as find full batches
	polls int
}

func newIntake(most, pollers int, hand func() (settled, more int)) *intake {
	in := &intake{size: min(batchMost, most), hand: hand, eager: 1, polls: pollers}
	in.more.L = &in.mu
	return in
}

// room says how many more messages the lane takes, and how many it has got since the last call.
func (in *intake) room(accept, got int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.accept = accept
	in.asked -= got
	in.more.Broadcast()
}

// wake has pollers ask again: there is more room in hand.
func (in *intake) wake() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.more.Broadcast()
}

// until has take see the end of ctx, which must be called before it, once. done
// takes that back.
func (in *intake) until(ctx context.Context) (done func() bool) {
	return context.AfterFunc(ctx, func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.more.Broadcast()
	})
}

// take waits until there is room for a whole request, and until poller n is
// needed. It is false when ctx has ended; see until.
func (in *intake) take(ctx context.Context, n int) (int, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for ctx.Err() == nil {
		if settled, more := in.hand(); n < in.eager && min(in.accept-settled, more)-in.asked >= in.size {
			in.asked += in.size
			return in.size, true
		}
		in.more.Wait()
	}
	return 0, false
}

// give takes a part of a take back, for which no messages came.
func (in *intake) give(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.asked -= n
	in.more.Broadcast()
}

// found says how full a request was.
func (in *intake) found(n, want int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n < want {
		in.eager = max(in.eager-1, 1)
	} else if in.eager < in.polls {
		in.eager++
		in.more.Broadcast()
	}
}

// poll receives until ctx ends. Between failures it pauses with backoff.
func (s *source) poll(ctx context.Context, n int) {
	pause := newPause()
	defer s.intake.until(ctx)()
	patience := time.Second // the first look tells that the queue can be read
	var p pace
	for {
		want, ok := s.intake.take(ctx, n)
		if !ok {
			return
		}
		found, err := s.fetch(want, s.groups.wait(p, patience))
		switch {
		case over(ctx, err):
			return
		case err != nil:
			s.r.disconnected(s.queue.name, err)
			if noQueue(err) { // it was deleted under us
				if err := s.client.provision(ctx, s.layout); err != nil && ctx.Err() == nil {
					s.r.disconnected(s.queue.name, err)
				}
			}
			sleep(ctx, pause.NextBackOff())
		default:
			patience = s.longer(patience, found)
			pause.Reset()
			s.r.consuming()
			s.intake.found(found, want)
			if 0 < found && found < want {
				sleep(ctx, fewPause)
			}
			s.groups.nap(ctx, &p, found, want)
		}
	}
}

// fetch receives up to so many messages, which were taken of the intake, and hands them to the lane.
func (s *source) fetch(want int, wait time.Duration) (found int, err error) {
	msgs, err := s.receive(want, wait)
	if len(msgs) == 0 {
		s.intake.give(want)
		return 0, err
	}
	s.groups.coming()
	defer s.groups.come()
	all := s.take(msgs, time.Now(), s.hides(wait))
	s.intake.give(want - len(all))
	s.hand(all)
	return len(msgs), err
}

// newPause is how long is waited between receives that fail.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRepeat/5),
		backoff.WithMaxInterval(longestRepeat/2), backoff.WithMaxElapsedTime(0))
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
