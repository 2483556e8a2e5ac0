package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// The share rows run adapters/kafkashare and adapters/kafka with the same number of processes and 4 partitions. All
// processes join before the first message is written, because a share group needs seconds to join. Entry logs say what
// ran where, so a process can be killed.

const (
	shareFailing   = 4   // processes of the rows in which messages fail
	shareKilled    = 4   // processes of the row in which one is killed
	shareLateRate  = 500 // failing messages/s
	shareKillRate  = 1000
	shareKillWait  = 20 * time.Millisecond // of the handler, so that the killed process has messages
	shareSettled   = 2 * time.Minute       // bounds how long messages take after the last write
	shareJoinBound = time.Minute
)

// shareSides are the sides of the share rows.
var shareSides = []sideConfig{{side: share, name: "kafkashare"}, {side: ours, name: "kafka"}}

// team is the processes of one side in one run.
type team struct {
	e       *experiment
	run     int    // from 1
	name    string // of the side
	spec    spec
	members []*process
	logs    entryLogs
	done    *history // when all messages have ended
	dir     string
	began   time.Time
	cpu     []time.Duration // of each process when all had joined
	broker  time.Duration   // of the broker's process then
}

// eachShareRun calls once with a team of each side in turn. Each run begins with the other side.
func (e *experiment) eachShareRun(ctx context.Context, processes int, change func(*spec), once func(ctx context.Context, t *team) error) error {
	for run := 1; run <= e.options.runs; run++ {
		order := slices.Clone(shareSides)
		if run%2 == 0 {
			slices.Reverse(order)
		}
		for _, k := range order {
			if err := e.withTeam(ctx, k, run, processes, change, once); err != nil {
				return fmt.Errorf("run %d, %s: %w", run, k.name, err)
			}
		}
	}
	return nil
}

// withTeam starts the processes of a side on a fresh topic, waits until all have joined, and calls once.
func (e *experiment) withTeam(ctx context.Context, who sideConfig, run, processes int, change func(*spec), once func(context.Context, *team) error) (err error) {
	n, err := e.cluster.fresh(ctx, e.row.name)
	if err != nil {
		return err
	}
	t := &team{e: e, run: run, name: who.name, spec: e.spec(who.side, n, run, defaultInFlight)}
	if t.dir, err = os.MkdirTemp("", "redeliver-bench-"); err != nil {
		return err
	}
	defer func() {
		for _, p := range t.members {
			p.kill() // does nothing to one that has ended
		}
		err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), n), os.RemoveAll(t.dir))
	}()
	t.spec.Router, t.spec.Backoff = true, second
	change(&t.spec)
	if err := e.prepare(ctx, t.spec); err != nil {
		return err
	}
	paths := make([]string, processes)
	for i := range paths {
		s := t.spec
		s.Entries = filepath.Join(t.dir, strconv.Itoa(i))
		if s.Profile != "" {
			s.Profile += fmt.Sprintf("-%d-of-%d", i+1, processes)
		}
		p, err := spawn(s)
		if err != nil {
			return err
		}
		t.members, paths[i] = append(t.members, p), s.Entries
	}
	if err := t.awaitJoined(ctx); err != nil {
		return err
	}
	if t.logs, err = openEntryLogs(paths); err != nil {
		return err
	}
	defer t.logs.close()
	t.began = time.Now()
	for _, p := range t.members {
		t.cpu = append(t.cpu, cpuOf(p.cmd.Process.Pid))
	}
	t.broker = e.cluster.cpu()
	return once(ctx, t)
}

// awaitJoined waits until every process is a member of its groups. At first the broker may have no coordinator for
// them.
func (t *team) awaitJoined(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, shareJoinBound)
	defer cancel()
	var last error
	err := poll(ctx, func() (joined bool, err error) {
		for _, p := range t.members {
			select {
			case <-p.done:
				return false, fmt.Errorf("a process ended before all had joined: %w", p.err)
			default:
			}
		}
		joined, last = t.e.cluster.joined(ctx, t.spec, len(t.members))
		return joined, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for %d processes to join: %w", len(t.members), errors.Join(err, last))
	}
	return nil
}

