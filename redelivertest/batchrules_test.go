package redelivertest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// The rules of precedence are the table of internal/adaptertest/batchtable.md, to which docs/reference/batching.md links.
func TestBatchPrecedence(t *testing.T) {
	for _, row := range adaptertest.BatchRows(t) {
		t.Run(row.Calls+" and "+row.Returns, func(t *testing.T) { precedence(t, row) })
	}
}

func precedence(t *testing.T, row adaptertest.BatchRow) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		policy := redeliver.Policy{Backoff: redeliver.Fixed(adaptertest.BatchPolicyDelay), Timeout: 2 * time.Minute}
		late := make(chan struct{})
		search := b.Open(redelivertest.Config{Group: "search", Policy: policy})
		documents := search.Handle("documents", must(middleware.Batch(redeliver.BatchConfig{Size: 2}, func(ctx context.Context, mb *middleware.MessageBatch) error {
			if mb.Messages[0].State().Attempt() > 1 {
				return nil
			}
			return row.Run(ctx, t, adaptertest.BatchOf(mb), late)
		})))
		for _, id := range []string{"m1", "m2"} {
			b.Publish("documents", message.NewMessage(id, []byte(id)))
			synctest.Wait() // each handler has its own goroutine, and m1 must be the first
		}
		b.Wait()
		<-time.After(time.Hour)
		close(late) // the late result of a function that exceeded its Timeout has no effect
		<-time.After(time.Hour)
		for i, want := range row.Outcomes {
			got := documents.Outcome(fmt.Sprint("m", i+1))
			if reported := outcomeText(got); reported != want {
				t.Errorf("message %d: %s, want %s\n%s", i+1, reported, want, got)
			}
		}
	})
}

// outcomeText describes the outcome of a message after its first attempt.
func outcomeText(o redelivertest.Outcome) string {
	switch {
	case len(o.Attempts) == 0:
		return "nothing"
	case o.State.Reason != "":
		return "DLQ, " + string(o.State.Reason)
	case len(o.Waits) == 0 && o.Committed && o.Attempts[0].Err == nil:
		return "ack"
	case len(o.Waits) != 1:
		return fmt.Sprintf("%d waits", len(o.Waits))
	default:
		return adaptertest.OutcomeOfDelay(o.Waits[0].Delay)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
