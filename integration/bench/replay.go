package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/mq"
)

// replayJob replays a DLQ, or the part that spec.Filtered selects.
const replayJob job = "replay"

// rareEvery: one in so many dead letters has a different error from the rest.
const rareEvery = 100

var errRare = errors.New("no such card")

// replayRow replays dead letters with deadletter.Replay: all of them, or those with the error that one in a hundred has.
func replayRow(filtered bool) func(context.Context, *experiment) error {
	return func(ctx context.Context, e *experiment) error {
		n := e.scaled(1_000_000)
		e.notef("from the task's creation until it is recorded as done; the DLQ is written as the adapter would write it, in 4 partitions")
		for run := range e.options.runs + 1 {
			out, err := e.replay(ctx, run, n, filtered)
			if err != nil {
				return err
			}
			e.sayf("run %d: %d replayed, %d looked at, in %.1f s, %.2f CPU s, peak %.1f MiB", run, out.Count, out.Entries, out.Seconds, out.CPU, mib(out.PeakRSS))
			if run == 0 {
				continue
			}
			if filtered {
				e.add("looked at", "msg/s", atLeast(200_000), float64(out.Entries)/out.Seconds)
			} else {
				e.add("replayed", "msg/s", atLeast(50_000), float64(out.Count)/out.Seconds)
			}
			e.add("CPU per million", "s", nil, perMillion(out, n))
			e.add("peak memory", "MiB", nil, mib(out.PeakRSS))
		}
		return nil
	}
}

func (e *experiment) replay(ctx context.Context, run, n int, filtered bool) (out *outcome, err error) {
	t, err := e.cluster.fresh(ctx, e.row.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.cluster.drop(context.WithoutCancel(ctx), t)) }()
	sp := e.spec(ours, t, run, defaultInFlight)
	sp.Backoff, sp.Filtered = second, filtered
	for _, j := range []job{provision, replayJob} {
		sp.Job = j
		p, err := spawn(sp)
		if err != nil {
			return nil, err
		}
		if out, err = p.await(ctx, 5*time.Minute); err != nil {
			return nil, err
		}
		if j == provision {
			if err := e.fillDLQ(ctx, sp, n); err != nil {
				return nil, err
			}
		}
	}
	e.record(ours, run, out)
	return out, e.replayed(ctx, run, sp, out, n)
}

// fillDLQ writes n dead letters.
func (e *experiment) fillDLQ(ctx context.Context, s spec, n int) error {
	w := newWriter()
	topic, policy := s.Topic+"."+s.Group+".dlq", delayqueue.Fingerprint(s.config(nil).Policy)
	now := time.Now().UTC()
	return e.cluster.produce(ctx, n, func(id uint64) *kgo.Record {
		r := w.record(topic, id)
		failed := errDeclined
		if id%rareEvery == 0 {
			failed = errRare
		}
		st := redeliver.State{
			ID: string(r.Headers[0].Value), Group: s.Group, Origin: s.Topic, Attempts: 1 + retries, Reason: redeliver.ReasonExhausted,
			FirstFailed: now, LastFailed: now, Error: failed.Error(), ErrorType: "*errors.errorString", Policy: policy,
			Source: redeliver.Source{Known: true, Partition: r.Partition, Offset: int64(id / partitions), Timestamp: now},
		}
		return withState(r, &st)
	})
}

// replayed checks that exactly the messages to be replayed are on the retry topic.
func (e *experiment) replayed(ctx context.Context, run int, s spec, out *outcome, n int) error {
	want := n
	if s.Filtered {
		want = (n + rareEvery - 1) / rareEvery
	}
	back := s.Topic + "." + s.Group + ".retry"
	ends, err := e.cluster.admin.ListEndOffsets(ctx, back)
	if err != nil {
		return err
	}
	var there int64
	ends.Each(func(o kadm.ListedOffset) { there += o.Offset })
	if there != int64(want) || out.Count != there || out.Entries != int64(n) {
		e.problemf("run %d: %s", run, fmt.Sprintf("%d are on %s, %d are counted as replayed and %d as looked at; want %d of %d", there, back, out.Count, out.Entries, want, n))
	}
	return nil
}

// doReplay runs the task.
func doReplay(ctx context.Context, s spec) (*outcome, error) {
	client, err := kafka.Open(ctx, s.config(nil))
	if err != nil {
		return nil, err
	}
	q, err := client.Operations().DeadLetters(ctx, mq.DeadLetterConfig{Topic: s.Topic})
	if err != nil {
		return nil, errors.Join(err, client.Close(ctx))
	}
	stopProfile, err := s.startProfile()
	if err != nil {
		return nil, err
	}
	r := deadletter.ReplayOptions{Who: "bench", Why: "bench"}
	if s.Filtered {
		r.Filter.ErrorText = errRare.Error()
	}
	cpu, began := cpuTime(), time.Now()
	t, err := deadletter.Replay(ctx, q, r)
	end := time.Now()
	stopProfile()
	if err == nil && t.Status != deadletter.StatusDone {
		err = fmt.Errorf("the task is %s: %s", t.Status, t.Note)
	}
	return &outcome{
		Count: t.Counts.Replayed, Entries: t.Counts.Scanned, Seconds: end.Sub(began).Seconds(), CPU: (cpuTime() - cpu).Seconds(),
		PeakRSS: memory("VmHWM"), Finished: end,
	}, errors.Join(err, q.Close(), client.Close(ctx))
}
