package main

import (
	"context"
	"time"
)

// springFailAllRow has the same messages fail on our side and on Spring's. Spring's defaults get fewer: they take
// minutes for thousands.
func springFailAllRow(ctx context.Context, e *experiment) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	e.notef("MaxInFlight %d of our side; Spring handles one message of a listener at a time, by design", manyInFlight)
	for run := range e.options.runs + 1 {
		rate := make(map[side]float64)
		for _, k := range []contender{
			{side: ours, name: "redeliver", messages: e.scaled(20_000)},
			{side: springTuned, name: "Spring Kafka, tuned", messages: e.scaled(20_000)},
			{side: springDefault, name: "Spring Kafka, defaults", messages: e.scaled(200)},
		} {
			out, err := e.aloneAs(ctx, k.side, run, single{
				load: func(t names) (written, error) { return e.broker.preload(ctx, t.topic, k.messages) }, within: 5 * time.Minute,
			}, manyInFlight, func(s *spec) {
				s.Messages, s.Failing = k.messages, failing{1, always}
				if k.side.spring() {
					s.Program = springCommand(built, *s)
				}
			})
			if err != nil {
				return err
			}
			if out == nil {
				continue
			}
			rate[k.side] = float64(k.messages) / out.Seconds
			e.sayf("run %d, %s: %.0f msg/s, late p99 %.1f ms, peak %.0f MiB", run, k.name, rate[k.side], out.Late.P99, mib(out.PeakRSS))
			if run == 0 {
				continue
			}
			e.add(k.name, "msg/s", nil, rate[k.side])
			e.add("lateness of retries p99, "+k.name, "ms", nil, out.Late.P99)
			e.add("CPU per million, "+k.name, "s", nil, perMillion(out, k.messages))
			e.add("peak memory, "+k.name, "MiB", nil, mib(out.PeakRSS))
		}
		if run > 0 && len(rate) == 3 {
			e.add("ratio to Spring's best", "x", atLeast(10), rate[ours]/max(rate[springTuned], rate[springDefault]))
		}
	}
	return nil
}

// springLatenessRow has a rate that Spring, tuned, about holds.
func springLatenessRow(ctx context.Context, e *experiment) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	const rate = 500
	d := e.lasting(20 * time.Second)
	n := int(rate * d.Seconds())
	for run := range e.options.runs {
		for _, k := range []contender{{side: ours, name: "redeliver"}, {side: springTuned, name: "Spring Kafka, tuned"}} {
			out, err := e.aloneAs(ctx, k.side, run+1, single{
				drive:  func(t names) (written, error) { return e.broker.steady(ctx, t.topic, rate, d) },
				within: d + 2*time.Minute,
			}, manyInFlight, func(s *spec) {
				s.Messages, s.Failing = n, failing{1, always}
				if k.side.spring() {
					s.Program = springCommand(built, *s)
				}
			})
			if err != nil {
				return err
			}
			if out == nil {
				continue
			}
			e.sayf("run %d, %s: late p50 %.2f p99 %.2f max %.1f ms", run+1, k.name, out.Late.P50, out.Late.P99, out.Late.Max)
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
