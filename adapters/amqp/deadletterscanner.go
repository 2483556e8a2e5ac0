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
	minConsumerBatch = 64
	maxConsumerBatch = 16 << 10
	maxScanChannels  = 200
	quietTime        = 100 * time.Millisecond // after which the broker is asked whether there is more
	returnTimeout    = 5 * time.Second        // in which the broker has what was handed back
)

// scanner is what was read of a DLQ and neither acked nor handed back. The broker
// bounds what a consumer has in hand, and a hand has no bound: what is passed
// stays in it until the scan ends. So it reads by one consumer after another, and
// what an old one has brought stays. It belongs to one goroutine.
type scanner struct {
	conn        *amqp091.Connection
	statChannel *amqp091.Channel
	queue       string
	bytes       int // that may be on their way at once

	channels   []*scanChannel          // the last is the present one
	in         <-chan amqp091.Delivery // of the present consumer; nil where there is none
	consumers  int                     // of consumers so far
	maxBatch   int                     // how many one may bring at most: more with each
	batch      int                     // how many the present one may bring
	available  int                     // how many it could bring, and there were still that many
	received   int                     // how many it has brought
	totalBytes int                     // of all bodies so far
	total      int
	acked      bool // something was

	buf []scanned // not given to the reader yet
}

// scanChannel is a channel, with what a consumer has brought. There is one for each
// consumer, up to a bound: what a channel had in hand comes back in its order when
// it is closed, and by nothing else.
type scanChannel struct {
	ch   *amqp091.Channel
	open []uint64 // tags of all that is in hand, in order
}

// scanned is a delivery, and by what it is held.
type scanned struct {
	amqp091.Delivery
	channel *scanChannel
}

func newScanner(conn *amqp091.Connection, queue string, bytes int) (*scanner, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	return &scanner{conn: conn, statChannel: ch, queue: queue, bytes: bytes}, nil
}

// next returns the next of at most left messages; ok is false where there are
// fewer: they were deleted, have expired, or another reader has them.
func (h *scanner) next(ctx context.Context, left int) (d scanned, ok bool, err error) {
	for quiet := 0; len(h.buf) == 0; {
		if h.in != nil && h.received == h.batch {
			if err := h.stopConsumer(); err != nil {
				return d, false, err
			}
			continue
		}
		if h.in == nil {
			if err := h.consume(left); err != nil {
				return d, false, err
			}
		}
		timer := time.NewTimer(quietTime)
		select {
		case d, open := <-h.in:
			timer.Stop()
			if !open {
				return scanned{}, false, h.readError(errors.New("its consumer was cancelled"))
			}
			h.add(d)
			h.drain()
		case <-ctx.Done():
			timer.Stop()
			return d, false, ctx.Err()
		case <-timer.C:
			ready, consumers, err := stat(h.statChannel, h.queue)
			if err != nil {
				return d, false, h.readError(err)
			}
			if quiet++; ready > 0 || consumers == 0 { // we read it: who says that nobody does has not asked its leader
				quiet = 0
			}
			if quiet > 2 { // what was on its way then is here by now
				if err := h.stopConsumer(); err != nil || len(h.buf) == 0 {
					return d, false, err
				}
			}
		}
	}
	d = h.buf[0]
	h.buf[0] = scanned{} // its body is not to live for as long as the others
	h.buf = h.buf[1:]
	return d, true, nil
}

// drain takes what has come besides.
func (h *scanner) drain() {
	for {
		select {
		case d, open := <-h.in:
			if !open {
				return // the next look tells
			}
			h.add(d)
		default:
			return
		}
	}
}

