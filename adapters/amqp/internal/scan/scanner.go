// Package scan reads a queue of RabbitMQ from its head to its end, and keeps what it has read unsettled until it is acked
// or returned, in order.
package scan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	minConsumerBatch = 64
	maxConsumerBatch = 16 << 10
	maxScanChannels  = 200
	quietTime        = 100 * time.Millisecond // before the broker is asked whether there is more
	returnTimeout    = 5 * time.Second        // for the broker to have the returned messages
)

// Scanner reads a queue and keeps its messages, in any number, unsettled until the scan ends. But the broker bounds
// the unacked messages of a consumer. So the scanner uses one consumer after another, and keeps what
// each has delivered. It belongs to one goroutine.
type Scanner struct {
	conn        *amqp091.Connection
	statChannel *amqp091.Channel
	queue       string
	bytes       int // limit of bytes that may be in transit at once

	channels   []*scanChannel          // the last one is in use
	in         <-chan amqp091.Delivery // of the current consumer; nil if there is none
	consumers  int                     // number of consumers so far
	maxBatch   int                     // largest batch of a consumer; grows with each
	batch      int                     // messages for the current consumer
	available  int                     // messages that were available to it at least
	received   int                     // messages that it has delivered
	firstTag   uint64                  // of its messages; those of earlier consumers on its channel have lower tags
	totalBytes int                     // of all bodies so far
	total      int
	left       int       // messages that were ready at the start and were not returned by Next
	ready      int       // messages that were ready at the start
	began      time.Time // the start, to a second
	acked      bool      // a message was acked

	buf []Message // not yet returned by Next
}

// scanChannel is a channel with its unsettled messages. Each consumer has its own, up to a limit, because closing a
// channel is the only way to return its messages in order.
type scanChannel struct {
	ch   *amqp091.Channel
	last uint64   // the highest tag so far
	open []uint64 // tags of the unsettled messages, in order
}

// Message is an unsettled delivery.
type Message struct {
	amqp091.Delivery
	Mark
}

// Mark names an unsettled delivery.
type Mark struct {
	channel *scanChannel
	tag     uint64
}

// New returns a scanner of the messages that are ready now.
func New(conn *amqp091.Connection, queue string, bytes int) (*Scanner, error) {
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	counts, err := link.ConfirmedStat(ch, queue)
	if err != nil {
		_ = ch.Close()
		return nil, err
	}
	began := time.Now().Truncate(time.Second)
	return &Scanner{conn: conn, statChannel: ch, queue: queue, bytes: bytes, left: counts.Ready, ready: counts.Ready, began: began}, nil
}

// AtEnd reports whether Next has returned all messages.
func (h *Scanner) AtEnd() bool { return h.left == 0 }

// Next returns the next message, or io.EOF.
func (h *Scanner) Next(ctx context.Context) (d Message, err error) {
	if h.left == 0 {
		return d, io.EOF
	}
	for quiet := 0; len(h.buf) == 0; {
		if h.in != nil && h.received == h.batch {
			if err := h.stopConsumer(); err != nil {
				return d, err
			}
			continue
		}
		if h.in == nil {
			if err := h.consume(h.left); err != nil {
				return d, err
			}
		}
		select {
		case d, open := <-h.in:
			if !open {
				return Message{}, h.readError(errors.New("its consumer was cancelled"))
			}
			h.add(d)
		case <-ctx.Done():
			return d, ctx.Err()
		case <-time.After(quietTime):
			counts, err := link.Stat(h.statChannel, h.queue)
			if err != nil {
				return d, h.readError(err)
			}
			if quiet++; counts.Ready > 0 || counts.Consumers == 0 { // this scanner is a consumer, so a count of 0 did not come from the queue's leader
				quiet = 0
			}
			if quiet > 2 { // messages in transit have arrived by now
				if err := h.stopConsumer(); err != nil {
					return d, err
				}
				if len(h.buf) == 0 { // the others were deleted, have expired, or another reader has them
					h.left = 0
					return d, io.EOF
				}
			}
		}
	}
	d = h.buf[0]
	h.buf[0] = Message{} // frees its body
	h.buf = h.buf[1:]
	h.left--
	return d, nil
}

// Arrivals returns how many messages have come since the scan began. It reads none.
func (h *Scanner) Arrivals() (int, error) {
	if err := h.stopConsumer(); err != nil {
		return 0, err
	}
	counts, err := link.ConfirmedStat(h.statChannel, h.queue)
	return counts.Ready - (h.ready - h.total), err
}

// consume starts another consumer. It delivers at most left messages, and at most the allowed bytes at once,
// estimated from earlier messages.
func (h *Scanner) consume(left int) error {
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
	h.firstTag = h.lastChannel().last + 1
	in, err := link.StartConsumer(h.lastChannel().ch, h.queue, link.ConsumerTagOf(h.consumers), h.batch)
	if err != nil {
		return h.readError(err)
	}
	h.in = in
	return nil
}

func (h *Scanner) lastChannel() *scanChannel { return h.channels[len(h.channels)-1] }

