//go:build prove

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/consumer"
)

// kind is a kind of fault. begin returns a function that heals it. It returns one together with an error, too, if
// something must be healed.
type kind struct {
	name    string
	targets int // number of targets to choose from
	begin   func(ctx context.Context, s step) (heal func(context.Context) error, err error)
}

// lane is a sequence of faults, one at a time.
type lane struct {
	name  string
	kinds []kind
	rest  time.Duration // minimum time between two faults
}

// step is one fault of a schedule.
type step struct {
	kind   kind
	after  time.Duration // since the previous one was healed
	lasts  time.Duration
	target int
	size   int // severity, from 0 to 99
}

// draw draws a lane's faults for that duration. Each kind occurs once before any occurs again.
func (l lane) draw(rng *rand.Rand, length time.Duration) []step {
	var steps []step
	for planned := time.Duration(0); planned < length; {
		for _, i := range rng.Perm(len(l.kinds)) {
			k := l.kinds[i]
			s := step{
				kind: k, target: rng.IntN(k.targets), size: rng.IntN(100),
				after: l.rest + time.Duration(200+rng.IntN(2500))*time.Millisecond,
				lasts: time.Duration(500+rng.IntN(5000)) * time.Millisecond,
			}
			if rng.IntN(8) == 0 {
				s.lasts *= 3 // longer than a session
			}
			steps = append(steps, s)
			planned += s.after + s.lasts
		}
	}
	return steps
}

// runSteps executes a lane's steps until ctx ends. It heals a fault that has begun in any case.
func runSteps(ctx context.Context, log *history.Log, l lane, steps []step) error {
	for _, s := range steps {
		if !consumer.Pause(ctx, s.after) {
			return nil
		}
		target := fmt.Sprintf("%s %d", l.name, s.target+1)
		log.Add(history.Line{Kind: history.Fault, What: s.kind.name, Target: target})
		heal, err := s.kind.begin(ctx, s)
		if err == nil {
			consumer.Pause(ctx, s.lasts)
		}
		if heal != nil {
			healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
			err = errors.Join(err, heal(healing))
			cancel()
		}
		log.Add(history.Line{Kind: history.Healed, What: s.kind.name, Target: target})
		if err != nil {
			return fmt.Errorf("%s of %s, size %d: %w", s.kind.name, target, s.size, err)
		}
	}
	return nil
}

// all calls all functions at the same time, even if one fails, because a toxic may wait for another to be removed.
func all(ctx context.Context, do []func(context.Context) error) error {
	errs := make([]error, len(do))
	var doing sync.WaitGroup
	for i, f := range do {
		doing.Go(func() { errs[i] = f(ctx) })
	}
	doing.Wait()
	return errors.Join(errs...)
}
