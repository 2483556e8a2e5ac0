package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// failSomeReference has results of sides that no row runs, from a machine like this one.
const failSomeReference = "reference, not run here: Spring Kafka tuned 12,700 msg/s, default 1,250"

// single describes one run of one side, to be verified.
type single struct {
	load   func(names) (written, error) // before it starts; nil if drive feeds it
	drive  func(names) (written, error) // once it consumes
	watch  func(context.Context, spec)  // beside it, until ctx ends; nil for nothing
	within time.Duration
}

func (e *experiment) alone(ctx context.Context, run int, s single, inFlight int, change func(*spec)) (*outcome, error) {
	return e.aloneAs(ctx, ours, run, s, inFlight, change)
}

// aloneAs is alone for another side.
func (e *experiment) aloneAs(ctx context.Context, who side, run int, s single, inFlight int, change func(*spec)) (out *outcome, err error) {
	n, err := e.broker.fresh(ctx, e.row.name)
	if err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, e.broker.drop(context.WithoutCancel(ctx), n))
	}()
	sp := e.spec(who, n, run, inFlight)
	sp.Router, sp.Backoff = true, second
	change(&sp)
	if err := e.prepare(ctx, sp); err != nil {
		return nil, err
	}
	var w written
	if s.load != nil {
		if w, err = s.load(n); err != nil {
			return nil, err
		}
	}
	p, err := spawn(sp)
	if err != nil {
		return nil, err
	}
	stopWatch := watching(ctx, sp, s.watch)
	defer stopWatch()
	if s.drive != nil {
		if err := p.awaitReady(ctx); err != nil {
			return nil, err
		}
		if w, err = s.drive(n); err != nil {
			p.kill()
			return nil, err
		}
	}
	out, err = p.await(ctx, s.within)
	if err != nil {
		return nil, err
	}
	stopWatch()
	e.record(who, run, out)
	if problem := e.verify(ctx, sp, out, w); problem != nil {
		e.problemf("run %d, %s: %v", run, who, problem)
		return nil, nil //nolint:nilnil // Not verified, so there is nothing to count; the row continues.
	}
	return out, nil
}

// watching runs watch until the returned function is called, which waits for its end; a second call does nothing.
func watching(ctx context.Context, sp spec, watch func(context.Context, spec)) (stop func()) {
	if watch == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(ctx, sp)
	}()
	return func() {
		cancel()
		<-done
	}
}

func failAllRow(ctx context.Context, e *experiment) error {
	return e.failAll(ctx, 15_000, func(*spec) {})
}

func (e *experiment) failAll(ctx context.Context, rate float64, change func(*spec)) error {
	n := e.scaled(100_000)
	for run := range e.options.runs + 1 {
		out, err := e.alone(ctx, run, single{
			load: func(t names) (written, error) { return e.broker.preload(ctx, t.topic, n) }, within: 3 * time.Minute,
		}, manyInFlight, func(s *spec) {
			s.Messages, s.Failing = n, failing{1, always}
			change(s)
		})
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		e.sayf("run %d: all in the DLQ after %.2f s, %.2f CPU s, peak %.0f MiB, late p99 %.1f ms", run, out.Seconds, out.CPU, mib(out.PeakRSS), out.Late.P99)
		if run == 0 {
			continue
		}
		e.add("redeliver", "msg/s", atLeast(rate), float64(n)/out.Seconds)
		e.add("until all are in the DLQ", "s", nil, out.Seconds)
		e.add("CPU per million", "s", nil, perMillion(out, n))
		e.add("peak memory", "MiB", nil, mib(out.PeakRSS))
		e.add("lateness of retries p99", "ms", nil, out.Late.P99)
	}
	return nil
}

func failSomeRow(ctx context.Context, e *experiment) error {
	n := e.scaled(100_000)
	e.notef(failSomeReference)
	for run := range e.options.runs + 1 {
		out, err := e.alone(ctx, run, single{
			load: func(t names) (written, error) { return e.broker.preload(ctx, t.topic, n) }, within: 3 * time.Minute,
		}, manyInFlight, func(s *spec) { s.Messages, s.Failing = n, failing{20, 1} })
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		e.sayf("run %d: all handled after %.2f s, those that succeed at once after %.2f s, late p99 %.1f ms", run, out.Seconds, out.FirstRun, out.Late.P99)
		if run == 0 {
			continue
		}
		e.add("redeliver", "msg/s", atLeast(50_000), float64(n)/out.Seconds)
		e.add("until all have succeeded", "s", nil, out.Seconds)
		e.add("until all without a failure have", "s", nil, out.FirstRun)
		e.add("CPU per million", "s", nil, perMillion(out, n))
		e.add("peak memory", "MiB", nil, mib(out.PeakRSS))
		e.add("lateness of retries p99", "ms", nil, out.Late.P99)
	}
	return nil
}

func latenessRow(ctx context.Context, e *experiment) error {
	return e.lateEachRun(ctx, kafkaPace(2000, second), kafkaPace(5000, second))
}

func jitterRow(ctx context.Context, e *experiment) error {
	return e.lateEachRun(ctx, kafkaPace(2000, jitter))
}

// pace is a steady rate of messages that always fail, and the target for the lateness of their retries.
type pace struct {
	rate     int
	p99      float64 // ms
	backoff  backoffName
	inFlight int
	memory   *target // nil: the memory is not in the table
}

func kafkaPace(rate int, b backoffName) pace {
	return pace{rate: rate, p99: 10, backoff: b, inFlight: manyInFlight}
}

func (e *experiment) lateEachRun(ctx context.Context, paces ...pace) error {
	for run := range e.options.runs {
		for _, p := range paces {
			if err := e.late(ctx, run+1, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// late measures the lateness of every retry.
func (e *experiment) late(ctx context.Context, run int, p pace) error {
	d := e.lasting(20 * time.Second)
	n := int(float64(p.rate) * d.Seconds())
	out, err := e.alone(ctx, run, single{
		drive:  func(t names) (written, error) { return e.broker.steady(ctx, t.topic, p.rate, d) },
		within: d + time.Minute,
	}, p.inFlight, func(s *spec) {
		s.Messages, s.Failing, s.Backoff = n, failing{1, always}, p.backoff
		if s.Profile != "" {
			s.Profile += fmt.Sprintf("-%d", p.rate)
		}
	})
	if err != nil || out == nil {
		return err
	}
	at := " at " + count(p.rate) + "/s"
	e.sayf("run %d%s: late p50 %.2f p99 %.2f max %.1f ms, first attempts behind the write p99 %.1f ms, peak %.0f MiB",
		run, at, out.Late.P50, out.Late.P99, out.Late.Max, out.Lag.P99, mib(out.PeakRSS))
	e.add("p99"+at, "ms", atMost(p.p99), out.Late.P99)
	e.add("p50"+at, "ms", nil, out.Late.P50)
	e.add("max"+at, "ms", nil, out.Late.Max)
	e.add("earliest"+at, "ms", atLeast(0), out.Late.Min)
	e.add("write to first attempt p99"+at, "ms", nil, out.Lag.P99)
	e.add("CPU of the consumer"+at, "cores", nil, out.CPU/(out.Seconds+out.Joined))
	if p.memory != nil {
		e.add("peak memory"+at, "MiB", p.memory, mib(out.PeakRSS))
	}
	return nil
}
