package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// franz is a raw franz-go consumer that calls the handler itself.
const franz nativeName = "franz-go"

// consumeFranzRow compares kafka.Consume with the other client in Go.
func consumeFranzRow(ctx context.Context, e *experiment) error {
	e.notef("redeliver is not built on franz-go: the row shows how much is due to the client alone")
	return e.compare(ctx, native(e.scaled(500_000), franz, 0.5, "franz-go", defaultInFlight))
}

func (s spec) beginFranz(ctx context.Context, h *handling, run func(func(error), func() error), failed func(error)) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers...), kgo.ConsumerGroup(s.Group), kgo.ConsumeTopics(s.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.AutoCommitMarks())
	if err != nil {
		return err
	}
	run(failed, func() error {
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachRecord(func(rec *kgo.Record) {
				if h.handleNative(ctx, rec.Value) == nil {
					client.MarkCommitRecords(rec)
				}
			})
		}
		err := client.CommitMarkedOffsets(context.WithoutCancel(ctx))
		client.Close()
		return err
	})
	return nil
}
