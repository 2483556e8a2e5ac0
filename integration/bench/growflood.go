package main

import (
	"context"
	"fmt"
	"time"
)

// growSizeRow and growPartitionsRow make every message fail: first a flood, which shows the throughput and the
// costs, and then a steady rate, which shows how late retries are when nothing delays them.

func growSizeRow(ctx context.Context, e *experiment) error {
	const paced = 200 // failing messages a second: of the largest, 100 MB/s to and from the broker
	messages := map[int]int{100: 50_000, 1 << 10: 50_000, 10 << 10: 20_000, 100 << 10: 4_000}
	e.notef("%s", floodNote)
	e.notef("lateness is that of %d failing messages a second", paced)
	defer func() { e.cluster.shape = shape{} }()
	return e.trace(ctx, curve{
		axis: "bytes of a value", points: []int{100, 1 << 10, 10 << 10, 100 << 10}, label: sizeName,
		once: func(ctx context.Context, run, size int) (*cost, error) {
			e.cluster.shape.size = size
			return e.floodAndPace(ctx, run, e.scaled(messages[size]), paced)
		},
	})
}

func growPartitionsRow(ctx context.Context, e *experiment) error {
	const paced = 1_000
	n := e.scaled(60_000)
	e.notef("%s", floodNote)
	e.notef("lateness is that of %s failing messages a second", count(paced))
	e.notef("delay topics have as many partitions as the origin, at most 8: the default")
	defer func() { e.cluster.shape = shape{} }()
	return e.trace(ctx, curve{
		axis: "partitions of the origin", points: []int{1, 4, 16, 64}, label: count,
		once: func(ctx context.Context, run, parts int) (*cost, error) {
			e.cluster.shape.partitions = parts
			return e.floodAndPace(ctx, run, n, paced)
		},
	})
}

const floodNote = "throughput is 3 retries for each message of a preloaded flood, from the first handler entry until the DLQ has the last: " +
	"the 3 s that a message waits are in it; CPU, memory and bytes are those of the flood"

func sizeName(bytes int) string {
	if bytes >= 1<<10 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d B", bytes)
}

// floodAndPace measures a flood, and then the lateness at a rate.
func (e *experiment) floodAndPace(ctx context.Context, run, n, rate int) (*cost, error) {
	c, err := e.flood(ctx, run, n)
	if err != nil || c == nil || run == 0 {
		return c, err
	}
	d := e.lasting(8 * time.Second)
	out, err := e.alone(ctx, run, single{
		drive:  func(t names) (written, error) { return e.broker.steady(ctx, t.topic, rate, d) },
		within: d + time.Minute,
	}, manyInFlight, func(s *spec) { s.Messages, s.Failing = int(float64(rate)*d.Seconds()), failing{1, always} })
	if err != nil || out == nil {
		return nil, err
	}
	c.flood, c.late = c.late, out.Late
	return c, nil
}

// flood fails n preloaded messages until they are in the DLQ.
func (e *experiment) flood(ctx context.Context, run, n int) (*cost, error) {
	s := sizeWatcher{cluster: e.cluster}
	out, err := e.alone(ctx, run, single{
		load:   func(t names) (written, error) { return e.broker.preload(ctx, t.topic, n) },
		watch:  func(ctx context.Context, sp spec) { s.watch(ctx, sp.Topic) },
		within: 3 * time.Minute,
	}, manyInFlight, func(s *spec) { s.Messages, s.Failing = n, failing{1, always} })
	if err != nil || out == nil {
		return nil, err
	}
	return &cost{
		retries: retries * n, seconds: out.Seconds, busy: out.Busy, peak: out.PeakRSS, late: out.Late, disk: s.last, commits: &s.commits,
	}, s.err
}
