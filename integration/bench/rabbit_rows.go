package main

import (
	"context"
	"time"
)

const (
	rabbitInFlight = 100 // amqp.DefaultMaxInFlight
	rabbitMemory   = 40  // MiB, of our side in every row

	latenessRabbitReference = "reference, not run here: grmq paced at 500/s has a p99 of 10 to 28 ms"
)

func rabbitSubscribeRow(ctx context.Context, e *experiment) error {
	n := e.scaled(100_000)
	return e.compare(ctx, comparison{
		ours: []sideConfig{{side: ours, name: "redeliver", messages: n, ratio: 1.5}}, peer: sideConfig{side: peer, name: "watermill-amqp", messages: n},
		within: 3 * time.Minute, inFlight: rabbitInFlight, memory: atMost(rabbitMemory),
	})
}

func rabbitFailAllRow(ctx context.Context, e *experiment) error {
	n := e.scaled(20_000)
	e.notef("grmq's time ends when it has nacked the last message: nothing reports when the DLQ has it; dead-lettering of its queues is at most once, its own default")
	return e.compare(ctx, comparison{
		ours:   []sideConfig{{side: ours, name: "redeliver", messages: n, ratio: 1.3}},
		peer:   sideConfig{side: peer, name: "grmq", messages: n},
		within: 3 * time.Minute, inFlight: rabbitInFlight, memory: atMost(rabbitMemory),
		spec: func(s *spec) { s.Router, s.Failing, s.Backoff = true, failing{1, always}, second },
	})
}

func rabbitLatenessRow(ctx context.Context, e *experiment) error {
	e.notef(latenessRabbitReference)
	return e.lateEachRun(ctx, pace{rate: 500, p99: 20, backoff: second, inFlight: rabbitInFlight, memory: atMost(rabbitMemory)})
}

// rabbitBacklogRow has a handler that is slow until only the backlog is left, and counts the retries until then.
func rabbitBacklogRow(ctx context.Context, e *experiment) error {
	const wait = 40 * time.Millisecond
	backlog, slow := e.scaled(100_000), int(e.lasting(20*time.Second)/wait)*rabbitInFlight
	n := backlog + slow
	e.notef("the handler waits %s in the first %s runs, and lateness is that of retries that fell due in the first 95 %% of that; the %s messages that still wait then are drained for the check", wait, count(slow), count(backlog))
	for run := range e.options.runs {
		out, err := e.alone(ctx, run+1, single{
			load:   func(t names) (written, error) { return e.broker.preload(ctx, t.topic, n) },
			within: 5 * time.Minute,
		}, rabbitInFlight, func(s *spec) {
			s.Messages, s.Failing, s.Wait, s.Backlog = n, failing{100, always}, wait, backlog
		})
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		if out.Late == nil {
			e.problemf("run %d: no retry fell due while the handler was slow", run+1)
			continue
		}
		e.sayf("run %d: late p50 %.2f p99 %.2f max %.1f ms of %d retries, peak %.0f MiB", run+1, out.Late.P50, out.Late.P99, out.Late.Max, out.Late.Samples, mib(out.PeakRSS))
		e.add("p99", "ms", atMost(30), out.Late.P99)
		e.add("p50", "ms", nil, out.Late.P50)
		e.add("max", "ms", nil, out.Late.Max)
		e.add("earliest", "ms", atLeast(0), out.Late.Min)
		e.add("retries that were measured", "", nil, float64(out.Late.Samples))
		e.add("peak memory", "MiB", atMost(rabbitMemory), mib(out.PeakRSS))
	}
	return nil
}
