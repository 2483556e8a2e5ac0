package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// growGroupsRow shares the same number of failures among more and more groups of one topic. Each group is a process of
// its own, as in production, where a group is a service.
func growGroupsRow(ctx context.Context, e *experiment) error {
	total := e.scaled(64_000)
	e.notef("every group is a process; all read the same topic and fail every message of it, %s in all groups together, written when all have joined", count(total))
	e.notef("throughput is 3 retries for each message in each group, from the first handler entry anywhere until the last DLQ has the last, the 3 s of waiting included")
	e.notef("lateness p50 is the median over the groups, p99 and max are those of the worst; CPU and memory are summed over the processes")
	return e.trace(ctx, curve{
		axis: "groups", points: []int{1, 4, 16, 64}, label: count,
		once: func(ctx context.Context, run, groups int) (*cost, error) {
			return e.manyGroups(ctx, run, groups, max(20, total/groups))
		},
	})
}

// joinAtOnce is the number of processes that start at the same time. Each creates its topics and joins its group.
const joinAtOnce = 8

// manyGroups makes n messages fail in each group.
func (e *experiment) manyGroups(ctx context.Context, run, groups, n int) (c *cost, err error) {
	t, err := e.cluster.fresh(ctx, e.row.name)
	if err != nil {
		return nil, err
	}
	specs := make([]spec, groups)
	members := make([]*process, 0, groups)
	defer func() {
		for _, p := range members {
			p.kill() // does nothing to one that has ended
		}
		err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), t))
	}()
	for i := range specs {
		s := e.spec(ours, t, run, manyInFlight)
		s.Group = fmt.Sprintf("%s-%d", t.ours, i+1)
		s.Router, s.Backoff, s.Messages, s.Failing = true, second, n, failing{1, always}
		if s.Profile != "" {
			s.Profile += fmt.Sprintf("-%d-of-%d", i+1, groups)
		}
		specs[i] = s
	}
	for some := range slices.Chunk(specs, joinAtOnce) {
		first := len(members)
		for _, s := range some {
			p, err := spawn(s)
			if err != nil {
				return nil, err
			}
			members = append(members, p)
		}
		for _, p := range members[first:] {
			if err := p.awaitReady(ctx); err != nil {
				return nil, err
			}
		}
	}
	sizes := sizeWatcher{cluster: e.cluster}
	stopWatch := watching(ctx, specs[0], func(ctx context.Context, s spec) { sizes.watch(ctx, s.Topic) })
	defer stopWatch()
	w, err := e.cluster.preload(ctx, t.topic, n)
	if err != nil {
		return nil, err
	}
	outs := make([]*outcome, groups)
	end := time.Now().Add(3 * time.Minute)
	for i, p := range members {
		if outs[i], err = p.await(ctx, time.Until(end)); err != nil {
			return nil, err
		}
	}
	stopWatch()
	for i, out := range outs {
		e.record(ours, run, out)
		if err := e.verify(ctx, specs[i], out, w); err != nil {
			e.problemf("run %d, group %d of %d: %v", run, i+1, groups, err)
			return nil, nil
		}
		if out.Late.Early > 0 {
			e.problemf("run %d, group %d of %d: %d retries came early, the first by %.2f ms", run, i+1, groups, out.Late.Early, -out.Late.Min)
			return nil, nil
		}
	}
	c = combine(outs)
	c.retries, c.disk, c.commits = retries*n*groups, sizes.last, &sizes.commits
	return c, sizes.err
}

// combine combines the costs of several processes that ran at the same time.
func combine(outs []*outcome) *cost {
	c := &cost{late: &lateness{}}
	first, last := outs[0].began(), outs[0].Finished
	p50s := make([]float64, 0, len(outs))
	for _, out := range outs {
		if out.began().Before(first) {
			first = out.began()
		}
		if out.Finished.After(last) {
			last = out.Finished
		}
		c.busy += out.Busy
		c.peak += out.PeakRSS
		p50s = append(p50s, out.Late.P50)
		c.late.P99, c.late.Max = max(c.late.P99, out.Late.P99), max(c.late.Max, out.Late.Max)
	}
	slices.Sort(p50s)
	c.late.P50 = p50s[len(p50s)/2]
	c.seconds = last.Sub(first).Seconds()
	return c
}

// began returns when the handler first ran.
func (o *outcome) began() time.Time {
	return o.Finished.Add(-time.Duration(o.Seconds * float64(time.Second)))
}
