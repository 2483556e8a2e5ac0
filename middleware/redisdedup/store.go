// Package redisdedup is a store for middleware.Dedup in Redis, which all processes of a group share:
//
//	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
//	defer client.Close()
//	store, err := redisdedup.New(client, redisdedup.Config{})
//	...
//	dedup, err := middleware.Dedup(middleware.DedupConfig{Store: store})
//	...
//	router.AddMiddleware(middleware.Retry(), dedup)
//
// It works with a single Redis, Sentinel and Cluster. Each message costs an EXISTS before its handler and a SET with an
// expiry after it. A duplicate may run if Redis loses a mark: because its eviction policy drops keys with an expiry, or because
// it fails over to a replica that is behind.
package redisdedup

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/middleware"
)

// DefaultPrefix is the default prefix of the keys.
const DefaultPrefix = "redeliver:dedup:"

// Config configures a Store.
type Config struct {
	// Prefix is the prefix of every key. Default "redeliver:dedup:".
	Prefix string
}

// Store is a [middleware.DedupStore]. It is safe for concurrent use.
type Store struct {
	client redis.Cmdable
	prefix string
}

var _ middleware.DedupStore = (*Store)(nil)

// New returns a store on a client that the caller keeps and closes. It does not connect to Redis. A nil client is a
// [redeliver.ConfigError].
func New(client redis.Cmdable, cfg Config) (*Store, error) {
	if client == nil {
		var ps check.Problems
		ps.Add("client", "nil", "it is required")
		return nil, fmt.Errorf("redisdedup: %w", ps.Err())
	}
	cfg.Prefix = cmp.Or(cfg.Prefix, DefaultPrefix)
	return &Store{client, cfg.Prefix}, nil
}

// Seen implements [middleware.DedupStore].
func (s *Store) Seen(ctx context.Context, key string) (bool, error) {
	n, err := s.client.Exists(ctx, s.prefix+key).Result()
	if err != nil {
		return false, fmt.Errorf("redisdedup: looking for a mark: %w", err)
	}
	return n > 0, nil
}

// Mark implements [middleware.DedupStore]. A ttl below 1 ms is 1 ms, the unit of Redis.
func (s *Store) Mark(ctx context.Context, key string, ttl time.Duration) error {
	if err := s.client.Set(ctx, s.prefix+key, 1, max(ttl, time.Millisecond)).Err(); err != nil {
		return fmt.Errorf("redisdedup: marking: %w", err)
	}
	return nil
}
