package amqp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

const (
	firstGrasp = 64
	mostGrasp  = 16 << 10
	mostGrips  = 200
	silence    = 100 * time.Millisecond // after which the broker is asked whether there is more
	returned   = 5 * time.Second        // in which the broker has what was handed back
)

// hand is what was read of a DLQ and neither acked nor handed back. The broker
// bounds what a consumer has in hand, and a hand has no bound: what is passed
// stays in it until the scan ends. So it reads by one consumer after another, and
// what an old one has brought stays. It belongs to one goroutine.
type hand struct {
	conn  *amqp091.Connection
	ask   *amqp091.Channel
	queue string
	bytes int // that may be on their way at once

	grips []*grip                 // the last is the present one
	in    <-chan amqp091.Delivery // of the present consumer; nil where there is none
	names int                     // of consumers so far
	reach int                     // how many one may bring at most: more with each
	grasp int                     // how many the present one may bring
	least int                     // how many it could bring, and there were still that many
	got   int                     // how many it has brought
	sizes int                     // of all bodies so far
	all   int
	acked bool // something was

	buf []grasped // not given to the reader yet
}

// grip is a channel, with what a consumer has brought. There is one for each
// consumer, up to a bound: what a channel had in hand comes back in its order when
// it is closed, and by nothing else.
type grip struct {
	ch   *amqp091.Channel
	open []uint64 // tags of all that is in hand, in order
}

// grasped is a delivery, and by what it is held.
type grasped struct {
	amqp091.Delivery
	by *grip
}

func openHand(conn *amqp091.Connection, queue string, bytes int) (*hand, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	return &hand{conn: conn, ask: ch, queue: queue, bytes: bytes}, nil
}

// next returns the next of at most left messages; ok is false where there are
// fewer: they were deleted, have expired, or another reader has them.
func (h *hand) next(ctx context.Context, left int) (d grasped, ok bool, err error) {
	for quiet := 0; len(h.buf) == 0; {
		if h.in != nil && h.got == h.grasp {
			if err := h.pause(); err != nil {
				return d, false, err
			}
			continue
		}
		if h.in == nil {
			if err := h.consume(left); err != nil {
				return d, false, err
			}
		}
		timer := time.NewTimer(silence)
		select {
		case d, open := <-h.in:
			timer.Stop()
			if !open {
				return grasped{}, false, h.gone(errors.New("its consumer was cancelled"))
			}
			h.take(d)
			h.takeMore()
		case <-ctx.Done():
			timer.Stop()
			return d, false, ctx.Err()
		case <-timer.C:
			ready, consumers, err := stat(h.ask, h.queue)
			if err != nil {
				return d, false, h.gone(err)
			}
			if quiet++; ready > 0 || consumers == 0 { // we read it: who says that nobody does has not asked its leader
				quiet = 0
			}
			if quiet > 2 { // what was on its way then is here by now
				if err := h.pause(); err != nil || len(h.buf) == 0 {
					return d, false, err
				}
			}
		}
	}
	d = h.buf[0]
	h.buf[0] = grasped{} // its body is not to live for as long as the others
	h.buf = h.buf[1:]
	return d, true, nil
}

// takeMore takes what has come besides.
func (h *hand) takeMore() {
	for {
		select {
		case d, open := <-h.in:
			if !open {
				return // the next look tells
			}
			h.take(d)
		default:
			return
		}
	}
}

// consume begins to read by another consumer, which brings no more than left, and
// no more bytes at once than the hand is to have, as far as those before tell.
func (h *hand) consume(left int) error {
	h.reach = max(firstGrasp, min(4*h.reach, mostGrasp))
	h.least = max(1, left)
	h.grasp, h.got = min(h.reach, h.least), 0
	if h.all > 0 {
		h.grasp = min(h.grasp, max(1, h.bytes/max(1, h.sizes/h.all)))
	}
	if len(h.grips) == 0 || len(h.last().open) > 0 && len(h.grips) < mostGrips {
		ch, err := h.conn.Channel()
		if err != nil {
			return fmt.Errorf("amqp: opening a channel: %w", err)
		}
		h.grips = append(h.grips, &grip{ch: ch})
	}
	in, err := read(h.last().ch, h.queue, h.names, h.grasp)
	if err != nil {
		return h.gone(err)
	}
	h.in = in
	return nil
}

