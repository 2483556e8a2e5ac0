package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// turns is what a side did in a process in which several take turns, each with a group of its own on one topic: what
// differs from process to process is the same for all of them, and what differs from minute to minute is the same for
// those whose turns are next to each other.
type turns struct {
	Count  int64   `json:"count"` // messages
	Sum    uint64  `json:"sum"`   // their checksum
	Slices []slice `json:"slices"`
}

// slice is one turn. It begins and ends when nothing of the process runs, so that all that a side reads ahead is read in
// its own time.
type slice struct {
	CPU     float64 `json:"cpu"`     // seconds of the process
	Seconds float64 `json:"seconds"` // in which the last three quarters of its messages were handled: the first may lie ready
}

// taker is a side that takes turns.
type taker struct {
	in   <-chan *message.Message
	seen tally
	turns
}

// doTurns has the sides of a spec handle as many messages each, in turns.
func doTurns(ctx context.Context, s spec, ready func()) (*outcome, error) {
	out := &outcome{Turns: make(map[side]*turns)}
	takers := make([]*taker, len(s.Turns.Sides))
	closers := make([]func(), 0, len(takers))
	defer func() {
		for _, end := range closers {
			end()
		}
	}()
	for i, who := range s.Turns.Sides {
		own := s
		own.Side, own.Group = who, s.Turns.Groups[i]
		c, err := own.open(ctx, nil)
		if err != nil {
			return nil, err
		}
		closers = append(closers, c.close)
		in, err := c.sub.Subscribe(own.subscribing(), own.Topic)
		if err != nil {
			return nil, err
		}
		takers[i] = &taker{in: in}
		out.Turns[who], out.Settings = &takers[i].turns, c.settings
	}
	if err := calm(); err != nil {
		return nil, err
	}
	mark()
	ready()
	for n := range s.Turns.Each {
		for _, i := range orderOfTurn(n, len(takers)) {
			if err := takers[i].take(s.Messages / s.Turns.Each); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Turns.Sides[i], err)
			}
		}
	}
	for _, t := range takers {
		t.Count, t.Sum = t.seen.count.Load(), t.seen.sum.Load()
	}
	out.PeakRSS, out.Finished = memory("VmHWM"), time.Now()
	return out, nil
}

// orderOfTurn is in which order so many sides have their n-th turn: there and back, so that no side is the first or the
// last more often than another, and begun with another side each time.
func orderOfTurn(n, sides int) []int {
	order := make([]int, sides)
	for i := range order {
		order[i] = (i + n/2) % sides
	}
	if n%2 == 1 {
		slices.Reverse(order)
	}
	return order
}

// take handles n messages, and returns when the process is calm again.
func (t *taker) take(n int) error {
	before := cpuTime()
	var from time.Time
	for i := range n {
		if i == n/4 {
			from = time.Now()
		}
		msg, ok := <-t.in
		if !ok {
			return errors.New("the subscription has ended by itself")
		}
		t.seen.add(msg.Payload)
		msg.Ack()
	}
	took := time.Since(from)
	if err := calm(); err != nil {
		return err
	}
	mark()
	t.Slices = append(t.Slices, slice{CPU: (cpuTime() - before).Seconds(), Seconds: took.Seconds()})
	return nil
}

// maxRest is how long a process may take to come to rest, under valgrind, too.
const maxRest = 2 * time.Minute

// calm returns when the process does next to nothing: what could be read ahead is read.
func calm() error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	timer := time.NewTimer(maxRest)
	defer timer.Stop()
	for still := 0; still < 5; {
		before := cpuTime()
		select {
		case <-look.C:
		case <-timer.C:
			return fmt.Errorf("the process did not come to rest within %s", maxRest)
		}
		if still++; cpuTime()-before > 2*time.Millisecond {
			still = 0
		}
	}
	return nil
}

// inTurns runs a process in which sides of ours take so many turns of n messages each, and verifies what they did. It is
// nil where that is not verified: the row goes on.
func (e *experiment) inTurns(ctx context.Context, run, n, each int, change func(*spec)) (map[side]*turns, error) {
	topic, err := e.broker.fresh(ctx, e.row.name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err := e.broker.drop(context.WithoutCancel(ctx), topic); err != nil {
			e.problemf("dropping %s: %v", topic.topic, err)
		}
	}()
	sp := e.spec(ours, topic, run, defaultInFlight)
	sp.Job, sp.Messages, sp.Turns.Each = takeTurns, n*each, each
	change(&sp)
	for _, who := range sp.Turns.Sides {
		sp.Turns.Groups = append(sp.Turns.Groups, topic.group(who))
	}
	var w written
	if !sp.Turns.Fresh {
		if w, err = e.broker.preload(ctx, topic.topic, n*each); err != nil {
			return nil, err
		}
	}
	p, err := spawn(sp)
	if err != nil {
		return nil, err
	}
	if sp.Turns.Fresh {
		select {
		case <-p.ready:
		case <-p.done: // await says why
		case <-ctx.Done():
		}
		if w, err = e.broker.preload(ctx, topic.topic, n*each); err != nil {
			p.kill()
			return nil, err
		}
	}
	out, err := p.await(ctx, 10*time.Minute)
	if err != nil {
		return nil, err
	}
	e.record(ours, run, out)
	verified := true
	for i, who := range sp.Turns.Sides {
		own := sp
		own.Side, own.Group = who, sp.Turns.Groups[i]
		did := out.Turns[who]
		if err := e.verify(ctx, own, &outcome{Count: did.Count, Entries: did.Count, Sum: did.Sum}, w); err != nil {
			e.problemf("run %d, %s: %v", run, who, err)
			verified = false
		}
	}
	if !verified {
		return nil, nil //nolint:nilnil // There is nothing to count.
	}
	return out.Turns, nil
}
