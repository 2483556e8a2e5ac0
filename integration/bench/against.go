package main

import (
	"context"
	"slices"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// brokerSide is a side with the experiment whose broker it uses.
type brokerSide struct {
	sideConfig
	at *experiment
}

// javaComparison runs our side and the sides in Java on the same task, in turn.
type javaComparison struct {
	java     *brokers.JavaProject
	sides    []brokerSide
	single   func(brokerSide) single
	inFlight int
	spec     func(*spec)
}

// round runs each side once; each round begins with another side. An unverified side is missing from the
// result.
func (a javaComparison) round(ctx context.Context, run int) (map[side]*outcome, error) {
	first := run % len(a.sides)
	outs := make(map[side]*outcome)
	for _, k := range slices.Concat(a.sides[first:], a.sides[:first]) {
		out, err := k.at.aloneAs(ctx, k.side, run, a.single(k), a.inFlight, func(s *spec) {
			s.Messages = k.messages
			a.spec(s)
			if k.side.java() {
				s.Program = javaCommand(a.java, *s)
			}
		})
		if err != nil {
			return outs, err
		}
		if out != nil {
			outs[k.side] = out
			k.at.logRun(run, k.sideConfig, out)
		}
	}
	return outs, nil
}

func (a javaComparison) configs() []sideConfig {
	var all []sideConfig
	for _, k := range a.sides {
		all = append(all, k.sideConfig)
	}
	return all
}

func (e *experiment) logRun(run int, k sideConfig, out *outcome) {
	late := ""
	if out.Late != nil {
		late = ", late p50 " + number(out.Late.P50, "ms") + " p99 " + number(out.Late.P99, "ms") + " max " + number(out.Late.Max, "ms")
	}
	e.sayf("run %d, %s: %.0f msg/s%s, %.2f CPU s per million, peak %.0f MiB", run, k.name, float64(k.messages)/out.Seconds, late, perMillion(out, k.messages), mib(out.PeakRSS))
}

// preloaded writes all messages before a side starts.
func preloaded(ctx context.Context) func(brokerSide) single {
	return func(k brokerSide) single {
		return single{
			load:   func(t names) (written, error) { return k.at.broker.preload(ctx, t.topic, k.messages) },
			within: 5 * time.Minute,
		}
	}
}

// failAll makes every side fail every message for good, and compares ours with the best of the others.
func (a javaComparison) failAll(ctx context.Context, e *experiment, ratio string, bound *target) error {
	a.single, a.inFlight, a.spec = preloaded(ctx), manyInFlight, func(s *spec) { s.Failing = failing{1, always} }
	return a.eachRound(ctx, e, ratio, bound)
}

func (a javaComparison) eachRound(ctx context.Context, e *experiment, ratio string, bound *target) error {
	for run := range e.options.runs + 1 {
		outs, err := a.round(ctx, run)
		if err != nil {
			return err
		}
		if run > 0 {
			e.addRates(a.configs(), outs, ratio, bound)
		}
	}
	return nil
}

// addRates records the rates of a round's sides, and if none is missing the ratio of ours to the best of the others.
func (e *experiment) addRates(all []sideConfig, outs map[side]*outcome, ratio string, bound *target) {
	rate := make(map[side]float64)
	best := 0.0
	for _, k := range all {
		out := outs[k.side]
		if out == nil {
			continue
		}
		rate[k.side] = float64(k.messages) / out.Seconds
		if k.side != ours {
			best = max(best, rate[k.side])
		}
		e.add(k.name, "msg/s", nil, rate[k.side])
		if out.Late != nil {
			e.add("lateness of retries p99, "+k.name, "ms", nil, out.Late.P99)
		}
		e.add("CPU per million, "+k.name, "s", nil, perMillion(out, k.messages))
		e.add("peak memory, "+k.name, "MiB", nil, mib(out.PeakRSS))
	}
	if len(outs) == len(all) {
		e.add(ratio, "x", bound, rate[ours]/best)
	}
}

// lateness makes all sides fail a steady flow of messages. Our p99 has a target. The first fifth does not count: the
// JVM compiles its code meanwhile.
func (a javaComparison) lateness(ctx context.Context, e *experiment, rate int) error {
	d := e.lasting(25 * time.Second)
	for i := range a.sides {
		a.sides[i].messages = int(float64(rate) * d.Seconds())
	}
	a.single = func(k brokerSide) single {
		return single{
			drive:  func(t names) (written, error) { return k.at.broker.steady(ctx, t.topic, rate, d) },
			within: d + 2*time.Minute,
		}
	}
	a.inFlight, a.spec = manyInFlight, func(s *spec) { s.Failing, s.Warm = failing{1, always}, s.Messages/5 }
	for run := range e.options.runs + 1 {
		outs, err := a.round(ctx, run)
		if err != nil {
			return err
		}
		if run == 0 {
			continue
		}
		for _, k := range a.sides {
			out := outs[k.side]
			if out == nil {
				continue
			}
			var bound *target
			if k.side == ours {
				bound = atMost(10)
			}
			e.add("p99, "+k.name, "ms", bound, out.Late.P99)
			e.add("p50, "+k.name, "ms", nil, out.Late.P50)
			e.add("max, "+k.name, "ms", nil, out.Late.Max)
			e.add("write to first attempt p99, "+k.name, "ms", nil, out.Lag.P99)
			e.add("CPU of the consumer, "+k.name, "cores", nil, out.CPU/(out.Seconds+out.Joined))
			e.add("peak memory, "+k.name, "MiB", nil, mib(out.PeakRSS))
		}
	}
	return nil
}
