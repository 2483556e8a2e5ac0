package main

import (
	"context"
	"time"
)

// springFailAllRow fails the same messages on our side and on Spring's. Three retries of a second mean three seconds in
// which neither side works: there are enough messages to make these a small part of the time.
func springFailAllRow(ctx context.Context, e *experiment) error {
	return e.springFailAll(ctx, e.scaled(60_000), sideConfig{side: springTuned, name: "Spring Kafka, tuned"},
		sideConfig{side: springThreads, name: "Spring Kafka, tuned, 4 threads"})
}

// springDefaultsRow has fewer: Spring's defaults take a minute for 100, so the scale does not reduce them.
func springDefaultsRow(ctx context.Context, e *experiment) error {
	return e.springFailAll(ctx, 100, sideConfig{side: springDefault, name: "Spring Kafka, defaults"})
}

func (e *experiment) springFailAll(ctx context.Context, messages int, spring ...sideConfig) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	e.notef("MaxInFlight %d of our side; a thread of Spring's listener handles one message at a time, by design", manyInFlight)
	a := javaComparison{java: built}
	for _, c := range append([]sideConfig{{side: ours, name: "redeliver"}}, spring...) {
		c.messages = messages
		a.sides = append(a.sides, brokerSide{c, e})
	}
	return a.failAll(ctx, e, "ratio to Spring's best", atLeast(10))
}

// springLatenessRow has a rate that a tuned Spring can barely sustain.
func springLatenessRow(ctx context.Context, e *experiment) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	return javaComparison{java: built, sides: []brokerSide{
		{sideConfig{side: ours, name: "redeliver"}, e},
		{sideConfig{side: springTuned, name: "Spring Kafka, tuned"}, e},
	}}.lateness(ctx, e, 500)
}

// springConsumeRow has all sides read the same topic, and nothing fails.
func springConsumeRow(ctx context.Context, e *experiment) error {
	built, err := e.buildJava(ctx)
	if err != nil {
		return err
	}
	n := e.scaled(100_000)
	all := []sideConfig{
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
