package cli

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/middleware/redisdedup"
)

// envDedup names the variable for --dedup. A URL may be a secret.
const envDedup = "REDELIVER_DEDUP"

// dedupMemory keeps ids in this process.
const dedupMemory = "memory"

// dedupFlags configure the store of the ids of handled messages.
type dedupFlags struct {
	store string
	ttl   time.Duration
	redis *redis.Options // nil for memory, or off
}

func (f *dedupFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.store, "dedup", "", "Skip messages that the group has handled before. Keep their ids in this `store`: memory, or redis://HOST:PORT/DB for all processes of the group (default $"+envDedup+", or off)")
	flags.DurationVar(&f.ttl, "dedup-ttl", 24*time.Hour, "With --dedup: keep an id for this `duration`")
}

// check checks the flags. Its errors do not quote the URL.
func (f *dedupFlags) check(env func(string) string, bad func(string, ...any)) {
	f.store = cmp.Or(f.store, env(envDedup))
	if f.ttl <= 0 {
		bad("--dedup-ttl is %s: must be more than 0", f.ttl)
	}
	if f.store == "" || f.store == dedupMemory {
		return
	}
	var err error
	if f.redis, err = redis.ParseURL(f.store); err != nil {
		bad("--dedup: must be memory, redis://HOST:PORT/DB, or rediss:// with TLS") // err quotes the URL
	}
}

// open opens the store, or returns nil if it is off. Redis connects on first use.
func (f *dedupFlags) open(log *slog.Logger) (middleware.DedupStore, error) {
	switch {
	case f.store == "":
		return nil, nil //nolint:nilnil // it is off
	case f.redis == nil:
		return middleware.NewDedupMemory(0)
	default:
		redis.SetLogger(redisLog{log}) // it writes lines of its own to stderr
		return redisdedup.New(redis.NewClient(f.redis), redisdedup.Config{})
	}
}

// redisLog writes the lines of the client of Redis to the command's log, in its format. They are details of failures that are reported
// anyway.
type redisLog struct{ to *slog.Logger }

// Printf implements the interface of redis.SetLogger.
func (l redisLog) Printf(ctx context.Context, format string, v ...any) {
	l.to.DebugContext(ctx, "redis", "line", fmt.Sprintf(format, v...))
}
