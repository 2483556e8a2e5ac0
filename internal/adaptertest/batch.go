package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// batching tests handlers that get many messages in one call, each with an outcome of its own. A message that waits for its batch
// is in flight. With head-of-line blocking it may block those that would fill the batch, so the batch runs at its
// Timeout.
func batching() []test {
	tests := []test{
		{name: "BatchAnswersFollowTheTable", body: tableHolds},
		{name: "AFullBatchRunsAtOnce", body: fullAtOnce},
		{name: "APartialBatchRunsAtItsTimeout", body: partialAtTimeout},
		{name: "ABatchHasAsManyMessagesOfAKeyAsThereAre", needs: "OrderFirstAttempts", body: keepsKeys},
		{name: "ABatchAboveMaxInFlightIsRefused", body: aboveMaxInFlight},
	}
	for i := range tests {
		tests[i].needs = strings.TrimSpace(tests[i].needs + " NoHeadOfLineBlocking")
	}
	return append(tests, test{name: "EachMessageOfABatchKeepsItsOwnAttemptsDelayAndReason", body: answersPerMessage}, test{name: "ABatchHasNoDuplicates", body: noDuplicates})
}

// neverReached is a BatchConfig.Timeout that no test waits for, and that every broker allows.
const neverReached = 10 * time.Minute

// batchProcess is a process with a batch handler.
type batchProcess struct {
	*process
	// Guarded by the journal's mu.
	gathered []string   // messages that arrived
	batches  [][]string // batches that ran, with sorted ids
}

// startBatch starts a process of the first group with a batch handler. In the journal each of its attempts ends when it
// begins: an answer takes effect before the function returns.
func (b *fixture) startBatch(cfg Config, bc redeliver.BatchConfig, fn BatchFunc) *batchProcess {
	b.Helper()
	p := &batchProcess{process: &process{b: b, journal: b.journal, done: make(chan struct{})}}
	if b.form == nativeBatches {
		p.consumeBatches(b.group, cfg, bc, p.recordBatches(fn))
		return p
	}
	arrive := func(h message.HandlerFunc) message.HandlerFunc {
		return func(msg *message.Message) ([]*message.Message, error) {
			st, _ := redeliver.FromContext(msg.Context())
			p.recordArrival(st.ID)
			return h(msg)
		}
	}
	run := p.recordBatches(fn)
	h, err := middleware.Batch(bc, func(ctx context.Context, mb *middleware.MessageBatch) error { return run(ctx, BatchOf(mb)) })
	if err != nil {
		b.Fatal(err)
	}
	p.route(b.group, cfg, h, middleware.Retry(), arrive)
	return p
}

// startGathering is startBatch, but records arrivals also in the broker's own form, where Policy.Invalid sees them.
func (b *fixture) startGathering(cfg Config, bc redeliver.BatchConfig, fn BatchFunc) *batchProcess {
	b.Helper()
	if b.form != nativeBatches {
		return b.startBatch(cfg, bc, fn)
	}
	p := &batchProcess{process: &process{b: b, journal: b.journal, done: make(chan struct{})}}
	cfg.Policy.Invalid = func(m redeliver.Message) error {
		p.recordArrival(m.State.ID)
		return nil
	}
	p.consumeBatches(b.group, cfg, bc, p.recordBatches(fn))
	return p
}

func (p *batchProcess) recordArrival(id string) {
	p.journal.change(func() { p.gathered = append(p.gathered, id) })
}

// recordBatches returns a batch function that records its batches.
func (p *batchProcess) recordBatches(fn BatchFunc) BatchFunc {
	return func(ctx context.Context, mb *Batch) error {
		if p.killed.Load() {
			return nil
		}
		slices.SortFunc(mb.Messages, func(x, y BatchMessage) int { return strings.Compare(x.State().ID, y.State().ID) })
		ids := make([]string, len(mb.Messages))
		for i, m := range mb.Messages {
			a := p.recordAttempt(m.Context(), &attempt{UUID: m.State().ID})
			p.journal.change(func() { a.Ended = a.Began })
			ids[i] = a.State.ID
		}
		p.journal.change(func() { p.batches = append(p.batches, ids) })
		return fn(ctx, mb)
	}
}

// ranBatches returns the batches so far.
func (p *batchProcess) ranBatches() [][]string {
	p.journal.mu.Lock()
	defer p.journal.mu.Unlock()
	return slices.Clone(p.batches)
}