func (h *hand) last() *grip { return h.grips[len(h.grips)-1] }

// pause ends the present consumer. What it has brought stays in hand.
func (h *hand) pause() error {
	if h.in == nil {
		return nil
	}
	if err := h.last().ch.Cancel(tag(h.names), false); err != nil {
		return h.gone(err)
	}
	for d := range h.in {
		h.take(d)
	}
	h.in = nil
	h.names++
	return nil
}

func (h *hand) take(d amqp091.Delivery) {
	h.got, h.all, h.sizes = h.got+1, h.all+1, h.sizes+len(d.Body)
	g := h.last()
	g.open = append(g.open, d.DeliveryTag)
	h.buf = append(h.buf, grasped{d, g})
}

// gone says why nothing can be read any more.
func (h *hand) gone(err error) error {
	return fmt.Errorf("amqp: reading %s: %w; its unsettled messages are in the queue again", h.queue, err)
}

// ack removes messages of one grip for good. It returns when the broker has read that.
func (h *hand) ack(g *grip, tags []uint64) error {
	if h.in != nil && g == h.last() {
		// For each ack the broker sends the consumer another message, which must not
		// be one behind the end.
		if h.grasp+len(tags) > h.least {
			if err := h.pause(); err != nil {
				return err
			}
		}
		h.grasp += len(tags)
	}
	h.acked = true
	slices.Sort(tags)
	first := 0 // how many are the oldest in hand, which one ack covers
	for first < min(len(tags), len(g.open)) && tags[first] == g.open[first] {
		first++
	}
	for i := max(0, first-1); i < len(tags); i++ {
		if err := g.ch.Ack(tags[i], i < first); err != nil {
			return h.gone(err)
		}
	}
	from, _ := slices.BinarySearch(g.open, tags[0]) // they are among the latest
	late := slices.DeleteFunc(g.open[from:], func(tag uint64) bool {
		_, acked := slices.BinarySearch(tags, tag)
		return acked
	})
	g.open = g.open[:from+len(late)]
	// It answers in the order in which it was asked.
	if _, _, err := stat(g.ch, h.queue); err != nil {
		return h.gone(err)
	}
	return nil
}

// back hands back what is in hand, in its order, and returns when it lies there.
func (h *hand) back(ctx context.Context) error {
	defer h.ask.Close()
	err := h.applied()
	if err == nil {
		for _, g := range h.grips {
			if err = h.release(ctx, g); err != nil {
				break
			}
		}
	}
	for _, g := range h.grips {
		_ = g.ch.Close() // where it is open still; what it has comes back
	}
	if h.conn.IsClosed() {
		return nil // all has come back
	}
	return err
}

// applied returns when the queue has every ack, and no consumer reads any more. It rests on the end of a consumer, see
// [applied]: each channel has sent its acks before, up to 32, and gets to know then that the queue has applied them. When it
// answers once more it has sent the others. A consumer that begins for that alone brings the last in hand.
func (h *hand) applied() error {
	if h.acked && h.in == nil {
		if err := h.consume(1); err != nil {
			return err
		}
	}
	if err := h.pause(); err != nil || !h.acked {
		return err
	}
	for _, g := range h.grips {
		if _, _, err := stat(g.ch, h.queue); err != nil {
			return h.gone(err)
		}
	}
	return nil
}

// release hands back what one grip has, by closing its channel.
func (h *hand) release(ctx context.Context, g *grip) error {
	before, _, err := stat(h.ask, h.queue)
	if err != nil {
		return h.gone(err)
	}
	_ = g.ch.Close() // it may be closed already
	for began := time.Now(); len(g.open) > 0 && time.Since(began) < returned; {
		ready, _, err := stat(h.ask, h.queue)
		if err != nil {
			return h.gone(err)
		}
		if ready >= before+len(g.open) {
			break
		}
		if err := pause(ctx, silence/20); err != nil {
			return err
		}
	}
	return nil // or another reader has taken some
}
