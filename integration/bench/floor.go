package main

import (
	"context"
	"time"

	"github.com/redeliver/redeliver/integration/bench/floor"
)

// floorWorkers is the number of first deliveries that the floor handles at once, and that of retries in addition. Its
// handlers do not wait, so more workers would only cost time.
const floorWorkers = 64

// floorFailAllRow is fail-all, through kafka.Consume and through the Router, against the minimum cost of its writes.
func floorFailAllRow(ctx context.Context, e *experiment) error {
	n := e.scaled(100_000)
	e.notef(floorNote)
	return e.compare(ctx, besideFloor(n, manyInFlight, func(s *spec) { s.Failing, s.Backoff = failing{1, always}, second }, [2]sideConfig{
		{ratio: 0.95, cpu: atMost(1.2)},
		{ratio: 0.75, cpu: atMost(1.6)},
	}))
}

// floorConsumeRow is the same for messages that succeed.
func floorConsumeRow(ctx context.Context, e *experiment) error {
	n := e.scaled(500_000)
	e.notef(floorNote)
	return e.compare(ctx, besideFloor(n, defaultInFlight, func(*spec) {}, [2]sideConfig{{ratio: 0.95}, {}}))
}

const floorNote = "the floor has no policy, order of keys, timeout, recovery from panics or events, and after a kill it runs again whatever is above its lowest unsettled record"

// besideFloor is a comparison of the drop-in and the Router with the floor. targets are those of the two.
func besideFloor(n, inFlight int, change func(*spec), targets [2]sideConfig) comparison {
	ours, router := sideConfig{side: ours, name: "drop-in", label: ", drop-in", messages: n}, sideConfig{side: viaRouter, name: "Router", label: ", Router", messages: n}
	ours.ratio, ours.cpu = targets[0].ratio, targets[0].cpu
	router.ratio, router.cpu = targets[1].ratio, targets[1].cpu
	return comparison{
		ours: []sideConfig{ours, router}, peer: sideConfig{side: byHand, name: "floor", messages: n},
		within: 3 * time.Minute, inFlight: inFlight,
		spec: func(s *spec) {
			change(s)
			switch s.Side {
			case viaRouter:
				s.Router = true
			case byHand:
				s.Native = minimal
			default:
				s.Native = dropIn
			}
		},
	}
}

// floor returns the floor's configuration.
func (s spec) floor(h *handling) floor.Config {
	return floor.Config{
		Brokers: s.Brokers, Topic: s.Topic, Group: s.Group, Level: time.Second, Retries: retries, Workers: floorWorkers,
		Dead: h.meter.settle, Ready: func() { h.once.Do(h.ready) },
		Handle: func(value []byte, attempts int, due time.Time) error {
			now := time.Now()
			h.meter.enter(value)
			if h.spec.Failing.Every > 0 {
				if err := h.attempt(value, now, attempts, due); err != nil {
					return err
				}
			}
			h.meter.settle()
			return nil
		},
	}
}
