package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/cenkalti/backoff/v4"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	// partialBatchPause is the pause after a receive that was partly full, so that later messages share the next
	// request.
	partialBatchPause = 20 * time.Millisecond
	// Default bounds of the messages that a lane holds, waiting ones included. The count is higher if more may be in
	// flight.
	defaultMaxHeldMessages = 10_000
	defaultMaxHeldBytes    = 128 << 20
)

// maxHeld bounds what a lane holds. A receive begins only if a full request of the largest messages fits.
type maxHeld struct{ messages, bytes int }

// maxHeld returns a limit with room for all messages that may be in flight.
func (c *Config) maxHeld() maxHeld {
	return maxHeld{max(defaultMaxHeldMessages, c.MaxInFlight+c.MaxRetriesInFlight+api.MaxBatch*c.Pollers), defaultMaxHeldBytes}
}

// room returns how many more messages may be requested.
func (b maxHeld) room(messages, bytes, largest int) int {
	return min(b.messages-messages, (b.bytes-bytes)/max(1, largest))
}

// intake decides how many messages may be received now. Pollers reserve room; the lane sets how much there is.
type intake struct {
	mu       sync.Mutex
	changed  sync.Cond
	size     int // messages in a request; a request fits while all slots are in use
	accept   int // how many more the lane accepts
	reserved int // messages that are requested, or wait for the lane
	// heldRoom returns how many messages are settled and not yet deleted, and how many more may be held. It is called
	// with mu held.
	heldRoom      func() (settled, more int)
	activePollers int // grows while receives are full, else shrinks
	maxPollers    int
}

func newIntake(maxAhead, pollers int, heldRoom func() (settled, more int)) *intake {
	in := &intake{size: min(api.MaxBatch, max(1, maxAhead/2)), heldRoom: heldRoom, activePollers: 1, maxPollers: pollers}
	in.changed.L = &in.mu
	return in
}

// setRoom sets how many more messages the lane accepts. got is how many it got since the last call.
func (in *intake) setRoom(accept, got int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.accept = accept
	in.reserved -= got
	in.changed.Broadcast()
}

// wakePollers makes pollers check again whether there is room.
func (in *intake) wakePollers() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.changed.Broadcast()
}

// reserveRoom waits until there is room for a whole request and poller n is needed. After the end of ctx the caller
// must wake it, and it returns false.
func (in *intake) reserveRoom(ctx context.Context, poller int) (int, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for ctx.Err() == nil {
		if settled, more := in.heldRoom(); poller < in.activePollers && min(in.accept-settled, more)-in.reserved >= in.size {
			in.reserved += in.size
			return in.size, true
		}
		in.changed.Wait()
	}
	return 0, false
}

// releaseRoom gives back the part of a reservation for which no messages came.
func (in *intake) releaseRoom(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.reserved -= n
	in.changed.Broadcast()
}

// adaptPollers adds an active poller after a full receive, and removes one otherwise.
func (in *intake) adaptPollers(found, want int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if found < want {
		in.activePollers = max(in.activePollers-1, 1)
	} else if in.activePollers < in.maxPollers {
		in.activePollers++
		in.changed.Broadcast()
	}
}

// poll receives until ctx ends, as poller n. After failures it backs off.
func (s *source) poll(ctx context.Context, n int) {
	pause := newReceiveBackoff()
	receiveWait := time.Second // a short first receive soon shows that the queue can be read
	var p pauseLength
	for {
		want, ok := s.intake.reserveRoom(ctx, n)
		if !ok {
			return
		}
		found, err := s.fetchMessages(want, s.groups.receiveWait(p, receiveWait))
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			s.r.report(redeliver.ChangeDisconnected, "reading "+s.queue.Name+"; trying again with backoff", err)
			if api.IsMissingQueue(err) { // it was deleted while we read it
				_ = s.client.provision(ctx, s.layout) // after an error the next receive fails too
			}
			_ = wait.For(ctx, pause.NextBackOff())
		default:
			receiveWait = s.nextWait(receiveWait, found)
			pause.Reset()
			s.r.report(redeliver.ChangeConsuming, "", nil)
			s.intake.adaptPollers(found, want)
			if 0 < found && found < want {
				_ = wait.For(ctx, partialBatchPause)
			}
			s.groups.pausePoller(ctx, &p, found, want)
		}
	}
}

// fetchMessages receives up to want messages, for which the caller has reserved room, and passes them to the lane.
func (s *source) fetchMessages(want int, wait time.Duration) (found int, err error) {
	msgs, err := s.receive(want, wait)
	if len(msgs) == 0 {
		s.intake.releaseRoom(want)
		return 0, err
	}
	all := s.registerMessages(msgs, time.Now(), s.visibilityFor(wait))
	s.intake.releaseRoom(want - len(all))
	s.passToLane(all)
	return len(msgs), err
}

// newReceiveBackoff returns the backoff between receives that fail.
func newReceiveBackoff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(minRetryPause/5),
		backoff.WithMaxInterval(maxRetryPause/2), backoff.WithMaxElapsedTime(0))
}

// A receive that waits for messages (a long poll) saves requests, but is slow to end. SQS does not notice that its
// client has gone: it may still deliver a message to that receive, and hides the message from all for the receive's
// visibility timeout (aws/aws-sdk-js, issue 2350). Therefore:
//
//   - While messages come, receives are short, and Close waits for them.
//   - On an idle standard queue receives are long. They hide messages only briefly at first, and Close cuts them short.
//   - On a FIFO queue Close waits for all receives, because a hidden message would block its group.
const (
	// maxAwaitedWait is the longest wait of a receive that Close waits for.
	maxAwaitedWait = 2 * time.Second
	// maxShortVisibility bounds how long a longer receive hides its messages. A heartbeat extends it before half of
	// it is over.
	maxShortVisibility = 10 * time.Second
	// minAnswerTimeout is the least time that the answer of a receive may take beyond its wait. Messages in an answer
	// that is not read stay hidden from all.
	minAnswerTimeout = 5 * time.Second
)

// waitTime returns the longest wait of a receive.
func (s *source) waitTime() time.Duration {
	switch own := s.client.cfg.WaitTime; {
	case own > 0:
		return own
	case s.queue.FIFO:
		return defaultFIFOWaitTime
	default:
		return defaultWaitTime
	}
}

// nextWait returns the wait of the receive that follows one with the given wait and result.
func (s *source) nextWait(wait time.Duration, found int) time.Duration {
	if found > 0 {
		wait = maxAwaitedWait / 2
	}
	return min(2*wait, s.waitTime())
}

// isCutAtClose reports whether a receive with this wait is cut short when the subscriber closes.
func (s *source) isCutAtClose(wait time.Duration) bool { return wait > maxAwaitedWait && !s.queue.FIFO }

// visibilityFor returns how long a receive with this wait hides its messages.
func (s *source) visibilityFor(wait time.Duration) time.Duration {
	visibility := s.client.cfg.VisibilityTimeout
	if s.isCutAtClose(wait) {
		return min(visibility, maxShortVisibility)
	}
	return visibility
}

// receive sends one receive request, which waits for messages.
func (s *source) receive(maxMessages int, wait time.Duration) ([]types.Message, error) {
	cfg, parent := &s.client.cfg, s.receiveCtx
	if s.isCutAtClose(wait) {
		parent = s.longReceiveCtx
	}
	ctx, cancel := context.WithTimeout(parent, wait+max(cfg.SendTimeout, minAnswerTimeout))
	defer cancel()
	return s.queue.Receive(ctx, maxMessages, wait, s.visibilityFor(wait))
}