// awaitEnded waits until n messages have ended in any process.
func (t *team) awaitEnded(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, shareSettled)
	defer cancel()
	ended := 0
	err := poll(ctx, func() (done bool, err error) {
		if ended, _, err = t.logs.ended(); err != nil || ended < n {
			return false, err
		}
		if t.done, err = t.logs.history(); err != nil {
			return false, err
		}
		ended = len(t.done.all)
		return ended >= n, nil
	})
	if err != nil {
		return fmt.Errorf("%d of %d messages have ended: %w", ended, n, err)
	}
	return nil
}

// poll calls done every 50 ms until it reports true or an error, or ctx ends.
func poll(ctx context.Context, done func() (bool, error)) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add records a value of this run.
func (t *team) add(what, unit string, bound *target, v float64) {
	t.e.add(what+", "+t.name, unit, bound, v)
}

// logf prints a line about this run.
func (t *team) logf(format string, args ...any) {
	t.e.sayf("run %d, %s: %s", t.run, t.name, fmt.Sprintf(format, args...))
}

// addCPU records what the processes, without killed ones, and the broker used since all had joined.
func (t *team) addCPU(messages int) {
	var used time.Duration
	for i, p := range t.members {
		if now := cpuOf(p.cmd.Process.Pid); now > t.cpu[i] {
			used += now - t.cpu[i]
		}
	}
	t.add("CPU of the processes per million", "s", nil, used.Seconds()/float64(messages)*1e6)
	if t.broker == 0 {
		t.e.notef("the broker's process is not on this machine or cannot be read, so its CPU is not in the table")
		return
	}
	t.add("CPU of the broker per million", "s", nil, (t.e.cluster.cpu()-t.broker).Seconds()/float64(messages)*1e6)
}

// stop asks all processes to end and returns what they measured, as one outcome.
func (t *team) stop(ctx context.Context) (*outcome, error) {
	all := &outcome{Seconds: t.done.last.Sub(t.done.first).Seconds(), Finished: t.done.last}
	for _, p := range t.members {
		p.stop()
	}
	for _, p := range t.members {
		out, err := p.await(ctx, time.Minute)
		if err != nil {
			return nil, err
		}
		t.e.record(t.spec.Side, t.run, out)
		all.Count, all.Sum, all.Entries = all.Count+out.Count, all.Sum+out.Sum, all.Entries+out.Entries
		all.PeakRSS += out.PeakRSS
		all.Late = worst(all.Late, out.Late)
	}
	return all, nil
}

// worst combines the lateness of two processes. Each percentile is that of the worse one.
func worst(a, b *lateness) *lateness {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return &lateness{Min: min(a.Min, b.Min), P50: max(a.P50, b.P50), P99: max(a.P99, b.P99), Max: max(a.Max, b.Max), Early: a.Early + b.Early}
}

// shareSuccessRow handles messages that all succeed, in that many processes.
func shareSuccessRow(processes int) func(context.Context, *experiment) error {
	return func(ctx context.Context, e *experiment) error {
		n := e.scaled(30_000)
		e.notef("written when all processes have joined; from the first handler entry until the last success")
		return e.eachShareRun(ctx, processes, func(*spec) {}, func(ctx context.Context, t *team) error {
			out, err := t.handleAll(ctx, n)
			if err != nil || out == nil {
				return err
			}
			t.add("peak memory of all processes", "MiB", nil, mib(out.PeakRSS))
			return nil
		})
	}
}

// shareFailAllRow makes all messages fail until they are in the DLQ.
func shareFailAllRow(ctx context.Context, e *experiment) error {
	n := e.scaled(20_000)
	e.notef("written when all %d processes have joined; the 3 s of waiting are included", shareFailing)
	return e.eachShareRun(ctx, shareFailing, func(s *spec) { s.Failing = failing{1, always} }, func(ctx context.Context, t *team) error {
		out, err := t.handleAll(ctx, n)
		if err != nil || out == nil {
			return err
		}
		t.add("lateness of retries p99", "ms", nil, out.Late.P99)
		return nil
	})
}

