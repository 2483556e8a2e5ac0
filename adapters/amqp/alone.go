package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/delayqueue"
)

// Where messages keep their places a suspect cannot be moved to a queue of suspects,
// and what the broker counted of it says nothing: it rises for all that is behind a
// killer, too. So the suspect stays, in a turn of its own like any other, and a
// marker in a queue beside stands for it: a small message with its id, unacked for as
// long as the suspect's handler runs. One that comes back without an answer says that
// the suspect was alone when its process died, and how often. A turn that ends
// otherwise takes the marker away.

// headerCrashes is how often a marker's message has killed its process before the
// marker was written.
const headerCrashes = "redeliver-amqp-crashes"

// solo is the turn of a suspect that keeps its place. It may end for two reasons at
// once, in the handler's goroutine and in the lane's.
type solo struct {
	e *entry

	mu      sync.Mutex
	ch      *amqp.Channel // on which the marker was fetched; nil while there is no turn
	marker  uint64
	crashes int
}

// known is the marker's name in the client's memory of what came back to it alive.
func (s *solo) known() string { return "marker of " + s.e.lane.idOf(s.e) }

// seclude gives a suspect its turn, from a goroutine of its own, as soon as it is due.
func (l *lane) seclude(e *entry) {
	ctx := l.calling
	l.solos.Go(func() {
		if e.state != nil {
			timer := time.NewTimer(time.Until(e.state.Due))
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		if !e.solo.begin(ctx) {
			return
		}
		if e.times = e.solo.crashes; e.times >= l.r.sub.Policy.MaxCrashes {
			e.then = toDLQ
		}
		select {
		case l.secluded <- e:
		case <-ctx.Done():
			e.solo.end(false)
		}
	})
}

// begin takes a turn, and the marker. It is false when ctx has ended before.
func (s *solo) begin(ctx context.Context) bool {
	l := s.e.lane
	turn := l.r.client.turn
	for turn.Take(ctx, &l.r.sub.Gate) {
		try, cancel := context.WithTimeout(ctx, l.r.client.cfg.SendTimeout)
		err := s.mark(try)
		cancel()
		if err == nil {
			return true
		}
		turn.Give()
		l.r.tell("suspect not marked", "it waits in its place for its turn", err)
		timer := time.NewTimer(inquiry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return false
}

// mark fetches the marker of the suspect, which it writes where there is none, and
// takes away those of others: they were settled, or this one would not be next.
func (s *solo) mark(ctx context.Context) error {
	l := s.e.lane
	ch, err := l.r.client.consuming.channel(ctx)
	if err != nil {
		return err
	}
	for written := false; ; {
		d, found, err := ch.Get(l.r.layout.place(), false)
		switch {
		case err == nil && found && string(d.Body) == l.idOf(s.e):
			s.mu.Lock()
			defer s.mu.Unlock()
			s.ch, s.marker, s.crashes = ch, d.DeliveryTag, s.read(&d)
			return nil
		case err == nil && found:
			err = ch.Ack(d.DeliveryTag, false)
		case err == nil && !written:
			written = true
			err = s.write(ctx, 0)
		case err == nil:
			err = errors.New("amqp: another process has the marker of a suspect")
		}
		if err != nil {
			_ = ch.Close() // the error says more
			return err
		}
	}
}

// read is how often a marker's message was alone when its process died.
func (s *solo) read(d *amqp.Delivery) int {
	n, _ := d.Headers[headerCrashes].(int32)
	if again, _ := deliveryCount(d.Headers); d.Redelivered {
		n += int32(max(0, again-s.e.lane.r.client.turn.Known.Of(s.known())))
	}
	return int(n)
}

func (s *solo) write(ctx context.Context, crashes int) error {
	fwd := s.e.lane.r.fwd
	p := amqp.Publishing{Body: []byte(s.e.lane.idOf(s.e)), DeliveryMode: amqp.Persistent, Headers: amqp.Table{headerCrashes: int32(crashes)}}
	_, err := fwd.sender.send(ctx, "", fwd.layout.place(), p)
	if errors.Is(err, errNoQueue) { // it was deleted under us
		if err = fwd.declare(ctx); err == nil {
			_, err = fwd.sender.send(ctx, "", fwd.layout.place(), p)
		}
	}
	return err
}

// end ends a turn, if there is one: the process has not died of the message. settled
// tells that the message is; otherwise its crashes stand in a new marker.
func (s *solo) end(settled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ch == nil {
		return
	}
	turn := s.e.lane.r.client.turn
	defer turn.Give()
	ctx, cancel := context.WithTimeout(context.Background(), s.e.lane.r.client.cfg.SendTimeout)
	defer cancel()
	var err error
	if settled { // if its ack is lost it comes back, and nothing else may have run
		_, err = s.e.lane.ch.QueueDeclarePassive(s.e.lane.queue, true, false, false, false, nil)
	} else if s.crashes > 0 && !s.ch.IsClosed() {
		err = s.write(ctx, s.crashes)
	}
	if err == nil {
		err = s.ch.Ack(s.marker, false)
	}
	if err == nil {
		turn.Known.Settled(s.known())
		_, err = s.ch.QueueDeclarePassive(s.e.lane.r.layout.place(), true, false, false, false, nil) // it has the ack
	}
	if err != nil { // the marker comes back, and has killed nobody
		turn.Known.Add(s.known())
	}
	_ = s.ch.Close() // all was said
	s.ch = nil
}

// quit is end for a lane, which waits for nobody.
func (e *entry) quit() {
	if e.solo != nil {
		settled := e.what != open
		e.lane.solos.Go(func() { e.solo.end(settled) })
	}
}

var _ delayqueue.Resumer = (*entry)(nil)
