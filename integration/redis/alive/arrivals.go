package alive

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// arrivals records the messages that a client has received and not acked.
type arrivals struct {
	mu      sync.Mutex
	streams map[string]map[string]bool // streams of the messages, by id
}

func (a *arrivals) has(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.streams[id]) > 0
}

func (a *arrivals) add(stream string, messages []redis.XMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range messages {
		if a.streams[m.ID] == nil {
			a.streams[m.ID] = make(map[string]bool)
		}
		a.streams[m.ID][stream] = true
	}
}

func (a *arrivals) remove(stream string, ids []any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, v := range ids {
		id, _ := v.(string)
		if delete(a.streams[id], stream); len(a.streams[id]) == 0 {
			delete(a.streams, id)
		}
	}
}

// DialHook implements [redis.Hook].
func (a *arrivals) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessPipelineHook implements [redis.Hook].
func (a *arrivals) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements [redis.Hook].
func (a *arrivals) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := next(ctx, cmd); err != nil {
			return err
		}
		switch got := cmd.(type) {
		case *redis.XStreamSliceCmd: // XREADGROUP
			for _, s := range got.Val() {
				a.add(s.Stream, s.Messages)
			}
		case *redis.XMessageSliceCmd: // XCLAIM stream
			if stream, ok := cmd.Args()[1].(string); ok && cmd.Name() == "xclaim" {
				a.add(stream, got.Val())
			}
		case *redis.IntCmd: // XACK stream group id...
			if args := cmd.Args(); cmd.Name() == "xack" {
				if stream, ok := args[1].(string); ok {
					a.remove(stream, args[3:])
				}
			}
		}
		return nil
	}
}
