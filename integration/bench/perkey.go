package main

import (
	"context"
	"time"

	"github.com/redeliver/redeliver"
)

// perKeyRow compares the order in which a key waits for its failures with the default one, which lets them be overtaken.
func perKeyRow(ctx context.Context, e *experiment) error {
	const keys = 1_000_000
	n := e.scaled(500_000)
	e.cluster.shape.keys = keys
	defer func() { e.cluster.shape = shape{} }()
	return e.compare(ctx, comparison{
		ours:   []sideConfig{{side: ours, name: "OrderThroughRetries", messages: n, ratio: 0.7}},
		peer:   sideConfig{side: keyOrder, name: "OrderFirstAttempts", messages: n},
		within: 3 * time.Minute, inFlight: manyInFlight,
		spec: func(s *spec) {
			s.Router, s.Failing, s.Backoff = true, failing{100, 1}, second
			if s.Side == ours {
				s.Order = redeliver.OrderThroughRetries
			}
		},
	})
}