// awaitGathered waits until n messages have arrived.
func (p *batchProcess) awaitGathered(n int) {
	p.b.Helper()
	p.b.await(fmt.Sprintf("%d messages come to their batch", n), func() bool {
		p.journal.mu.Lock()
		defer p.journal.mu.Unlock()
		return len(p.gathered) >= n
	})
}

// ackAll is a batch function that succeeds.
func ackAll(context.Context, *Batch) error { return nil }

func answersPerMessage(b *fixture) {
	const delay = 400 * time.Millisecond
	p := quickPolicy(3)
	p.Levels = []time.Duration{100 * time.Millisecond, delay}
	ids := []string{"declined", "fine", "later", "permanent", "rejected", "twice"}
	proc := b.startBatch(Config{Policy: p}, redeliver.BatchConfig{Size: len(ids), Timeout: 300 * time.Millisecond},
		func(_ context.Context, mb *Batch) error {
			for _, m := range mb.Messages {
				switch st := m.State(); {
				case st.ID == "permanent":
					m.Answer(redeliver.Permanent(errHandler))
				case st.ID == "declined":
					m.Answer(fmt.Errorf("try %d: %w", st.Attempt(), errHandler))
				case st.ID == "later" && st.Attempts == 0:
					m.RetryAfter(delay)
				case st.ID == "rejected" && st.Attempts == 1:
					m.Reject("no such schema")
				case st.ID == "rejected", st.ID == "twice" && st.Attempts < 2:
					m.Retry()
				}
			}
			return nil
		})
	b.handled(ids...)
	for id, runs := range map[string]int{"declined": 4, "fine": 1, "later": 2, "permanent": 1, "rejected": 2, "twice": 3} {
		b.wantRuns(id, runs)
	}
	b.checkNotEarly(constantDelay(delay), "later")
	b.checkNotEarly(constantDelay(100*time.Millisecond), "declined", "rejected", "twice")
	for _, m := range b.dead(3) {
		st := b.deadLetterState(m)
		switch st.ID {
		case "permanent":
			b.checkReason(st, redeliver.ReasonPermanent, 1)
		case "rejected":
			b.checkReason(st, redeliver.ReasonRejected, 2)
		default:
			b.checkReason(st, redeliver.ReasonExhausted, 4)
		}
		want := map[string]string{"declined": "try 4: card declined", "permanent": "card declined", "rejected": "no such schema"}[st.ID]
		if want == "" || !strings.Contains(st.Error, want) {
			b.Errorf("%s is in the DLQ with %q, want %q", st.ID, st.Error, want)
		}
	}
	if first := proc.ranBatches()[0]; len(first) < 2 {
		b.Logf("the first batch had only %v", first) // the broker is slow; only the outcomes matter
	}
}

func fullAtOnce(b *fixture) {
	const size = 5
	_, ids := numberedMessages(3 * size)
	p := b.startBatch(Config{Policy: quickPolicy(1)}, redeliver.BatchConfig{Size: size, Timeout: neverReached}, ackAll)
	b.handled(ids...) // at once: not after the Timeout of an hour
	for _, ran := range p.ranBatches() {
		if len(ran) != size {
			b.Errorf("a batch of %d, want %d", len(ran), size)
		}
	}
	b.wantEach(1, ids...)
}

func partialAtTimeout(b *fixture) {
	const size, timeout = 10, 400 * time.Millisecond
	minWait := timeout
	if b.h.KeepsPlaces {
		minWait = 200 * time.Millisecond // see maxSourceIdle in package engine
	}
	_, ids := numberedMessages(size - 1)
	p := b.startBatch(Config{Policy: quickPolicy(1)}, redeliver.BatchConfig{Size: size, Timeout: timeout}, ackAll)
	begun := time.Now()
	b.handled(ids...)
	for _, a := range b.all() {
		if after := a.Began.Sub(begun); after < minWait {
			b.Errorf("%s ran after %s in a batch that was not full, want %s", a.State.ID, after, minWait)
		}
	}
	for _, ran := range p.ranBatches() {
		if len(ran) == 0 {
			b.Error("a batch of nothing")
		}
	}
}

