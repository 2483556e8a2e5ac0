package amqp

import (
	"sync/atomic"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
)

// delivery is one message on one channel, from when the channel brings it until it is acked or given back. The files in the
// order of its life:
//
//	subscriber.go, open.go        who reads, and has an engine
//	consume.go, consumebatch.go   handlers of deliveries
//	source.go                     one channel that reads a queue: the delivery comes in hand, and is settled or given back
//	window.go                     how many the broker sends, and when none
//	record.go, headers.go         what is the user's, and what is redeliver's
//	arrive.go                     what is to be done with it
//	codec.go                      what the handler and the policy see of it
//	store.go, fit.go, sender.go   its copy is written
//	acks.go                       it is acked
//	suspects.go                   it runs alone, from a queue of suspects
//	inplace.go, crashnotes.go     it runs alone, in its place
type delivery struct {
	record
	acked // where it stands among those of its channel

	tag         uint64
	arrived     time.Time
	redelivered bool // it was delivered before
	m           *driver.Message[*delivery]

	state   *redeliver.State // what it brought, or what this process remembers; nil for a first delivery
	rewrite bool             // it is written anew because it has come back often
	running bool             // with a handler

	acker    acker       // what the handler of its first attempt here says by the delivery's own methods
	answered atomic.Bool // there was such an attempt

	// Of a suspect: the end of its turn, and whether its ack was sent; or, in its place, its turn.
	over   *turnEnd
	proven bool
	inTurn *inPlaceTurn

	// Of a message that goes to the DLQ in parts; one write at a time uses them.
	maxBody int // bytes that the broker takes, of a message that it refused as too large
	parts   int // of its body, that the DLQ has
}

// slab is room for deliveries that a channel brings one after another, so that a message that succeeds costs no allocation of
// ours. It lives as long as one of them: a message that stays long keeps those read beside it in memory. So a slab ends early
// when their bodies are many, and a channel that brings little makes small ones. What a slab keeps is then at most maxSlab
// messages and maxSlabBytes, and the last message.
type slab struct {
	deliveries []delivery
	bytes      int // of bodies in it
	size       int
}

const (
	maxSlab      = 64
	maxSlabBytes = 64 << 10
)

// delivery makes room for a delivery.
func (s *slab) delivery(d *amqp091.Delivery) *delivery {
	if len(s.deliveries) == 0 || s.bytes > maxSlabBytes {
		s.size, s.bytes = min(max(1, 2*s.size), maxSlab), 0
		s.deliveries = make([]delivery, s.size)
	}
	x := &s.deliveries[0]
	s.deliveries = s.deliveries[1:]
	s.bytes += len(d.Body)
	x.Delivery, x.tag, x.arrived, x.redelivered = *d, d.DeliveryTag, time.Now(), d.Redelivered
	// It is the source's to ack.
	x.Acknowledger, x.DeliveryTag, x.ConsumerTag = nil, 0, ""
	return x
}
