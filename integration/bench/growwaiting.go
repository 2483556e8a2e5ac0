package main

import (
	"context"
	"errors"
	"time"
)

// filler writes messages that failed once and wait on a level until due, as redeliver would write them.
type filler func(ctx context.Context, s spec, n int, level time.Duration, due time.Time) (written, error)

func growWaitingRow(ctx context.Context, e *experiment) error {
	return e.measureDrains(ctx, []int{1_000, 10_000, 100_000, 1_000_000}, manyInFlight, e.fillLevel)
}

func rabbitGrowWaitingRow(ctx context.Context, e *experiment) error {
	r, ok := e.broker.(*rabbit)
	if !ok {
		return errors.New("this row is for RabbitMQ")
	}
	return e.measureDrains(ctx, []int{1_000, 10_000, 100_000}, rabbitInFlight, r.fillLevel)
}

// measureDrains measures how long it takes to handle all waiting messages if they fall due at the same time. Every handler
// succeeds then.
func (e *experiment) measureDrains(ctx context.Context, points []int, inFlight int, fill filler) error {
	e.notef("throughput counts from the moment at which all fall due, so the lateness of the last is the time that all take")
	for i := range points {
		points[i] = e.scaled(points[i])
	}
	return e.trace(ctx, curve{
		axis: "messages that wait", points: points, label: count,
		once: func(ctx context.Context, run, n int) (*cost, error) { return e.drain(ctx, run, n, inFlight, fill) },
	})
}

const (
	// All must be there before the first falls due, and none may wait for longer than the level.
	fillRate  = 20_000 // messages a second, which even a busy machine writes
	fillSlack = 5 * time.Second
	fillLevel = time.Minute
)

func (e *experiment) drain(ctx context.Context, run, n, inFlight int, fill filler) (c *cost, err error) {
	t, err := e.broker.fresh(ctx, e.row.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.broker.drop(context.WithoutCancel(ctx), t)) }()
	sp := e.spec(ours, t, run, inFlight)
	sp.Router, sp.Backoff, sp.Messages, sp.Failing = true, minute, n, failing{Every: 1}
	p, err := spawn(sp) // which makes the levels
	if err != nil {
		return nil, err
	}
	defer p.kill() // does nothing to one that has ended
	if err := p.awaitReady(ctx); err != nil {
		return nil, err
	}
	due := time.Now().Add(fillSlack + time.Duration(n)*time.Second/fillRate).Truncate(time.Millisecond)
	w, err := fill(ctx, sp, n, fillLevel, due)
	if err != nil {
		return nil, err
	}
	c = &cost{retries: n}
	if e.cluster != nil {
		if c.disk, err = e.cluster.measureSize(ctx, t.topic); err != nil {
			return nil, err
		}
	}
	if late := time.Since(due); late > 0 {
		e.problemf("run %d: the first of %s messages fell due %s before the last was written: the machine is too slow for this point", run, count(n), late)
		return nil, nil
	}
	out, err := p.await(ctx, time.Until(due)+3*time.Minute)
	if err != nil {
		return nil, err
	}
	e.record(ours, run, out)
	if err := e.verify(ctx, sp, out, w); err != nil {
		e.problemf("run %d, %s waiting: %v", run, count(n), err)
		return nil, nil
	}
	if out.Late.Early > 0 {
		e.problemf("run %d, %s waiting: %d came early, the first by %.2f ms", run, count(n), out.Late.Early, -out.Late.Min)
		return nil, nil
	}
	c.seconds, c.busy, c.peak, c.late = out.Finished.Sub(due).Seconds(), out.Busy, out.PeakRSS, out.Late
	return c, nil
}
