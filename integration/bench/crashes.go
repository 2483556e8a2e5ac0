package main

import (
	"context"
	"time"

	"github.com/redeliver/redeliver/internal/uncounted"
)

// crashRow is what it costs on the way of a message that succeeds that a crash would be counted. Off is no setting: no
// note is read or written, and all begins at once.
func crashRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	e.notef("the commit with which a subscription begins is in Subscribe to first message, and in no rate")
	return e.compare(ctx, comparison{
		ours:   []contender{{side: ours, name: "counting", messages: n, ratio: 0.98}},
		peer:   contender{side: crashless, name: "not counting", messages: n},
		cpu:    atMost(1.02),
		within: 3 * time.Minute, inFlight: defaultInFlight,
	})
}

// subscribing is the context in which a side subscribes.
func (s spec) subscribing() context.Context {
	if s.Side == crashless {
		return uncounted.With(context.Background())
	}
	return context.Background()
}
