package sqs

import (
	"context"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/delayqueue"
)

// A message that kills its process comes back, and with it everything that the
// process had in hand. SQS's count of receives rises for all of them, and for
// lost connections and shutdowns too, so it charges nobody: it marks suspects. A
// suspect is moved to a queue of its own. From there one is received at a time,
// when nothing else of that client runs, and nothing else begins until it is
// settled. One that comes back from there without an answer was alone when its
// process died.

const (
	// suspicion is how often a message must have come back to be a suspect: a
	// restart brings back all that was in hand, and is no crash.
	suspicion = 2
	// How often the queue of suspects is looked at: each look is a request.
	inquiry     = 10 * time.Second
	inquirySoon = time.Second // for a while after one was there
	inquiryLong = time.Minute
)

// feed gives the lane one suspect at a time, each in a turn of its own, until ctx
// ends.
func (l *lane) feed(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var last time.Time // when there was one
	for {
		poked := false
		select {
		case <-timer.C:
		case <-l.r.poke:
			poked = true
		case <-ctx.Done():
			return
		}
		if poked || l.someWait(ctx) {
			last = time.Now()
			for l.feedOne(ctx) {
				last = time.Now()
			}
		}
		next := inquiry
		if time.Since(last) < inquiryLong {
			next = inquirySoon
		}
		timer.Reset(next)
	}
}

// someWait tells whether there are messages in the queue, as far as SQS knows.
func (l *lane) someWait(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, l.r.client.cfg.SendTimeout)
	defer cancel()
	name := types.QueueAttributeNameApproximateNumberOfMessages
	out, err := l.r.client.api.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &l.queue.url, AttributeNames: []types.QueueAttributeName{name},
	})
	if err != nil {
		if noQueue(err) {
			_ = l.r.client.provision(ctx, l.r.layout) // who writes to it says why
		}
		return code(err) == "AccessDenied" // then only a receive tells
	}
	n, err := strconv.Atoi(out.Attributes[string(name)])
	return err != nil || n > 0
}

// feedOne runs one suspect, and returns whether there was one.
func (l *lane) feedOne(ctx context.Context) bool {
	t := l.r.client.turn
	if !t.Take(ctx, &l.r.sub.Gate) {
		return false
	}
	defer t.Give()
	msgs, err := l.receive(1, time.Second)
	if err != nil {
		l.unsure.Add(1) // an answer that got lost counts as a receive, and was no crash
	}
	if len(msgs) == 0 { // another process has it
		return false
	}
	for _, of := range []chan struct{}{l.landed, l.cleared} { // what is told of one before
		select {
		case <-of:
		default:
		}
	}
	l.in <- arrival{messages: msgs, at: time.Now(), hidden: l.r.client.cfg.VisibilityTimeout} // also when ctx has ended: see drain
	select {
	case <-l.landed:
	case <-l.ctx.Done():
		return false
	}
	// While it is settled and still there, nothing else may kill the process: it
	// would come back, and be charged.
	timer := time.NewTimer(l.r.client.cfg.SendTimeout)
	defer timer.Stop()
	select {
	case <-l.cleared:
	case <-timer.C: // it cannot be deleted; the others must not wait for ever
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// acquit moves the suspects that have not answered within the drain timeout back
// to their queue, uncharged: to leave them would count as a crash.
func (l *lane) acquit() {
	ctx, cancel := context.WithTimeout(context.Background(), l.r.client.cfg.SendTimeout)
	defer cancel()
	for _, t := range l.tickets {
		e := t.entry
		if e == nil {
			continue
		}
		// Its handler may still run, and so may what it has begun to write.
		again := &entry{lane: l, ticket: t, rec: e.rec, state: e.state, arrived: e.arrived}
		again.rec.entry = again
		d := &delayqueue.Delivery{Sub: l.r.sub, Record: &again.rec, Waited: e.state, ID: idOf(&e.rec.native)}
		if e.state == nil {
			d.Source.Timestamp = sent(&e.rec.native)
		}
		st := d.State()
		if e.d != nil {
			st = e.d.State()
		}
		if _, err := l.r.fwd.suspect(ctx, d, &st); err == nil {
			l.settle(t)
		}
	}
}
