package onlooker

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is how a client reaches a server that nobody breaks: it takes no standstill of it for a failure. By default go-redis
// asks again after 3 s, and what was written is there twice.
func Redis(addr string) *redis.Options {
	return &redis.Options{Addr: addr, PoolSize: 100, DialTimeout: time.Minute, ReadTimeout: time.Minute, WriteTimeout: time.Minute, PoolTimeout: 2 * time.Minute, MaxRetries: -1}
}
