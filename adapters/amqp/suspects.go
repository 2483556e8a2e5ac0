package amqp

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message that kills its process comes back, and with it everything that the
// process had prefetched. The broker's count of deliveries rises for all of them,
// and for lost connections and shutdowns too, so it charges nobody. What came back
// often is written anew to the way back, where it is counted from the beginning: the
// broker drops what reaches its limit. When that has happened some times the message is
// a suspect and is moved to a queue of its own. From there one is fetched
// at a time, when nothing else of that client runs, and nothing else begins until
// it is settled and the broker has its ack. One that comes back from there without
// an answer, and whose channel this process has not seen ending, was alone when
// its process died.

// A message that comes back maxReturns times is written anew, maxCopies times to the
// way back, and then to the suspects. Classic queues say only whether one has come back,
// so from there it is written anew the first time.
const (
	maxReturns = 5
	maxCopies  = 2
)

// suspicion is how often a message that keeps its place must have come back to be a
// suspect: a restart hands back all that was prefetched, and is no crash.
const suspicion = 2

// renewCopy writes a message anew that has come back often. It waits for no slot, no turn
// and no room: each channel that ends meanwhile counts, too. One that still waits has
// killed nobody, and goes on waiting.
func (l *lane) renewCopy(e *entry, waits bool) {
	switch {
	case waits:
		e.then = toLevel
	case e.copies >= maxCopies:
		e.then = toSuspects
	default:
		e.then = toRetry
	}
	l.flight.Squeeze()
	l.flight.Begin(e)
	l.pass(e)
}

func copiesOf(headers amqp.Table) int {
	n, _ := headers[headerCopies].(int32)
	return max(0, int(n))
}

// inquiry is how often the queue of suspects is looked at.
const inquiry = time.Second

// verdict is that a suspect's turn is over.
type verdict struct {
	id    string
	acked bool // the ack was written
}

// feed gives a lane one suspect at a time, each in a turn of its own, until ctx
// ends or the channel is gone. It belongs to a goroutine of its own.
func (l *lane) feed(ctx context.Context, in chan<- amqp.Delivery) {
	defer close(in)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gone := make(chan struct{})
	closed := l.ch.NotifyClose(make(chan *amqp.Error, 1))
	go func() { // it ends with the channel, which the lane closes
		<-closed //nolint:errcheck // The lane says why.
		close(gone)
		cancel()
	}()
	look := time.NewTicker(inquiry)
	defer look.Stop()
	for {
		q, err := l.ch.QueueDeclarePassive(l.queue, true, false, false, false, nil)
		if err != nil {
			return
		}
		for more := q.Messages > 0; more; {
			var ok bool
			if more, ok = l.feedOne(ctx, gone, in); !ok {
				return
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return
		}
	}
}

// feedOne runs one suspect, if there is one. ok is false at the end.
func (l *lane) feedOne(ctx context.Context, gone <-chan struct{}, in chan<- amqp.Delivery) (more, ok bool) {
	t := l.r.client.turn
	if !t.Take(ctx, &l.r.sub.Gate) {
		return false, false
	}
	defer t.Give()
	d, found, err := l.ch.Get(l.queue, false)
	if err != nil {
		return false, false
	}
	if !found { // another process has it
		return false, true
	}
	select {
	case in <- d: // also when ctx has ended: see drain
	case <-l.ctx.Done():
		return false, false
	}
	select {
	case v := <-l.landed:
		return l.proven(v)
	case <-gone:
		return false, false
	case <-l.ctx.Done():
		return false, false
	}
}

// proven returns when the broker has the ack of a suspect. Before that nothing
// else may run: if it killed the process, the suspect would come back and be
// charged. The broker answers on a channel in the order in which it was asked.
func (l *lane) proven(v verdict) (more, ok bool) {
	q, err := l.ch.QueueDeclarePassive(l.queue, true, false, false, false, nil)
	known := &l.r.client.turn.Known
	switch {
	case err == nil && v.acked:
		known.Settled(v.id)
	case v.acked: // it may come back for that, and then it has killed nobody
		known.Add(v.id)
	}
	return err == nil && q.Messages > 0, err == nil
}

// deliveryCount is how often a quorum queue delivered a message before. From RabbitMQ
// 4.3 on it does not count what is handed back, and says how often it was acquired.
func deliveryCount(headers amqp.Table) (n int, counted bool) {
	switch v := headers["x-delivery-count"].(type) {
	case int64:
		return int(v), true
	case int32:
		return int(v), true
	default:
		_, counted = headers["x-acquired-count"]
		return 0, counted
	}
}

// suspect reports whether a message that keeps its place and was delivered before, n times
// by a queue that counted, may have killed its process.
func (c *Client) suspect(n int, counted bool, id string) bool {
	least := suspicion
	if !counted {
		n, least = 1, 1
	}
	return n-c.turn.Known.Of(id) >= least
}

// acquit moves the suspects that have not answered within the drain timeout back
// to their queue, uncharged: closing the channel would count as a crash.
func (l *lane) acquit() {
	ctx, cancel := context.WithTimeout(context.Background(), l.r.client.cfg.SendTimeout)
	defer cancel()
	for e := range l.acks.untold {
		if e.what != open {
			continue
		}
		// Its handler may still run, and so may what it has begun to write.
		again := &entry{lane: l, rec: e.rec, state: e.state, arrived: e.arrived}
		again.rec.entry = again
		d := l.delivery(again)
		st := d.State()
		if e.d != nil {
			st = e.d.State()
		}
		if _, err := l.r.fwd.suspect(ctx, d, &st); err == nil {
			l.acks.settle(e)
		}
	}
}
