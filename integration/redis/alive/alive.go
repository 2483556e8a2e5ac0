// Package alive lets watermill-redisstream take over messages of dead consumers only.
//
// By default it takes over every message that has been unacked for longer than MaxIdleTime, even if its handler still
// runs, so such a message is delivered twice. With [Claimable] a consumer keeps its messages while it lives, and those
// of a killed consumer come back within seconds.
package alive

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// lostAfter is how long a living consumer keeps a message. Without it, the messages of a Subscribe that has ended would
// stay with its process forever.
const lostAfter = time.Hour

// maxAnswerTime bounds how long an answer of Redis may take. If it takes longer, the message is delivered twice.
const maxAnswerTime = 5 * time.Second

func key(consumer string) string { return "alive:" + consumer }

// Keep marks a consumer as alive until ctx ends, and for life after that. The mark is set when it returns, because a
// consumer without one loses the messages that it reads.
func Keep(ctx context.Context, client redis.UniversalClient, consumer string, life time.Duration) error {
	if err := client.Set(ctx, key(consumer), 1, life).Err(); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case <-time.After(life / 5):
				_ = client.Set(ctx, key(consumer), 1, life).Err() // the next one may succeed
			case <-ctx.Done():
				return
			}
		}
	}()
	return nil
}

// Claimable returns a ShouldClaimPendingMessage for a consumer. It reports whether nobody has a message: the consumer
// to which Redis gave it is dead, or it is this consumer and the answer was lost with its connection. If Redis does not
// answer, it returns false. Set MaxIdleTime to a second, so that two consumers that ask at once do not both claim it.
//
// Claimable adds a hook to client, with which it sees the messages that arrive. client must be the subscriber's.
func Claimable(client redis.UniversalClient, consumer string) func(redis.XPendingExt) bool {
	came := &arrivals{streams: make(map[string]map[string]bool)}
	client.AddHook(came)
	return func(p redis.XPendingExt) bool {
		if p.Idle > lostAfter {
			return true
		}
		if p.Consumer == consumer {
			return p.Idle > maxAnswerTime && !came.has(p.ID)
		}
		n, err := client.Exists(context.Background(), key(p.Consumer)).Result()
		return err == nil && n == 0
	}
}
