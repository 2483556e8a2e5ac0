package adaptertest

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// batchEnds: what becomes of batches when a function, a service or a process ends
// otherwise than it should.
func batchEnds() []test {
	tests := []test{
		{name: "APartialBatchRunsWhenTheServiceCloses", body: flushed},
		{name: "AMessageThatIsLostWhileItWaitsLeavesItsBatch", needs: "KeepsAttempts", body: lostWhileGathering},
		{name: "ABatchFunctionThatNeverReturnsHoldsUpNoOther", body: stuckBatch},
		{name: "ABatchThatDiesWithItsProcessComesBackUncounted", needs: "KeepsAttempts", body: killedBatch},
		{name: "WhatMayHaveKilledItsProcessIsABatchOfItsOwn", needs: "CountsCrashes", body: suspectsAlone},
		{name: "ABatchFunctionExtendsItsBatch", body: extendedBatch},
	}
	for i := range tests {
		tests[i].needs = strings.TrimSpace(tests[i].needs + " SlowHoldsUpNone")
	}
	return tests
}

// flushed: the rest runs without waiting for more, within the drain timeout.
func flushed(b *bench) {
	const n = 3
	msgs, ids := many(n)
	p := b.startGathering(Config{Policy: quick(1), DrainTimeout: Timeout / 3}, middleware.BatchConfig{Size: 10, Timeout: time.Hour}, ackAll)
	b.put(msgs...)
	p.awaitGathered(n)
	if n := len(b.all()); n > 0 {
		b.Errorf("%d messages did not wait for more", n)
	}
	b.closeFinishes(p.process, ids...)
	b.dead(0)
}

// lostWhileGathering: the drain timeout is over while one batch runs and a message
// waits for the next one.
func lostWhileGathering(b *bench) {
	p := b.startGathering(Config{Policy: quick(1), DrainTimeout: 300 * time.Millisecond}, middleware.BatchConfig{Size: 2, Timeout: time.Hour},
		func(ctx context.Context, _ *Batch) error {
			b.hold(ctx.Done()) // all its messages are lost to this process
			return errDeclined
		})
	b.put(named("a", "b")...)
	b.await("the batch runs", func() bool { return len(b.all()) == 2 })
	b.put(named("c")...)
	p.awaitGathered(3)
	p.close()
	if ran := b.ran("c"); len(ran) > 0 {
		b.Errorf("c ran in a batch after it was lost")
	}
	b.start(Config{Policy: quick(1)}, succeed)
	b.awaitEnds("a", "b", "c")
	for id, want := range map[string][]int{"a": {1, 1}, "b": {1, 1}, "c": {1}} {
		if got := numbers(b.ran(id)); !slices.Equal(got, want) {
			b.Errorf("%s ran as attempts %v, want %v: an end of the service is no attempt", id, got, want)
		}
	}
	b.dead(0)
}

func stuckBatch(b *bench) {
	p := quick(redeliver.NoRetries)
	p.Timeout = 2 * time.Second // the hanging one alone waits for it
	var calls atomic.Int64
	var hung string // what the first function has not acked
	proc := b.startBatch(Config{Policy: p}, middleware.BatchConfig{Size: 2, Timeout: time.Hour}, func(_ context.Context, mb *Batch) error {
		if calls.Add(1) > 1 {
			return nil
		}
		if !mb.Messages[0].Ack() {
			b.Error("the first answer of the batch does not count")
		}
		b.change(func() { hung = mb.Messages[1].State().ID })
		<-b.Context().Done() // the test's: it goes on whatever it is told
		return nil
	})
	b.handled("a", "b", "c", "d")
	st := b.buried(redeliver.ReasonTimeout, 1)
	b.change(func() {
		if st.ID != hung {
			b.Errorf("%s is in the DLQ, want %s", st.ID, hung)
		}
	})
	for _, e := range awaitEvents[redeliver.HandlerStuck](b, 1) {
		if e.State.ID != st.ID {
			b.Errorf("%s is said to be stuck, want %s", e.State.ID, st.ID)
		}
	}
	if n := len(proc.ranBatches()); n != 2 {
		b.Errorf("%d batches, want 2", n)
	}
}

func killedBatch(b *bench) {
	const size = 4
	msgs, ids := many(size)
	p := b.startBatch(Config{Policy: quick(1)}, middleware.BatchConfig{Size: size, Timeout: time.Hour}, func(context.Context, *Batch) error {
		<-b.Context().Done()
		return nil
	})
	b.put(msgs...)
	b.await("the batch runs", func() bool { return len(b.all()) == size })
	p.kill()
	b.startBatch(Config{Policy: quick(1)}, middleware.BatchConfig{Size: size, Timeout: 200 * time.Millisecond}, ackAll)
	b.awaitEnds(ids...)
	for _, id := range ids {
		if got := numbers(b.ran(id)); !slices.Equal(got, []int{1, 1}) {
			b.Errorf("%s ran as attempts %v, want 1 and 1: a crash is no attempt", id, got)
		}
	}
	b.dead(0)
}

// suspectsAlone: one message kills its process every time it runs. Were it in a
// batch with others when it is judged, they would be charged too.
func suspectsAlone(b *bench) {
	p := quick(3)
	p.MaxCrashes = 1
	ids := []string{"killer", "n1", "n2", "n3"}
	b.put(named(ids...)...)
	var proc *batcher
	b.killUntilBuried(4, ids, func() *process {
		proc = b.startBatch(Config{Policy: p}, middleware.BatchConfig{Size: len(ids), Timeout: 200 * time.Millisecond},
			func(_ context.Context, mb *Batch) error {
				if mb.Messages[0].State().ID == "killer" { // they are sorted
					<-b.Context().Done()
				}
				return nil
			})
		return proc.process
	}, func(died int) []string {
		b.await("its batch is in the journal", func() bool {
			return slices.ContainsFunc(proc.ranBatches(), func(ran []string) bool { return slices.Contains(ran, "killer") })
		})
		if ran := proc.ranBatches(); died > b.beside() && len(ran[len(ran)-1]) > 1 {
			b.Errorf("after %d crashes the killer is still in the batch %v", died, ran[len(ran)-1])
		}
		return nil
	})
}

// extendedBatch: by its own context, or by that of a message in it.
func extendedBatch(b *bench) {
	p, takes := extending()
	var runs atomic.Int32
	b.startBatch(Config{Policy: p}, middleware.BatchConfig{Size: 2, Timeout: time.Hour}, func(ctx context.Context, mb *Batch) error {
		if runs.Add(1) == 2 {
			ctx = mb.Messages[1].Context()
		}
		return works(ctx, takes)
	})
	for _, ids := range [][]string{{"a", "b"}, {"c", "d"}} {
		b.handled(ids...)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		b.wantRuns(id, 1)
	}
	b.dead(0)
}
