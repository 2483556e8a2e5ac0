package adaptertest

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver"
)

// batchEnds tests batches whose function, service or process ends abnormally.
func batchEnds() []test {
	tests := []test{
		{name: "APartialBatchRunsWhenTheServiceCloses", body: flushed},
		{name: "AMessageThatIsLostWhileItWaitsLeavesItsBatch", needs: "KeepsAttempts", body: lostWhileGathering},
		{name: "AStuckBatchFunctionBlocksNoOtherBatch", body: stuckBatch},
		{name: "ABatchOfAKilledProcessComesBackUncounted", needs: "KeepsAttempts", body: killedBatch},
		{name: "ASuspectRunsInABatchOfItsOwn", needs: "CountsCrashes", body: suspectsAlone},
		{name: "ABatchFunctionExtendsItsBatch", body: extendedBatch},
	}
	for i := range tests {
		tests[i].needs = strings.TrimSpace(tests[i].needs + " NoHeadOfLineBlocking")
	}
	return tests
}

// flushed tests that at a shutdown a partial batch runs without waiting for more messages.
func flushed(b *fixture) {
	const n = 3
	msgs, ids := numberedMessages(n)
	p := b.startGathering(Config{Policy: quickPolicy(1), DrainTimeout: Timeout / 3}, redeliver.BatchConfig{Size: 10, Timeout: neverReached}, ackAll)
	b.put(msgs...)
	p.awaitGathered(n)
	if n := len(b.all()); n > 0 {
		b.Errorf("%d messages did not wait for more", n)
	}
	b.closeFinishes(p.process, ids...)
	b.dead(0)
}

// lostWhileGathering ends the drain timeout while one batch runs and a message waits for the next.
func lostWhileGathering(b *fixture) {
	p := b.startGathering(Config{Policy: quickPolicy(1), DrainTimeout: 300 * time.Millisecond}, redeliver.BatchConfig{Size: 2, Timeout: neverReached},
		func(ctx context.Context, _ *Batch) error {
			b.hold(ctx.Done()) // this process loses all its messages
			return errHandler
		})
	b.put(namedMessages("a", "b")...)
	b.await("the batch runs", func() bool { return len(b.all()) == 2 })
	b.put(namedMessages("c")...)
	p.awaitGathered(3)
	p.close()
	if ran := b.ran("c"); len(ran) > 0 {
		b.Errorf("c ran in a batch after it was lost")
	}
	b.start(Config{Policy: quickPolicy(1)}, succeed)
	b.awaitEnds("a", "b", "c")
	for id, want := range map[string][]int{"a": {1, 1}, "b": {1, 1}, "c": {1}} {
		if got := numbers(b.ran(id)); !slices.Equal(got, want) {
			b.Errorf("%s ran as attempts %v, want %v: an end of the service is not an attempt", id, got, want)
		}
	}
	b.dead(0)
}

func stuckBatch(b *fixture) {
	p := quickPolicy(redeliver.NoRetries)
	p.Timeout = 2 * time.Second // only the hanging one waits that long
	var calls atomic.Int64
	var unacked string // the message that the first function has not acked
	proc := b.startBatch(Config{Policy: p}, redeliver.BatchConfig{Size: 2, Timeout: neverReached}, func(_ context.Context, mb *Batch) error {
		if calls.Add(1) > 1 {
			return nil
		}
		if !mb.Messages[0].Ack() {
			b.Error("the first answer of the batch does not count")
		}
		b.change(func() { unacked = mb.Messages[1].State().ID })
		<-b.Context().Done() // the function ignores its own context
		return nil
	})
	b.handled("a", "b", "c", "d")
	st := b.checkDeadLetter(redeliver.ReasonTimeout, 1)
	b.change(func() {
		if st.ID != unacked {
			b.Errorf("%s is in the DLQ, want %s", st.ID, unacked)
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

func killedBatch(b *fixture) {
	const size = 4
	msgs, ids := numberedMessages(size)
	p := b.startBatch(Config{Policy: quickPolicy(1)}, redeliver.BatchConfig{Size: size, Timeout: neverReached}, func(context.Context, *Batch) error {
		<-b.Context().Done()
		return nil
	})
	b.put(msgs...)
	b.await("the batch runs", func() bool { return len(b.all()) == size })
	p.kill()
	b.startBatch(Config{Policy: quickPolicy(1)}, redeliver.BatchConfig{Size: size, Timeout: 200 * time.Millisecond}, ackAll)
	b.awaitEnds(ids...)
	for _, id := range ids {
		if got := numbers(b.ran(id)); !slices.Equal(got, []int{1, 1}) {
			b.Errorf("%s ran as attempts %v, want 1 and 1: a crash is not an attempt", id, got)
		}
	}
	b.dead(0)
}

// suspectsAlone has a message that kills its process every time it runs. If it ran in a batch with others, a crash that
// counts would count for them, too.
func suspectsAlone(b *fixture) {
	p := quickPolicy(3)
	p.MaxCrashes = 1
	ids := []string{"killer", "n1", "n2", "n3"}
	b.put(namedMessages(ids...)...)
	var proc *batchProcess
	b.killUntilDeadLettered(4, ids, func() *process {
		proc = b.startBatch(Config{Policy: p}, redeliver.BatchConfig{Size: len(ids), Timeout: 200 * time.Millisecond},
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
		if ran := proc.ranBatches(); died > b.maxCrashesBeside() && len(ran[len(ran)-1]) > 1 {
			b.Errorf("after %d crashes the killer is still in the batch %v", died, ran[len(ran)-1])
		}
		return nil
	})
}

// extendedBatch extends a batch by its own context, another by a message's.
func extendedBatch(b *fixture) {
	p, takes := extendingPolicy()
	var runs atomic.Int32
	b.startBatch(Config{Policy: p}, redeliver.BatchConfig{Size: 2, Timeout: neverReached}, func(ctx context.Context, mb *Batch) error {
		if runs.Add(1) == 2 {
			ctx = mb.Messages[len(mb.Messages)-1].Context()
		}
		return workFor(ctx, takes)
	})
	for _, ids := range [][]string{{"a", "b"}, {"c", "d"}} {
		b.handled(ids...)
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		b.wantRuns(id, 1)
	}
	b.dead(0)
}
