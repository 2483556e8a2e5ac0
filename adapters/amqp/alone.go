package amqp

import (
	"context"
	"errors"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// Where messages keep their places a suspect cannot be moved to a queue of suspects,
// and what the broker counted of it says nothing: it rises for all that is behind a
// killer, too. So the suspect stays, in a turn of its own like any other, and a
// marker in a queue beside stands for it: a small message with its id, unacked for as
// long as the suspect's handler runs. One that comes back without an answer says that
// the suspect was alone when its process died, and how often. A turn that ends
// otherwise takes the marker away. Between its turns a marker lies there with the
// count so far, and so do those of other keys' suspects.

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

func (s *solo) id() string { return s.e.lane.idOf(s.e) }

// markerOf is a marker's name in the client's memory of what came back to it alive.
func markerOf(id string) string { return "marker of " + id }

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
		if gone(err) { // it was deleted under us
			if err = l.r.fwd.declare(try); err == nil {
				err = s.mark(try)
			}
		}
		cancel()
		if err == nil {
			return true
		}
		turn.Give()
		l.r.tell(redeliver.ChangeSuspectUnmarked, "it waits in its place for its turn", err)
		timer := time.NewTimer(inquiry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	return false
}

// mark fetches the marker of the suspect, which it writes where there is none.
func (s *solo) mark(ctx context.Context) error {
	ch, err := s.e.lane.r.client.consuming.channel(ctx)
	if err != nil {
		return err
	}
	held := make(map[string]*amqp.Delivery)
	err = s.fetch(ch, held)
	if err == nil && held[s.id()] == nil {
		if err = s.write(ctx, s.id(), 0); err == nil {
			err = s.fetch(ch, held)
		}
	}
	own := held[s.id()]
	if err == nil && own == nil {
		err = errors.New("amqp: another process has the marker of a suspect")
	}
	if err == nil {
		err = s.keep(ctx, ch, held)
	}
	if err != nil {
		for id := range held { // they come back, and have killed nobody
			s.e.lane.r.client.turn.Known.Add(markerOf(id))
		}
		_ = ch.Close() // the error says more
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ch, s.marker, s.crashes = ch, own.DeliveryTag, s.read(own)
	return nil
}

// fetch takes all markers that there are, one of each id: the last, as an older one
// was to be gone when it was written.
func (s *solo) fetch(ch *amqp.Channel, held map[string]*amqp.Delivery) error {
	for {
		d, found, err := ch.Get(s.e.lane.r.layout.place(), false)
		if err != nil || !found {
			return err
		}
		if older := held[string(d.Body)]; older != nil {
			if err := ch.Ack(older.DeliveryTag, false); err != nil {
				return err
			}
		}
		held[string(d.Body)] = &d
	}
}

// keep gives the markers of others back, with what they say so far: what happens now
// is not theirs, and a channel that ended would count it. Where all messages stand in
// one line they were settled, or this one would not be next.
func (s *solo) keep(ctx context.Context, ch *amqp.Channel, held map[string]*amqp.Delivery) error {
	for id, d := range held {
		if id == s.id() {
			continue
		}
		if n := s.read(d); n > 0 && s.e.lane.r.sub.Policy.Order == redeliver.PerKey {
			if err := s.write(ctx, id, n); err != nil {
				return err
			}
		}
		if err := ch.Ack(d.DeliveryTag, false); err != nil {
			return err
		}
	}
	if len(held) == 1 {
		return nil
	}
	if err := s.proven(ch); err != nil {
		return err
	}
	for id := range held {
		if id != s.id() {
			s.e.lane.r.client.turn.Known.Settled(markerOf(id))
		}
	}
	return nil
}

// proven returns when the broker has the acks of markers.
func (s *solo) proven(ch *amqp.Channel) error {
	_, err := ch.QueueDeclarePassive(s.e.lane.r.layout.place(), true, false, false, false, nil)
	return err
}

// read is how often a marker's message was alone when its process died.
func (s *solo) read(d *amqp.Delivery) int {
	n, _ := d.Headers[headerCrashes].(int32)
	if again, _ := deliveryCount(d.Headers); d.Redelivered {
		n += int32(max(0, again-s.e.lane.r.client.turn.Known.Of(markerOf(string(d.Body)))))
	}
	return int(n)
}

// write writes the marker of an id.
func (s *solo) write(ctx context.Context, id string, crashes int) error {
	fwd := s.e.lane.r.fwd
	p := amqp.Publishing{Body: []byte(id), DeliveryMode: amqp.Persistent, Headers: amqp.Table{headerCrashes: int32(crashes)}}
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
		err = s.write(ctx, s.id(), s.crashes)
	}
	if err == nil {
		err = s.ch.Ack(s.marker, false)
	}
	if err == nil {
		turn.Known.Settled(markerOf(s.id()))
		err = s.proven(s.ch)
	}
	if err != nil { // the marker comes back, and has killed nobody
		turn.Known.Add(markerOf(s.id()))
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
