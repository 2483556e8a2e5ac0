package main

import (
	"context"
	"slices"
	"time"
)

// The measures of a curve's points. The chart has a line for each of drawn.
const (
	throughput    = "throughput"
	lateP50       = "lateness p50"
	lateP99       = "lateness p99"
	lateMax       = "lateness max"
	floodP99      = "lateness p99 in the flood"
	cpuPerMillion = "CPU per million"
	peakMemory    = "peak memory"
	bytesPerRetry = "broker bytes per retry"
	commitBytes   = "commit bytes per retry"
)

// chartQuantities are the quantities of the charts, in the order of their legends.
var chartQuantities = []string{throughput, lateP50, lateP99, lateMax, cpuPerMillion, peakMemory, bytesPerRetry}

// curve is a row that repeats a measurement at growing points, such as numbers of messages.
type curve struct {
	axis   string // what grows: "bytes of a value"
	points []int
	label  func(int) string // of a point
	// once measures one point; nil means that the run was not verified.
	once func(ctx context.Context, run, at int) (*cost, error)
}

// cost is the cost of one point. It is given per retry, an attempt after the first.
type cost struct {
	retries int
	seconds float64
	busy    float64 // CPU seconds of all consumers, from the first message on
	peak    int64   // bytes of resident memory, of all consumers
	late    *lateness
	flood   *lateness  // set if late comes from a separate, paced run
	disk    *topicSize // nil where the broker was not asked
	commits *int64     // bytes of what the groups committed; nil where it was not asked
}

// trace runs every point, once in each run. Before that, the middle one is run and discarded, so that the first is not
// slow because the broker has just started.
func (e *experiment) trace(ctx context.Context, c curve) error {
	e.result.Axis = c.axis
	points := slices.Compact(slices.Clone(c.points)) // at a small scale two may be equal
	for run := range e.options.runs + 1 {
		for i, at := range points {
			if run == 0 && i != len(points)/2 {
				continue
			}
			began := time.Now()
			found, err := c.once(ctx, run, at)
			if err != nil {
				return err
			}
			if found == nil {
				continue
			}
			e.sayf("run %d, %s %s: %.0f retries/s, late p50 %.2f p99 %.2f max %.1f ms, peak %.0f MiB, took %.0f s", run, c.label(at), c.axis,
				found.rate(), found.late.P50, found.late.P99, found.late.Max, mib(found.peak), time.Since(began).Seconds())
			if run > 0 {
				e.plot(at, c.label(at), found)
			}
		}
	}
	return nil
}

func (c *cost) rate() float64 { return float64(c.retries) / c.seconds }

// plot adds what a point took to the row's figures.
func (e *experiment) plot(at int, label string, c *cost) {
	add := func(quantity, unit string, v float64) {
		e.add(quantity+", "+label, unit, nil, v)
		f := e.result.figure(quantity+", "+label, unit, nil)
		f.At, f.Quantity = float64(at), quantity
	}
	add(throughput, "retries/s", c.rate())
	add(lateP50, "ms", c.late.P50)
	add(lateP99, "ms", c.late.P99)
	add(lateMax, "ms", c.late.Max)
	if c.flood != nil {
		add(floodP99, "ms", c.flood.P99)
	}
	add(cpuPerMillion, "s", c.busy/float64(c.retries)*1e6)
	add(peakMemory, "MiB", mib(c.peak))
	if c.disk != nil {
		add(bytesPerRetry, "B", c.disk.bytesPerRecord())
	}
	if c.commits != nil {
		add(commitBytes, "B", float64(*c.commits)/float64(c.retries))
	}
}
