// Package alive lets watermill-redisstream take messages over from consumers that are dead, and from no others.
//
// By default it takes everything that has been unacked for longer than MaxIdleTime, also from a consumer that is still at it, so
// that a long handler or a long wait is delivered twice. With [Claimable] a consumer keeps its messages for as long as it
// lives, and those of a killed one come back within seconds.
package alive

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// lostAfter takes a message from a consumer that lives, too: what a Subscribe had that has ended in a process that goes
// on would stay there forever.
const lostAfter = time.Hour

// onItsWay is how long an answer may take. One that takes longer is delivered twice.
const onItsWay = 5 * time.Second

func key(consumer string) string { return "alive:" + consumer }

// Keep tells that a consumer is alive until ctx ends, and so long a life after that. The first time is before it returns:
// a consumer that is not known to live loses what it reads.
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

// Claimable is a ShouldClaimPendingMessage for consumer: whether nobody has a message, because the consumer that Redis
// gave it to is dead, or because that is this one and the answer was lost with its connection. While Redis does not say,
// it is not. MaxIdleTime is to be a second nevertheless: it keeps two that look at the same time from both taking.
//
// It sees what comes by a hook of client, which is to be the subscriber's.
func Claimable(client redis.UniversalClient, consumer string) func(redis.XPendingExt) bool {
	came := &arrivals{streams: make(map[string]map[string]bool)}
	client.AddHook(came)
	return func(p redis.XPendingExt) bool {
		if p.Idle > lostAfter {
			return true
		}
		if p.Consumer == consumer {
			return p.Idle > onItsWay && !came.has(p.ID)
		}
		n, err := client.Exists(context.Background(), key(p.Consumer)).Result()
		return err == nil && n == 0
	}
}
