package redis_test

import (
	"context"
	"crypto/rand"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/adaptertest"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/onlooker"
)

// The contract of a deadletter.Queue, kept by the shelf of adapters/pubsub on stock watermill-redisstream.
func TestDeadLetterQueue(t *testing.T) {
	t.Parallel()
	addr := brokers.RequireRedis(t)
	adaptertest.RunDeadLetters(t, newHarness(t, addr), deadLetters(addr, t.TempDir()))
}

// quiet is how long nothing comes where nothing is left: a machine that takes its cores away for seconds must not look like
// that.
const quiet = 4 * time.Second

// deadLetters opens DLQs as processes of their own would, that share a directory for each group. With its connections and
// its locks a process has lost all that it loses when it is killed.
func deadLetters(addr, dir string) adaptertest.DeadLetters {
	return func(t testing.TB, origin, group string) (deadletter.Queue, func()) {
		t.Helper()
		client := redis.NewClient(onlooker.Redis(addr))
		beating, still := context.WithCancel(context.Background())
		t.Cleanup(func() {
			still()
			_ = client.Close() // it may have been killed
		})
		c, err := connect(beating, client, "kit-"+rand.Text(), adaptertest.Config{Group: group, Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
		if err != nil {
			t.Fatal(err)
		}
		q, err := c.DeadLetters(context.Background(), pubsub.DeadLetterConfig{Topic: origin, Dir: filepath.Join(dir, origin+"."+group), Quiet: quiet})
		if err != nil {
			t.Fatal(err)
		}
		return q, func() {
			still()
			_ = client.Close()
			_ = q.Close()
		}
	}
}
