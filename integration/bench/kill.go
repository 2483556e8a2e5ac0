package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/redeliver/redeliver/internal/kafkatest"
)

const (
	killRate = 2000
	// commitInterval is the time between two commits of adapters/kafka.
	commitInterval = 200 * time.Millisecond
	killSlack      = commitInterval + 50*time.Millisecond
)

// killRow kills a consumer and starts it again at once.
func killRow(ctx context.Context, e *experiment) error {
	for run := range e.options.runs {
		if err := e.kill(ctx, run+1); err != nil {
			return err
		}
	}
	return nil
}

func (e *experiment) kill(ctx context.Context, run int) (err error) {
	t, err := e.cluster.fresh(ctx, e.row.name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), t)) }()
	dir, err := os.MkdirTemp("", "redeliver-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	d := e.lasting(20 * time.Second)
	sp := e.spec(ours, t, 0, manyInFlight)
	sp.Router, sp.Backoff, sp.Failing, sp.Instance = true, second, failing{1, always}, "bench-1"

	before, after := sp, sp
	before.Entries, after.Entries = filepath.Join(dir, "before"), filepath.Join(dir, "after")
	first, err := spawn(before)
	if err != nil {
		return err
	}
	if err := first.awaitReady(ctx); err != nil {
		return err
	}
	// Half of the time before the kill, half after it. The kill is at a random time between two commits, because the
	// duplicates depend on the time since the last one.
	type restarted struct {
		p    *process
		down time.Duration
		err  error
	}
	killed := make(chan restarted, 1)
	timer := time.AfterFunc(d/2+rand.N(commitInterval), func() {
		at := time.Now()
		first.kill()
		p, err := spawn(after)
		r := restarted{p: p, err: err}
		if err == nil {
			r.down = p.started.Sub(at)
		}
		killed <- r
	})
	defer timer.Stop()
	w, err := e.cluster.steady(ctx, t.topic, killRate, d)
	if err != nil {
		first.kill()
		return err
	}
	r := <-killed
	if r.err != nil {
		return r.err
	}
	defer r.p.kill()
	dead, err := e.awaitDrained(ctx, t, sp, w)
	if err != nil {
		return err
	}
	r.p.stop()
	out, err := r.p.await(ctx, time.Minute)
	if err != nil {
		return err
	}
	e.record(ours, run, out)
	return e.assess(run, killEvidence{before: before.Entries, after: after.Entries, restart: r.p.started, dead: dead, w: w})
}

// awaitDrained waits until every message is in the DLQ and all copies are settled.
func (e *experiment) awaitDrained(ctx context.Context, t names, s spec, w written) (*contents, error) {
	topics, err := e.cluster.topicsOf(ctx, t)
	if err != nil {
		return nil, err
	}
	dlq := t.topic + "." + s.Group + ".dlq"
	reader, err := kafkatest.NewReader(e.cluster.addrs, dlq)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	maxWait, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	found := &contents{distinct: make(map[uint64]int)}
	for err == nil && len(found.distinct) < w.count {
		err = reader.Poll(maxWait, found.take)
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for err == nil {
		if behind, failed := e.cluster.lag(maxWait, s.Group, topicsReadBy(s, topics)...); failed == nil && behind == 0 {
			break
		}
		select {
		case <-again.C:
		case <-maxWait.Done():
			err = maxWait.Err()
		}
	}
	if err == nil { // what was written before the last commit
		err = reader.ReadToEnd(maxWait, found.take)
	}
	if ctx.Err() != nil {
		return found, ctx.Err()
	}
	if err != nil {
		e.problemf("a minute after the last message %d of %d are in the DLQ, or some are not committed: %v", len(found.distinct), w.count, err)
	}
	return found, nil
}

// killEvidence is the evidence after a kill.
type killEvidence struct {
	before, after string // files of entries
	restart       time.Time
	dead          *contents
	w             written
}

// assess counts what was lost, what ran twice, and how long the restart took.
func (e *experiment) assess(run int, k killEvidence) error {
	before, err := readEntries(k.before)
	if err != nil {
		return err
	}
	after, err := readEntries(k.after)
	if err != nil {
		return err
	}
	type attempt struct {
		id uint64
		n  int
	}
	started := make(map[attempt]time.Time)
	open := make(map[attempt]time.Time) // started and not known to be forwarded
	var died time.Time
	for _, en := range before {
		a := attempt{en.id, en.attempt}
		if en.at.After(died) {
			died = en.at
		}
		if en.kind == entryStarted {
			started[a], open[a] = en.at, en.at
		}
	}
	for _, en := range before {
		if en.kind == entryForwarded {
			delete(open, attempt{en.id, en.attempt})
		}
	}
	lowest := died
	for _, at := range open {
		if at.Before(lowest) {
			lowest = at
		}
	}
	allowed := 0
	for _, at := range started {
		if !at.Before(lowest.Add(-killSlack)) {
			allowed++
		}
	}
	var firstEntry time.Time
	twice, oldest, followUps := 0, time.Duration(0), 0
	again := make(map[attempt]int)
	for _, en := range after {
		if en.kind != entryStarted {
			continue
		}
		if firstEntry.IsZero() || en.at.Before(firstEntry) {
			firstEntry = en.at
		}
		a := attempt{en.id, en.attempt}
		if at, ok := started[a]; ok && again[a] == 0 {
			twice++
			oldest = max(oldest, died.Sub(at))
		} else if again[a] > 0 {
			followUps++
		}
		again[a]++
	}
	if firstEntry.IsZero() {
		return errors.New("the handler never ran after the restart")
	}
	lost := k.w.count - len(k.dead.distinct)
	if lost == 0 && k.dead.sum != k.w.sum {
		e.problemf("run %d: the checksum of the DLQ is not that of the written messages", run)
	}
	back := firstEntry.Sub(k.restart)
	e.sayf("run %d: %d lost, %d ran twice (%d allowed, the oldest %d ms before the kill), %d more runs of copies, %d extra in the DLQ, at work after %d ms",
		run, lost, twice, allowed, oldest.Milliseconds(), followUps, k.dead.records-len(k.dead.distinct), back.Milliseconds())
	e.add("lost", "", atMost(0), float64(lost))
	e.add("restart to first handler entry", "s", atMost(1), back.Seconds())
	e.add("duplicates over the bound", "", atMost(0), float64(max(0, twice-allowed)))
	e.add("attempts that ran twice", "", nil, float64(twice))
	e.add("allowed: since the lowest unsettled + 250 ms", "", nil, float64(allowed))
	e.add("oldest of them before the kill", "ms", nil, float64(oldest.Milliseconds()))
	e.add("extra records in the DLQ", "", nil, float64(k.dead.records-len(k.dead.distinct)))
	e.notef("%s", fmt.Sprintf("killed at %d failing/s with 3 retries, so up to %s attempts/s", killRate, count(4*killRate)))
	return nil
}
