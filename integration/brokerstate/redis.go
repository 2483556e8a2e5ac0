package brokerstate

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis returns the options of a client for a server that no test breaks. The client waits when the server stands
// still. With the defaults of go-redis it would repeat a write after 3 s, which could then have an effect twice.
func Redis(addr string) *redis.Options {
	return &redis.Options{Addr: addr, PoolSize: 100, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: 2 * time.Minute, MaxRetries: -1}
}
