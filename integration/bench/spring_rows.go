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
	e.notef("MaxInFlight %d of our side; a thread of Spring's listener handles one message at a time, by design", manyInFlight)
	return against{java: built, entrants: []entrant{
		{contender{side: ours, name: "redeliver", messages: e.scaled(20_000)}, e},
		{contender{side: springTuned, name: "Spring Kafka, tuned", messages: e.scaled(20_000)}, e},
		{contender{side: springThreads, name: "Spring Kafka, tuned, 4 threads", messages: e.scaled(20_000)}, e},
		{contender{side: springDefault, name: "Spring Kafka, defaults", messages: e.scaled(400)}, e},
	}}.failAll(ctx, e, "ratio to Spring's best", atLeast(10))
}

// springLatenessRow has a rate that Spring, tuned, about holds.
func springLatenessRow(ctx context.Context, e *experiment) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	return against{java: built, entrants: []entrant{
		{contender{side: ours, name: "redeliver"}, e},
		{contender{side: springTuned, name: "Spring Kafka, tuned"}, e},
	}}.lateness(ctx, e, 500)
}

// springConsumeRow has all sides read the same topic, and nothing fails.
func springConsumeRow(ctx context.Context, e *experiment) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	n := e.scaled(100_000)
	all := []contender{
		{side: ours, name: "redeliver", messages: n},
		{side: springDefault, name: "Spring Kafka, defaults", messages: n},
		{side: springThreads, name: "Spring Kafka, 4 threads", messages: n},
	}
	c := comparison{within: 3 * time.Minute, inFlight: defaultInFlight, spec: func(s *spec) {
		s.Router = true
		if s.Side.java() {
			s.Program = javaCommand(built, *s)
		}
	}}
	for run := range e.options.runs + 1 {
		first := run % len(all)
		outs, err := e.round(ctx, c, append(all[first:len(all):len(all)], all[:first]...), run)
		if err != nil {
			return err
		}
		if run > 0 {
			e.addRates(all, outs, "ratio to Spring's best", atLeast(1))
		}
	}
	return nil
}
