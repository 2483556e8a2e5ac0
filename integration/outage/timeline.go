package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"
)

// timeline says when the outage begins and ends. All durations count from the beginning of the load.
type timeline struct {
	began      time.Time
	down, up   time.Duration // the dependency's outage
	edge       time.Duration // before and after it the dependency is slow for so long
	load       time.Duration // how long messages are written
	maxWait    time.Duration // when a run is given up
	rate       int           // messages a second, of each service
	step       time.Duration // between two samples for the chart
	messages   int
	everyWrite time.Duration // between two writes
}

// newTimeline returns two minutes of load, with the outage from 30 s to 90 s. scale shortens it.
func newTimeline(rate int, scale float64) timeline {
	times := func(d time.Duration) time.Duration {
		return time.Duration(math.Round(float64(d)*scale/float64(time.Millisecond))) * time.Millisecond
	}
	t := timeline{
		down: times(30 * time.Second), up: times(90 * time.Second), edge: times(3 * time.Second), load: times(2 * time.Minute),
		step: times(time.Second), rate: rate, everyWrite: 20 * time.Millisecond,
	}
	// The scale does not shorten the policies, whose longest wait is a minute.
	t.maxWait = t.load + times(2*time.Minute) + 90*time.Second
	t.messages = int(t.load.Seconds() * float64(rate))
	return t
}

// dependency is the remote service that a service's handler calls.
type dependency struct {
	time timeline

	calls, during atomic.Int64 // all, and those in the outage
}

// The durations of calls of the dependency.
const (
	quick   = 2 * time.Millisecond
	slow    = 200 * time.Millisecond
	failing = 20 * time.Millisecond
)

var errDown = errors.New("the payment service is unavailable: 503")

// call waits for the duration of a call, and fails if it began in the outage.
func (d *dependency) call(ctx context.Context) error {
	d.calls.Add(1)
	at := time.Since(d.time.began)
	takes := quick
	var err error
	switch {
	case at >= d.time.down && at < d.time.up:
		d.during.Add(1)
		takes, err = failing, errDown
	case at >= d.time.down-d.time.edge && at < d.time.up+d.time.edge:
		takes = slow
	}
	select {
	case <-time.After(takes):
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
