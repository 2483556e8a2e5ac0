package main

import (
	"context"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
)

// doIdle consumes a subscription whose messages all wait, and samples the memory of the process.
func doIdle(ctx context.Context, s spec, ready func()) (*outcome, error) {
	assigned := make(chan struct{}, 1)
	h, err := newHandling(s, ready)
	if err != nil {
		return nil, err
	}
	c, err := s.open(ctx, redeliver.SinkFunc(func(e redeliver.Event) {
		if e, ok := e.(redeliver.SubscriptionChanged); ok && e.Change == redeliver.ChangeAssigned {
			select {
			case assigned <- struct{}{}:
			default:
			}
		}
	}))
	if err != nil {
		return nil, err
	}
	stopProfile, err := s.startProfile()
	if err != nil {
		return nil, err
	}
	h.meter = newMeter(0)
	finished, err := c.start(s, h)
	if err != nil {
		return nil, err
	}
	select {
	case <-assigned:
		ready()
	case err := <-finished:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began := time.Now()
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	var resident []int64
	for time.Since(began) < s.Sample && ctx.Err() == nil {
		<-ticker.C
		resident = append(resident, memory("VmRSS"))
	}
	stopProfile()
	out := h.outcome()
	out.Settings, out.Seconds, out.Joined = c.settings, s.Sample.Seconds(), 0
	last := resident[len(resident)*2/3:]
	slices.Sort(last)
	out.SteadyRSS = last[len(last)/2]
	c.close()
	return out, nil
}
