// Package pausemark is the mark of a paused subscription on RabbitMQ.
//
// A subscription is paused while its marker queue, "<queue>.retry.paused", has a message, whose body is the mark. The
// queue always exists, because a passive declaration of a missing queue is an error in the broker's log. A process
// counts the messages at each look. Only if there is one does it get the message, and return it. While it has the
// message, the queue looks empty to others, as a queue without a leader does. So a process accepts the end of a pause
// only after several looks in a row.
package pausemark

import (
	"context"
	"fmt"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	firstReads  = 2 // of a process that starts
	maxReads    = 5
	readPause   = 200 * time.Millisecond
	missingLook = 5 * time.Minute // between looks for a queue that is missing
)

// Queue is the marker queue of one subscription.
type Queue struct {
	Name string
	Link *link.Link
}

// Reader reads the mark of one subscription again and again.
type Reader struct {
	Queue Queue

	paused   bool // at the last look
	looked   bool
	nextLook time.Time
}

// Look returns the mark, or nil.
func (r *Reader) Look(ctx context.Context) (*redeliver.PauseMark, error) {
	if time.Now().Before(r.nextLook) {
		return nil, nil //nolint:nilnil // there is none
	}
	mark, exists, err := r.Queue.read(ctx, r.tries())
	if err != nil {
		return nil, err
	}
	r.paused, r.looked = mark != nil, true
	if !exists {
		r.nextLook = time.Now().Add(missingLook)
	}
	return mark, nil
}

// tries returns how many times in a row the queue must look empty before it counts as empty. If one call of Look misses
// a pause, the next call finds it.
func (r *Reader) tries() int {
	switch {
	case !r.looked:
		return firstReads
	case r.paused:
		return maxReads
	default:
		return 1
	}
}

// readMark returns the mark in a marker queue, or nil if the queue looks empty the given number of times.
func readMark(ctx context.Context, ch *amqp091.Channel, queue string, tries int) (*redeliver.PauseMark, error) {
	for try := 1; ; try++ {
		counts, err := link.Stat(ch, queue)
		switch {
		case err != nil:
			return nil, err
		case counts.Ready > 0:
			mark, err := getMark(ch, queue)
			if err != nil || mark != nil {
				return mark, err
			}
		}
		if try == tries {
			return nil, nil //nolint:nilnil // there is none
		}
		if err := wait.For(ctx, readPause); err != nil {
			return nil, err
		}
	}
}

// getMark returns the mark, and leaves it in the queue. It returns nil if another process has it now.
func getMark(ch *amqp091.Channel, queue string) (*redeliver.PauseMark, error) {
	d, ok, err := ch.Get(queue, false)
	if err != nil {
		return nil, fmt.Errorf("amqp: reading queue %s: %w", queue, link.DescribeDenial(link.MethodGet, queue, err))
	}
	if !ok {
		return nil, nil //nolint:nilnil // another process has it
	}
	mark := redeliver.ParsePauseMark(string(d.Body))
	if err := d.Nack(false, true); err != nil {
		return nil, fmt.Errorf("amqp: returning the message of queue %s: %w", queue, err)
	}
	return &mark, nil
}

// Mark returns the mark, or nil.
func (q Queue) Mark(ctx context.Context) (*redeliver.PauseMark, error) {
	mark, _, err := q.read(ctx, firstReads)
	return mark, err
}

// read is readMark on a channel of its own. It also reports whether the queue exists.
func (q Queue) read(ctx context.Context, tries int) (mark *redeliver.PauseMark, exists bool, err error) {
	mark, err = link.Call(ctx, q.Link, q.Name, func(ch *amqp091.Channel) (*redeliver.PauseMark, error) {
		return readMark(ctx, ch, q.Name, tries)
	})
	if link.IsNotFound(err) {
		return nil, false, nil
	}
	return mark, true, err
}

// Clear empties the queue. It reports whether the queue exists.
func (q Queue) Clear(ctx context.Context) (exists bool, err error) {
	_, err = link.Call(ctx, q.Link, q.Name, func(ch *amqp091.Channel) (none struct{}, err error) {
		for empty := 0; empty < maxReads; { // a process that reads the mark returns it
			n, err := ch.QueuePurge(q.Name, false)
			if err != nil {
				return none, fmt.Errorf("amqp: emptying queue %s: %w", q.Name, err)
			}
			if empty++; n > 0 {
				empty = 0
			}
			if err := wait.For(ctx, readPause/2); err != nil {
				return none, err
			}
		}
		return none, nil
	})
	if link.IsNotFound(err) {
		return false, nil
	}
	return true, err
}
