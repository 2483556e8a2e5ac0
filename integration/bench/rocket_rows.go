package main

import (
	"context"
	"errors"
)

// besideRocket runs a row in which RocketMQ does the same as our side does on Kafka.
func besideRocket(row func(context.Context, *experiment, javaComparison) error, messages int) func(context.Context, *experiment) error {
	return func(ctx context.Context, e *experiment) (err error) {
		built, err := e.buildJava(ctx)
		if err != nil {
			return err
		}
		r, err := openRocket(ctx, e)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.stop()) }()
		e.notef("%s, its broker with its defaults and a messageDelayLevel of 1 s on all levels, one node that confirms as Kafka does, before the disk has it", r.version(ctx))
		there := *e
		there.system, there.broker, there.cluster = onRocket, r, nil
		n := e.scaled(messages)
		return row(ctx, e, javaComparison{java: built, sides: []brokerSide{
			{sideConfig{side: ours, name: "redeliver on Kafka", messages: n}, e},
			{sideConfig{side: rocketTuned, name: "RocketMQ, tuned", messages: n}, &there},
			{sideConfig{side: rocketDefault, name: "RocketMQ, defaults", messages: n}, &there},
		}})
	}
}

const rocketRatio = "ratio to RocketMQ's best"

// rocketFailAll needs as many messages as springFailAllRow, for the same reason.
func rocketFailAll(ctx context.Context, e *experiment, a javaComparison) error {
	e.notef("MaxInFlight %d of our side", manyInFlight)
	return a.failAll(ctx, e, rocketRatio, atLeast(3))
}

func rocketLateness(ctx context.Context, e *experiment, a javaComparison) error {
	return a.lateness(ctx, e, 2000)
}

func rocketConsume(ctx context.Context, e *experiment, a javaComparison) error {
	a.single, a.inFlight, a.spec = preloaded(ctx), defaultInFlight, func(*spec) {}
	return a.eachRound(ctx, e, rocketRatio, atLeast(1))
}
