package main

import (
	"context"
	"time"
)

const sqsInFlight = 100 // sqs.DefaultMaxInFlight

// sqsSubscribeRow has three peers, each with its own row: their numbers of messages differ as their speeds do.
func sqsSubscribeRow(theirs sideConfig, mine int, ratio float64) func(context.Context, *experiment) error {
	return func(ctx context.Context, e *experiment) error {
		theirs := theirs
		theirs.messages = e.scaled(theirs.messages)
		return e.compare(ctx, comparison{
			ours:   []sideConfig{{side: ours, name: "redeliver", messages: e.scaled(mine), ratio: ratio}},
			peer:   theirs,
			within: 3 * time.Minute, inFlight: sqsInFlight,
		})
	}
}

// sqsRequestsRow counts what a user pays AWS for: of messages that succeed, and of messages that fail once.
func sqsRequestsRow(ctx context.Context, e *experiment) error {
	n := e.scaled(50_000)
	e.notef("requests of the consumer from Subscribe on, empty receives included; of a retry: what a message that fails once costs more than one that succeeds")
	for run := range e.options.runs {
		perMessage := make(map[bool]float64)
		for _, fails := range []bool{false, true} {
			out, err := e.alone(ctx, run+1, single{
				load: func(t names) (written, error) { return e.broker.preload(ctx, t.topic, n) }, within: 3 * time.Minute,
			}, sqsInFlight, func(s *spec) {
				s.Messages = n
				if fails {
					s.Failing = failing{1, 1}
				}
			})
			if err != nil {
				return err
			}
			if out == nil {
				return nil // not verified
			}
			perMessage[fails] = float64(out.Requests) / float64(n)
		}
		e.sayf("run %d: %.3f requests of a message that succeeds, %.3f more of one that fails once", run+1, perMessage[false], perMessage[true]-perMessage[false])
		e.add("requests per message", "", atMost(0.22), perMessage[false])
		e.add("requests per retry", "", atMost(0.45), perMessage[true]-perMessage[false])
	}
	return nil
}

func sqsLatenessRow(ctx context.Context, e *experiment) error {
	e.notef("SQS counts whole seconds")
	return e.lateEachRun(ctx, pace{rate: 500, p99: 1200, backoff: second, inFlight: sqsInFlight})
}