// stopConsumer ends the current consumer. Its messages stay unsettled.
func (h *Scanner) stopConsumer() error {
	if h.in == nil {
		return nil
	}
	if err := link.StopConsumer(h.lastChannel().ch, link.ConsumerTagOf(h.consumers)); err != nil {
		return h.readError(err)
	}
	for d := range h.in {
		h.add(d)
	}
	h.in = nil
	h.consumers++
	return nil
}

func (h *Scanner) add(d amqp091.Delivery) {
	h.received, h.total, h.totalBytes = h.received+1, h.total+1, h.totalBytes+wire.MemoryOf(&d)
	g := h.lastChannel()
	g.last, g.open = d.DeliveryTag, append(g.open, d.DeliveryTag)
	if h.cameLater(&d) {
		return
	}
	h.buf = append(h.buf, Message{d, Mark{g, d.DeliveryTag}})
}

// cameLater reports whether a message came after the scan began, although its priority brought it before older ones.
// Without a priority the messages that were there at the start come first. The times of deaths have whole seconds, so a
// message that came within the same second is left out, too: a later scan finds it.
func (h *Scanner) cameLater(d *amqp091.Delivery) bool {
	if d.Priority == 0 {
		return false
	}
	at, known := wire.CameAt(d.Headers)
	return known && !at.Before(h.began)
}

// readError returns the error of a queue that can no longer be read.
func (h *Scanner) readError(err error) error {
	return fmt.Errorf("amqp: reading %s: %w; its unsettled messages are in the queue again", h.queue, err)
}

// Ack removes messages and returns how many. It returns when the broker has read the acks.
func (h *Scanner) Ack(all []Mark) (n int, err error) {
	tags := make(map[*scanChannel][]uint64)
	for _, m := range all {
		tags[m.channel] = append(tags[m.channel], m.tag)
	}
	for g, tags := range tags {
		if err := h.ackOn(g, tags); err != nil {
			return n, err
		}
		n += len(tags)
	}
	return n, nil
}

// ackOn is Ack for messages of one channel.
func (h *Scanner) ackOn(g *scanChannel, tags []uint64) error {
	slices.Sort(tags)
	if h.in != nil && g == h.lastChannel() {
		// For each ack the broker sends another message to the consumer that delivered the acked one. The current consumer
		// must not get one beyond the end.
		earlier, _ := slices.BinarySearch(tags, h.firstTag)
		own := len(tags) - earlier
		if h.batch+own > h.available {
			if err := h.stopConsumer(); err != nil {
				return err
			}
		}
		h.batch += own
	}
	h.acked = true
	first := 0 // number of oldest unsettled messages, which one ack covers
	for first < min(len(tags), len(g.open)) && tags[first] == g.open[first] {
		first++
	}
	for i := max(0, first-1); i < len(tags); i++ {
		if err := g.ch.Ack(tags[i], i < first); err != nil {
			return h.readError(err)
		}
	}
	from, _ := slices.BinarySearch(g.open, tags[0]) // acked messages are usually among the latest
	late := slices.DeleteFunc(g.open[from:], func(tag uint64) bool {
		_, acked := slices.BinarySearch(tags, tag)
		return acked
	})
	g.open = g.open[:from+len(late)]
	// The broker answers in order.
	if _, err := link.Stat(g.ch, h.queue); err != nil {
		return h.readError(err)
	}
	return nil
}

// ReturnAll returns all unsettled messages in order, and waits until they are in the queue.
func (h *Scanner) ReturnAll(ctx context.Context) error {
	defer h.statChannel.Close()
	err := h.awaitApplied()
	if err == nil {
		for _, g := range h.channels {
			if err = h.releaseChannel(ctx, g); err != nil {
				break
			}
		}
	}
	for _, g := range h.channels {
		_ = g.ch.Close() // returns its messages if it is still open
	}
	if h.conn.IsClosed() {
		return nil // everything has been returned
	}
	return err
}

// awaitApplied returns when the queue has every ack and no consumer reads any more. It relies on the end of a consumer,
// see confirmAcks of adapters/amqp. If no consumer is active, it starts one, which may get one more message. Then every
// channel learns that the queue has applied the acks sent so far, up to 32. At its next answer it has sent the others.
func (h *Scanner) awaitApplied() error {
	if h.acked && h.in == nil {
		if err := h.consume(1); err != nil {
			return err
		}
	}
	if err := h.stopConsumer(); err != nil || !h.acked {
		return err
	}
	for _, g := range h.channels {
		if _, err := link.Stat(g.ch, h.queue); err != nil {
			return h.readError(err)
		}
	}
	return nil
}

// releaseChannel returns the messages of one channel by closing it.
func (h *Scanner) releaseChannel(ctx context.Context, g *scanChannel) error {
	before, err := link.Stat(h.statChannel, h.queue)
	if err != nil {
		return h.readError(err)
	}
	_ = g.ch.Close() // it may already be closed
	for began := time.Now(); len(g.open) > 0 && time.Since(began) < returnTimeout; {
		now, err := link.Stat(h.statChannel, h.queue)
		if err != nil {
			return h.readError(err)
		}
		if now.Ready >= before.Ready+len(g.open) {
			break
		}
		if err := wait.For(ctx, quietTime/20); err != nil {
			return err
		}
	}
	return nil // or another reader has received some
}
