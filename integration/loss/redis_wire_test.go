package loss

import (
	"context"
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
)

// redisHook shows a client's commands to the watcher: writes before they leave, received and confirmed messages before
// watermill-redisstream sees them, and the run that an ack settles before it leaves.
type redisHook struct {
	watcher *watcher
	topic   string

	mu     sync.Mutex
	unsent map[[2]string]run // by stream and id: the unacked runs
}

func newRedisHook(s *watcher, topic string) *redisHook {
	return &redisHook{watcher: s, topic: topic, unsent: make(map[[2]string]run)}
}

// DialHook implements [redis.Hook].
func (h *redisHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessPipelineHook implements [redis.Hook].
func (h *redisHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// ProcessHook implements [redis.Hook].
func (h *redisHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		switch cmd.Name() {
		case "xadd":
			return h.write(args, func() error { return next(ctx, cmd) })
		case "xack":
			h.acking([2]string{text(args[1]), text(args[3])})
		}
		err := next(ctx, cmd)
		switch got := cmd.(type) {
		case *redis.XStreamSliceCmd: // XREADGROUP
			for _, s := range got.Val() {
				h.came(s.Stream, s.Messages)
			}
		case *redis.XMessageSliceCmd: // XCLAIM
			h.came(text(args[1]), got.Val())
		}
		return err
	}
}

// write handles an XADD: its stream, an id, and names and values.
func (h *redisHook) write(args []any, do func() error) error {
	stream, values := text(args[1]), make(map[string]any)
	for i := 3; i+1 < len(args); i += 2 {
		values[text(args[i])] = text(args[i+1])
	}
	r, id, _ := redisRun(values)
	ours := strings.HasPrefix(stream, h.topic+".") && r.id != ""
	if ours {
		h.watcher.send(r, stream, nil)
	}
	err := do()
	if ours && err == nil {
		h.watcher.answer()
		h.watcher.confirmed(redeliver.State{ID: id, Attempts: r.attempt})
	}
	return err
}

func (h *redisHook) acking(at [2]string) {
	h.mu.Lock()
	r, ok := h.unsent[at]
	delete(h.unsent, at)
	h.mu.Unlock()
	if ok {
		h.watcher.acking([]run{r})
	}
}

// came reports received messages to the watcher.
func (h *redisHook) came(stream string, messages []redis.XMessage) {
	for _, m := range messages {
		r, id, due := redisRun(m.Values)
		if r.id == "" {
			continue
		}
		r.attempt++ // the next attempt
		h.mu.Lock()
		h.unsent[[2]string{stream, m.ID}] = r
		h.mu.Unlock()
		h.watcher.setID(id, r.id)
		if stream != h.topic && !due.IsZero() {
			h.watcher.addWaiting(r, due)
		}
	}
}

// redisRun returns the attempts, redeliver's id and the due time in an entry.
func redisRun(values map[string]any) (r run, redeliverID string, due time.Time) {
	msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(values)
	if err != nil {
		return r, "", due
	}
	r.id, redeliverID = msg.Metadata[headerID], msg.UUID
	var st map[string]string
	if json.Unmarshal([]byte(msg.Metadata["redeliver"]), &st) == nil {
		r.attempt, _ = strconv.Atoi(st["attempt"])
		due, _ = time.Parse(time.RFC3339Nano, st["due"])
	}
	return r, redeliverID, due
}

// text converts an argument of a command, or a name in it, to a string.
func text(arg any) string {
	switch a := arg.(type) {
	case string:
		return a
	case []byte:
		return string(a)
	default:
		return ""
	}
}