// consume begins to read by another consumer, which brings no more than left, and
// no more bytes at once than the hand is to have, as far as those before tell.
func (h *scanner) consume(left int) error {
	h.maxBatch = max(minConsumerBatch, min(4*h.maxBatch, maxConsumerBatch))
	h.available = max(1, left)
	h.batch, h.received = min(h.maxBatch, h.available), 0
	if h.total > 0 {
		h.batch = min(h.batch, max(1, h.bytes/max(1, h.totalBytes/h.total)))
	}
	if len(h.channels) == 0 || len(h.lastChannel().open) > 0 && len(h.channels) < maxScanChannels {
		ch, err := h.conn.Channel()
		if err != nil {
			return fmt.Errorf("amqp: opening a channel: %w", err)
		}
		h.channels = append(h.channels, &scanChannel{ch: ch})
	}
	in, err := read(h.lastChannel().ch, h.queue, h.consumers, h.batch)
	if err != nil {
		return h.readError(err)
	}
	h.in = in
	return nil
}

func (h *scanner) lastChannel() *scanChannel { return h.channels[len(h.channels)-1] }

// stopConsumer ends the present consumer. What it has brought stays in hand.
func (h *scanner) stopConsumer() error {
	if h.in == nil {
		return nil
	}
	if err := h.lastChannel().ch.Cancel(tag(h.consumers), false); err != nil {
		return h.readError(err)
	}
	for d := range h.in {
		h.add(d)
	}
	h.in = nil
	h.consumers++
	return nil
}

func (h *scanner) add(d amqp091.Delivery) {
	h.received, h.total, h.totalBytes = h.received+1, h.total+1, h.totalBytes+len(d.Body)
	g := h.lastChannel()
	g.open = append(g.open, d.DeliveryTag)
	h.buf = append(h.buf, scanned{d, g})
}

// readError says why nothing can be read any more.
func (h *scanner) readError(err error) error {
	return fmt.Errorf("amqp: reading %s: %w; its unsettled messages are in the queue again", h.queue, err)
}

// ack removes messages of one grip for good. It returns when the broker has read that.
func (h *scanner) ack(g *scanChannel, tags []uint64) error {
	if h.in != nil && g == h.lastChannel() {
		// For each ack the broker sends the consumer another message, which must not
		// be one behind the end.
		if h.batch+len(tags) > h.available {
			if err := h.stopConsumer(); err != nil {
				return err
			}
		}
		h.batch += len(tags)
	}
	h.acked = true
	slices.Sort(tags)
	first := 0 // how many are the oldest in hand, which one ack covers
	for first < min(len(tags), len(g.open)) && tags[first] == g.open[first] {
		first++
	}
	for i := max(0, first-1); i < len(tags); i++ {
		if err := g.ch.Ack(tags[i], i < first); err != nil {
			return h.readError(err)
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
		return h.readError(err)
	}
	return nil
}

// returnAll hands back what is in hand, in its order, and returns when it lies there.
func (h *scanner) returnAll(ctx context.Context) error {
	defer h.statChannel.Close()
	err := h.applied()
	if err == nil {
		for _, g := range h.channels {
			if err = h.releaseChannel(ctx, g); err != nil {
				break
			}
		}
	}
	for _, g := range h.channels {
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
func (h *scanner) applied() error {
	if h.acked && h.in == nil {
		if err := h.consume(1); err != nil {
			return err
		}
	}
	if err := h.stopConsumer(); err != nil || !h.acked {
		return err
	}
	for _, g := range h.channels {
		if _, _, err := stat(g.ch, h.queue); err != nil {
			return h.readError(err)
		}
	}
	return nil
}

// releaseChannel hands back what one grip has, by closing its channel.
func (h *scanner) releaseChannel(ctx context.Context, g *scanChannel) error {
	before, _, err := stat(h.statChannel, h.queue)
	if err != nil {
		return h.readError(err)
	}
	_ = g.ch.Close() // it may be closed already
	for began := time.Now(); len(g.open) > 0 && time.Since(began) < returnTimeout; {
		ready, _, err := stat(h.statChannel, h.queue)
		if err != nil {
			return h.readError(err)
		}
		if ready >= before+len(g.open) {
			break
		}
		if err := sleep(ctx, quietTime/20); err != nil {
			return err
		}
	}
	return nil // or another reader has taken some
}
