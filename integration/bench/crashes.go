package main

import (
	"context"

	"github.com/redeliver/redeliver/internal/uncounted"
)

// crashlessAgain is another crashless: what is measured between the two is what no difference looks like.
const crashlessAgain side = "ours-not-counting-crashes-again"

// crashTurns is how often each side has its turn in a process. The first is thrown away.
const crashTurns = 13

// crashRow is what the counting of crashes costs a message that succeeds. No setting turns it off: then nothing is
// read from or written into the commit metadata, and all messages begin at once.
func crashRow(ctx context.Context, e *experiment) error {
	e.notef("each run is a process in which the sides take turns of %s messages; a ratio is the median of those of turns that are next to each other, with the bounds between which it lies with a confidence of 95 %%", count(e.scaled(200_000)))
	e.notef("the commit with which a subscription begins is in no turn")
	for run := range e.options.runs {
		if err := e.crashRun(ctx, run+1, e.scaled(200_000)); err != nil {
			return err
		}
	}
	return nil
}

func (e *experiment) crashRun(ctx context.Context, run, n int) error {
	all, err := e.inTurns(ctx, run, n, crashTurns, func(s *spec) { s.Turns.Sides = []side{ours, crashless, crashlessAgain} })
	if err != nil || all == nil {
		return err
	}
	for _, who := range []side{ours, crashless, crashlessAgain} {
		cpu := 0.0
		for _, s := range all[who].Slices[1:] {
			cpu += s.CPU
		}
		e.sayf("run %d, %s: %.2f CPU s per million", run, who, cpu/float64(n*(crashTurns-1))*1e6)
	}
	for i := 1; i < crashTurns; i++ {
		on, off, again := all[ours].Slices[i], all[crashless].Slices[i], all[crashlessAgain].Slices[i]
		e.addPaired("ratio", atLeast(0.98), off.Seconds/on.Seconds)
		e.addPaired("ratio of CPU", atMost(1.02), on.CPU/off.CPU)
		e.addPaired("ratio, not counting beside not counting", nil, off.Seconds/again.Seconds)
		e.addPaired("ratio of CPU, not counting beside not counting", nil, again.CPU/off.CPU)
		e.add("counting", "msg/s", nil, float64(n)*3/4/on.Seconds)
		e.add("not counting", "msg/s", nil, float64(n)*3/4/off.Seconds)
		e.add("CPU per million, counting", "s", nil, on.CPU/float64(n)*1e6)
		e.add("CPU per million, not counting", "s", nil, off.CPU/float64(n)*1e6)
	}
	return nil
}

// subscribing is the context in which a side subscribes.
func (s spec) subscribing() context.Context {
	if s.Side == crashless || s.Side == crashlessAgain {
		return uncounted.With(context.Background())
	}
	return context.Background()
}
