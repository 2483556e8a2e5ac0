package kafkatest

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver/adapters/adaptertest"
)

// Listed waits until the broker lists topics that its controller has created: on a
// machine that runs many tests at once that takes seconds, and a subscription is told
// meanwhile that there is no such topic.
func Listed(ctx context.Context, admin *kadm.Client, topics ...string) error {
	ctx, cancel := context.WithTimeout(ctx, adaptertest.Patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		there, err := admin.ListTopics(ctx, topics...)
		if err == nil {
			err = there.Error()
		}
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("topics %q were created, and are not listed within %s: %w", topics, adaptertest.Patience, err)
		}
	}
}
