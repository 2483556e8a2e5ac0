package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// waitingRow writes messages that wait for an hour, as they would be after a first failure, and watches a consumer
// that has nothing else to do.
func waitingRow(ctx context.Context, e *experiment) error {
	n := e.scaled(1_000_000)
	e.notef("peak is VmHWM of the consumer's whole life; steady is the median of the last third")
	for run := range e.options.runs {
		out, err := e.wait(ctx, run+1, n)
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		e.sayf("run %d: peak %.1f MiB, steady %.1f MiB, %.2f CPU s in %.0f s", run+1, mib(out.PeakRSS), mib(out.SteadyRSS), out.CPU, out.Seconds)
		e.add("peak memory", "MiB", atMost(40), mib(out.PeakRSS))
		e.add("steady memory", "MiB", nil, mib(out.SteadyRSS))
		e.add("CPU", "s", nil, out.CPU)
	}
	return nil
}

func (e *experiment) wait(ctx context.Context, run, n int) (out *outcome, err error) {
	t, err := e.cluster.fresh(ctx, e.row.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), t)) }()
	sp := e.spec(ours, t, run, defaultInFlight)
	sp.Router, sp.Backoff, sp.Sample = true, hour, e.lasting(30*time.Second)
	within := sp.Sample + time.Minute
	for _, j := range []job{provision, idle} {
		sp.Job = j
		p, err := spawn(sp)
		if err != nil {
			return nil, err
		}
		if out, err = p.await(ctx, within); err != nil {
			return nil, err
		}
		if j == idle {
			break
		}
		if _, err := e.fillLevel(ctx, sp, n, time.Hour, time.Now().Add(time.Hour)); err != nil {
			return nil, err
		}
	}
	e.record(ours, run, out)
	return out, e.stillWaiting(ctx, run, sp, out, n)
}

// levelTopic returns the topic of a level of a subscription.
func levelTopic(s spec, level time.Duration) string {
	return s.Topic + "." + s.Group + ".retry." + delayqueue.LevelName(level)
}

// fillLevel writes n messages that failed just now and wait on a level until due.
func (e *experiment) fillLevel(ctx context.Context, s spec, n int, level time.Duration, due time.Time) (written, error) {
	w := newWriter()
	topic := levelTopic(s, level)
	failed := s.failedOnce(due)
	err := e.cluster.produce(ctx, n, func(id uint64) *kgo.Record {
		r := w.record(topic, id)
		st := failed
		st.ID = string(r.Headers[0].Value)
		st.Source.Partition, st.Source.Offset = r.Partition, int64(id/partitions)
		return withState(r, &st)
	})
	return w.written(), err
}

// failedOnce is the state of a message whose first attempt failed just now, without the fields of one message.
func (s spec) failedOnce(due time.Time) redeliver.State {
	now := time.Now().UTC()
	return redeliver.State{
		Group: s.Group, Origin: s.Topic, Attempts: 1, Due: due.UTC(),
		FirstFailed: now, LastFailed: now, Error: errDeclined.Error(), ErrorType: "*errors.errorString",
		Policy: delayqueue.Fingerprint(s.policy()), Source: redeliver.Source{Known: true, Timestamp: now},
	}
}

// stillWaiting checks that nothing ran, nothing was committed and nothing is gone.
func (e *experiment) stillWaiting(ctx context.Context, run int, s spec, out *outcome, n int) error {
	if out.Entries != 0 {
		e.problemf("run %d: the handler ran %d times, an hour early", run, out.Entries)
	}
	topic := levelTopic(s, time.Hour)
	behind, err := e.cluster.lag(ctx, s.Group, topic)
	if err != nil {
		return err
	}
	ends, err := e.cluster.admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return err
	}
	var there int64
	ends.Each(func(o kadm.ListedOffset) { there += o.Offset })
	if behind != int64(n) || there != int64(n) {
		e.problemf("run %d: %s", run, fmt.Sprintf("%d messages wait on %s and %d are not committed; both should be %d", there, topic, behind, n))
	}
	return nil
}
