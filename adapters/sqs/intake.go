package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
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

// intake decides how many messages may be received now: pollers take, the lane
// says how many there are.
type intake struct {
	mu    sync.Mutex
	more  sync.Cond
	most  int // messages that are neither waiting nor behind one
	room  int // may be asked for
	taken int // are asked for
	eager int // how many pollers are at it: as many as find full batches
	polls int
}

func newIntake(most, pollers int) *intake {
	in := &intake{most: most, room: most, eager: 1, polls: pollers}
	in.more.L = &in.mu
	return in
}

// set says how much room there is.
func (in *intake) set(room int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	more := room > in.room
	in.room = room
	if more {
		in.more.Broadcast()
	}
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
	want := min(batchMost, in.most)
	for ctx.Err() == nil {
		if n < in.eager && in.room-in.taken >= want {
			in.taken += want
			return want, true
		}
		in.more.Wait()
	}
	return 0, false
}

// give takes a take back: the lane has what came, and counts it.
func (in *intake) give(n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.taken -= n
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

// arrival is what one receive brought.
type arrival struct {
	messages []types.Message
	at       time.Time
	taken    int
	hidden   time.Duration // from at on
}

// poll receives until ctx ends. Between failures it pauses with backoff.
func (l *lane) poll(ctx context.Context, n int) {
	pause := newPause()
	defer l.intake.until(ctx)()
	patience := time.Second // the first look tells that the queue can be read
	var p pace
	for {
		want, ok := l.intake.take(ctx, n)
		if !ok {
			return
		}
		wait := l.groups.wait(p, patience)
		msgs, err := l.receive(want, wait)
		l.came(msgs, want, l.hides(wait))
		switch {
		case over(ctx, err):
			return
		case err != nil:
			l.r.disconnected(l.queue.name, err)
			if noQueue(err) { // it was deleted under us
				if err := l.r.client.provision(ctx, l.r.layout); err != nil && ctx.Err() == nil {
					l.r.disconnected(l.queue.name, err)
				}
			}
			sleep(ctx, pause.NextBackOff())
		default:
			patience = l.longer(patience, len(msgs))
			pause.Reset()
			l.r.consuming()
			l.intake.found(len(msgs), want)
			if 0 < len(msgs) && len(msgs) < want {
				sleep(ctx, fewPause)
			}
			l.groups.nap(ctx, &p, len(msgs), want)
		}
	}
}

// newPause is how long is waited between receives that fail.
func newPause() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(firstRepeat/5),
		backoff.WithMaxInterval(longestRepeat/2), backoff.WithMaxElapsedTime(0))
}

// came hands the lane what a receive for want messages brought, also when the
// subscription has ended: see drain.
func (l *lane) came(msgs []types.Message, want int, hidden time.Duration) {
	if len(msgs) > 0 {
		l.groups.coming()
		l.in <- arrival{msgs, time.Now(), want, hidden}
	} else {
		l.intake.give(want)
	}
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