// keepsKeys tests that a batch has as many messages of a key as there are, in their order, and that few keys do not make it wait.
func keepsKeys(b *fixture) {
	const keys, each, size = 2, 6, 6
	msgs, ids := inTurn(keys, each)
	b.put(msgs...)
	p := b.startBatch(Config{Policy: quickPolicy(1)}, redeliver.BatchConfig{Size: size, Timeout: neverReached}, ackAll)
	b.awaitEnds(ids...)
	last := make(map[string]string)
	for _, ran := range p.ranBatches() { // its ids are sorted
		if len(ran) != size && !b.h.KeepsPlaces {
			b.Errorf("a batch of %d, want it full: %v", len(ran), ran)
		}
		for _, id := range ran {
			if key := id[:1]; last[key] >= id {
				b.Errorf("%s ran after %s", id, last[key])
			}
			last[id[:1]] = id
		}
	}
	if n := len(p.ranBatches()); n > keys*each/2 {
		b.Errorf("%d batches for %d messages", n, keys*each)
	}
}

// noDuplicates tests that of copies with one id one succeeds, also if the first run fails, and that all of them are acked.
func noDuplicates(b *fixture) {
	const pairs = 5
	msgs, ids := numberedMessages(2 * pairs)
	orderOf := func(id string) string { return id[:len(id)-1] + string('0'+id[len(id)-1]%pairs) }
	dedup, err := middleware.DedupBatch(middleware.DedupConfigOf[redeliver.Message]{ID: func(m redeliver.Message) string { return orderOf(m.State.ID) }})
	if err != nil {
		b.Fatal(err)
	}
	var mu sync.Mutex
	runs := make(map[string]int)
	b.startBatch(Config{Policy: quickPolicy(3)}, redeliver.BatchConfig{Size: pairs, Timeout: 100 * time.Millisecond, Dedup: dedup}, func(_ context.Context, mb *Batch) error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range mb.Messages {
			order := orderOf(m.State().ID)
			if runs[order]++; runs[order] == 1 && order < "m-002" {
				m.Retry()
			}
		}
		return nil
	})
	b.put(msgs...)
	b.awaitEnds(ids...)
	mu.Lock()
	defer mu.Unlock()
	for order, n := range runs {
		want := 1
		if order < "m-002" {
			want = 2
		}
		if n != want {
			b.Errorf("order %s ran %d times, want %d", order, n, want)
		}
	}
	if len(runs) != pairs {
		b.Errorf("%d orders ran, want %d", len(runs), pairs)
	}
	b.dead(0)
}

func aboveMaxInFlight(b *fixture) {
	const bound = 3
	msgs, ids := numberedMessages(bound)
	b.put(msgs...)
	b.checkRefused(Config{Policy: quickPolicy(1), MaxInFlight: bound}, redeliver.BatchConfig{Size: bound + 1, Timeout: 100 * time.Millisecond})
	if n := len(b.all()); n > 0 {
		b.Errorf("%d messages ran in batches that can never be full", n)
	}
	b.startBatch(Config{Policy: quickPolicy(1), MaxInFlight: bound}, redeliver.BatchConfig{Size: bound, Timeout: neverReached}, ackAll)
	b.awaitEnds(ids...)
	if !b.h.KeepsPlaces {
		for _, id := range ids {
			b.wantRuns(id, 1)
		}
	}
	b.dead(0)
}

// checkRefused checks that a process with these batches handles nothing and reports why, at its start or when
// messages come.
func (b *fixture) checkRefused(cfg Config, bc redeliver.BatchConfig) {
	b.Helper()
	if b.form == nativeBatches {
		run, _ := b.h.ConsumeBatch(b.T, b.config(b.group, cfg, redeliver.SinkFunc(func(redeliver.Event) {})), bc, ackAll)
		if err := run(b.Context()); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "BatchConfig.Size") {
			b.Errorf("refused: %v", err)
		}
		return
	}
	p := b.startBatch(cfg, bc, ackAll)
	b.await("the subscription is refused", func() bool { return len(b.changesOf(redeliver.ChangeBatchRefused)) > 0 })
	refused := b.changesOf(redeliver.ChangeBatchRefused)[0]
	if refused.Err == nil || !strings.Contains(refused.Err.Error(), "BatchConfig.Size") || refused.Origin != b.origin || refused.Group != b.group {
		b.Errorf("refused: %+v", refused)
	}
	p.close()
}