// handleAll writes n messages at once and waits until all have ended. A result that is wrong is recorded as a problem
// and missing from the result.
func (t *team) handleAll(ctx context.Context, n int) (*outcome, error) {
	w, err := t.e.cluster.preload(ctx, t.spec.Topic, n)
	if err != nil {
		return nil, err
	}
	out, err := t.finish(ctx, w)
	if err != nil || out == nil {
		return nil, err
	}
	t.logf("%.0f msg/s, the first %.1f s after the first write", float64(n)/out.Seconds, t.done.first.Sub(t.began).Seconds())
	t.e.add(t.name, "msg/s", nil, float64(n)/out.Seconds)
	return out, nil
}

// finish waits until all messages have ended, stops the processes, and compares what they did with what was written.
func (t *team) finish(ctx context.Context, w written) (*outcome, error) {
	if err := t.awaitEnded(ctx, w.count); err != nil {
		return nil, err
	}
	t.addCPU(w.count)
	out, err := t.stop(ctx)
	if err != nil {
		return nil, err
	}
	if err := t.e.verify(ctx, t.spec, out, w); err != nil {
		t.e.problemf("run %d, %s: %v", t.run, t.name, err)
		return nil, nil //nolint:nilnil // Not verified, so there is nothing to count; the row continues.
	}
	return out, nil
}

// shareLatenessRow measures the lateness of every retry at a steady rate.
func shareLatenessRow(ctx context.Context, e *experiment) error {
	d := e.lasting(10 * time.Second)
	e.notef("%d processes; p50, p99 and max are those of the process in which they are highest", shareFailing)
	return e.eachShareRun(ctx, shareFailing, func(s *spec) { s.Failing = failing{1, always} }, func(ctx context.Context, t *team) error {
		w, err := e.cluster.steady(ctx, t.spec.Topic, shareLateRate, d)
		if err != nil {
			return err
		}
		out, err := t.finish(ctx, w)
		if err != nil || out == nil {
			return err
		}
		t.logf("late p50 %.1f p99 %.1f max %.1f ms", out.Late.P50, out.Late.P99, out.Late.Max)
		t.add("p50", "ms", nil, out.Late.P50)
		t.add("p99", "ms", nil, out.Late.P99)
		t.add("max", "ms", nil, out.Late.Max)
		t.add("earliest", "ms", atLeast(0), out.Late.Min)
		return nil
	})
}

// shareKillRow kills one of several processes at a steady rate of messages that succeed.
func shareKillRow(ctx context.Context, e *experiment) error {
	d := e.lasting(10 * time.Second)
	e.notef("one of %d processes is killed after half of the %s; %d messages/s, whose handlers take %s", shareKilled, d, shareKillRate, shareKillWait)
	return e.eachShareRun(ctx, shareKilled, func(s *spec) { s.Wait = shareKillWait }, func(ctx context.Context, t *team) error {
		return t.killOne(ctx, d)
	})
}

func (t *team) killOne(ctx context.Context, d time.Duration) error {
	type kill struct {
		victim int
		at     time.Time
		err    error
	}
	killed := make(chan kill, 1)
	timer := time.AfterFunc(d/2, func() {
		k := kill{at: time.Now()}
		_, k.victim, k.err = t.logs.ended()
		t.members[k.victim].kill()
		killed <- k
	})
	defer timer.Stop()
	w, err := t.e.cluster.steady(ctx, t.spec.Topic, shareKillRate, d)
	if err != nil {
		return err
	}
	k := <-killed
	if err := errors.Join(k.err, t.awaitEnded(ctx, w.count)); err != nil {
		return err
	}
	open, missing, last := t.done.back(k.victim)
	twice := t.done.twice()
	t.logf("the killed process had %d, the last ran again after %.2f s; %d ran twice", open, last.Sub(k.at).Seconds(), twice)
	if open == 0 || missing > 0 {
		t.e.problemf("run %d, %s: the killed process had %d messages, of which %d did not run again", t.run, t.name, open, missing)
		return nil
	}
	t.add("messages of the killed process", "", nil, float64(open))
	t.add("kill until the last of them runs again", "s", nil, last.Sub(k.at).Seconds())
	t.add("messages that ran twice", "", nil, float64(twice))
	return nil
}
