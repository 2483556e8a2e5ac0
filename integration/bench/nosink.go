package main

import (
	"context"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// noSinkRow is what events cost whom nobody hears.
func noSinkRow(ctx context.Context, e *experiment) error {
	for run := range e.options.runs + 1 {
		p, err := spawn(spec{Job: unheard, Side: ours, Profile: e.options.profileName(e.row.name, ours, run)})
		if err != nil {
			return err
		}
		out, err := p.await(ctx, time.Minute)
		if err != nil {
			return err
		}
		e.record(ours, run, out)
		e.sayf("run %d: %.1f ns, %d allocations; with the default sink %.1f ns", run, out.Ns, out.Allocs, out.NsSink)
		if run == 0 {
			continue
		}
		e.add("events without a sink", "ns", atMost(20), out.Ns)
		e.add("allocations", "", atMost(0), float64(out.Allocs))
		e.add("events with the default sink", "ns", nil, out.NsSink)
	}
	return nil
}

// doUnheard measures the calls by which a message that succeeds is told of: when it is delivered, when its attempt has
// ended and when it is acked. What a loop costs that calls a function which tells nothing is taken off.
func doUnheard(s spec) (*outcome, error) {
	stopProfile, err := s.startProfile()
	if err != nil {
		return nil, err
	}
	defer stopProfile()
	d := delayqueue.FromContext(delivered(nil).Context())
	heard := delayqueue.FromContext(delivered(redeliver.NewSlogSink(nil)).Context())
	silent, told, sunk := benchTelling(silence, d), benchTelling(tellSuccess, d), benchTelling(tellSuccess, heard)
	ns := func(r testing.BenchmarkResult) float64 { return float64(r.T.Nanoseconds()) / float64(r.N) }
	return &outcome{
		Count: 1, Ns: max(0, ns(told)-ns(silent)), NsSink: max(0, ns(sunk)-ns(silent)),
		Allocs: told.AllocsPerOp(), AllocSink: sunk.AllocsPerOp(), Settings: "no sink", PeakRSS: memory("VmHWM"),
	}, nil
}

func benchTelling(tell func(*delayqueue.Delivery), d *delayqueue.Delivery) testing.BenchmarkResult {
	return testing.Benchmark(func(b *testing.B) { //nolint:thelper // It is the benchmark itself.
		b.ReportAllocs()
		for b.Loop() {
			tell(d)
		}
	})
}

// tellSuccess is who asks for a sink on the way of a message that succeeds.
//
//go:noinline
func tellSuccess(d *delayqueue.Delivery) {
	_ = d.Sub.WantsSuccesses()
	_ = d.Sub.Wants(redeliver.Attempted{})
	d.Sub.Committed(d)
}

//go:noinline
func silence(*delayqueue.Delivery) {}
