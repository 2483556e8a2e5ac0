package stores_test

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/middleware/redisdedup"
)

// A mark lasts for its time to live, and counts for its key only.
func TestDedupStoreOnRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: brokers.RequireRedis(t)})
	defer client.Close()
	store, err := redisdedup.New(client, redisdedup.Config{Prefix: rand.Text() + ":"})
	if err != nil {
		t.Fatal(err)
	}
	key := "billing\x00orders\x00\xff 1"
	seen := func(key string) bool {
		t.Helper()
		yes, err := store.Seen(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return yes
	}
	if seen(key) {
		t.Error("a key is marked before it was")
	}
	began := time.Now()
	if err := store.Mark(t.Context(), key, time.Hour); err != nil {
		t.Fatal(err)
	}
	if !seen(key) || seen(key+"1") {
		t.Error("not the marked key is marked, or another one")
	}
	const ttl = 300 * time.Millisecond
	if err := store.Mark(t.Context(), key, ttl); err != nil {
		t.Fatal(err)
	}
	late, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for seen(key) {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("a mark for %s is there after %s", ttl, time.Since(began))
		}
	}
	if took := time.Since(began); took < ttl {
		t.Errorf("a mark for %s was gone after %s", ttl, took)
	}
}
