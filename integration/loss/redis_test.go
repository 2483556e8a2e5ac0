package loss

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
)

// redisSystem is the suite's view of Redis, through the bare client. The format of Watermill's messages on a stream
// belongs to watermill-redisstream, so it uses that package's marshaler, too.
type redisSystem struct {
	broker        *brokers.Broker
	client        *redis.Client
	stream, group string
	written       int          // number of entries; an entry has its number as id, so it is written once
	list          []deadLetter // read from the DLQ
	last          string       // the id of the last one
}

func newRedis(t *testing.T, b *brokers.Broker, stream string) *redisSystem {
	t.Helper()
	r := &redisSystem{broker: b, client: redis.NewClient(&redis.Options{Addr: b.Addrs()[0]}), stream: stream, group: "g", last: "-"}
	t.Cleanup(func() { _ = r.client.Close() })
	return r
}

func (r *redisSystem) consumer() consumerConfig {
	return consumerConfig{Broker: "redis", Addrs: r.broker.Addrs(), Topic: r.stream, Group: r.group}
}

// Fields for values that a map of strings cannot represent.
const (
	redisKey   = "key"
	redisAgain = "twice.again"
	redisNull  = "(null)"
	// redisPlace begins the UUID of a message that should have none. A Pub/Sub of Watermill does not report the
	// position of a message, so the id of a message without a UUID is a hash. adapters/pubsub's own tests cover that.
	redisPlace = "place of "
)

func (r *redisSystem) write(ctx context.Context, items []*item) error {
	for _, it := range items {
		it.place, it.at = redisPlace+it.id, time.Now()
		uuid := it.place
		if it.uuid {
			uuid = it.id
		}
		msg := message.NewMessage(uuid, it.value)
		msg.Metadata[redisKey] = string(it.key)
		for _, h := range it.headers {
			name, value := h.key, string(h.value)
			if _, ok := msg.Metadata[name]; ok {
				name = redisAgain
			}
			if h.value == nil {
				value = redisNull
			}
			if name != redisstream.UUIDHeaderKey { // it is the UUID itself
				msg.Metadata[name] = value
			}
		}
		values, err := redisstream.DefaultMarshallerUnmarshaller{}.Marshal(r.stream, msg)
		if err != nil {
			return err
		}
		r.written++
		args := &redis.XAddArgs{Stream: r.stream, ID: fmt.Sprintf("%d-1", r.written), Values: values}
		for {
			err := r.client.XAdd(ctx, args).Err()
			if err == nil || strings.Contains(err.Error(), "equal or smaller than the target") { // written before
				break
			}
			if !consumer.Pause(ctx, 50*time.Millisecond) {
				return errors.Join(err, ctx.Err())
			}
		}
	}
	return nil
}

// dead reads new messages in the DLQ and remembers them. It returns all messages there.
func (r *redisSystem) dead(ctx context.Context) ([]deadLetter, error) {
	dlq := r.stream + "." + r.group + ".dlq"
	for {
		entries, err := r.client.XRangeN(ctx, dlq, r.last, "+", 1000).Result()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", dlq, err)
		}
		for _, e := range entries {
			msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(e.Values)
			if err != nil {
				return nil, fmt.Errorf("dead letter %s: %w", e.ID, err)
			}
			r.list, r.last = append(r.list, redisDeadLetter(msg)), "("+e.ID
		}
		if len(entries) == 0 {
			return r.list, nil
		}
	}
}

func redisDeadLetter(msg *message.Message) deadLetter {
	l := deadLetter{id: msg.Metadata[headerID], key: []byte(msg.Metadata[redisKey]), value: msg.Payload, meta: make(map[string]string)}
	if err := json.Unmarshal([]byte(msg.Metadata["redeliver"]), &l.meta); err != nil {
		l.meta["unreadable"] = err.Error() // the checker reports the missing fields
	}
	l.place = redisPlace + strings.TrimPrefix(l.meta["id"], redisPlace)
	for _, name := range deadLetterOrder {
		value, ok := msg.Metadata[name]
		switch {
		case name == redisstream.UUIDHeaderKey && !strings.HasPrefix(msg.UUID, redisPlace):
			l.headers = append(l.headers, header{name, []byte(msg.UUID)})
		case !ok:
		case value == redisNull:
			l.headers = append(l.headers, header{name, nil})
		default:
			l.headers = append(l.headers, header{name, []byte(value)})
		}
		if name == "twice" {
			l.headers = append(l.headers, header{name, []byte(msg.Metadata[redisAgain])})
		}
		delete(msg.Metadata, name)
	}
	for _, name := range []string{redisKey, redisAgain, "redeliver"} {
		delete(msg.Metadata, name)
	}
	if len(msg.Metadata) > 0 {
		l.place = fmt.Sprintf("%s with more %q", l.place, msg.Metadata)
	}
	return l
}

// unsettled counts the entries that the group has not acked, read or not, in the stream and wherever messages wait.
func (r *redisSystem) unsettled(ctx context.Context) (sum int64, detail string, err error) {
	streams := []string{r.stream, r.stream + "." + r.group + ".retry"}
	for n := 1; n <= 8; n++ {
		streams = append(streams, streams[1]+"."+strconv.Itoa(n))
	}
	for _, stream := range streams {
		groups, err := r.client.XInfoGroups(ctx, stream).Result()
		if err != nil {
			return 0, "", fmt.Errorf("asking for the group of %s: %w", stream, err)
		}
		for _, g := range groups {
			if n := g.Pending + g.Lag; n > 0 {
				sum += n
				detail += fmt.Sprintf(" %d unread and %d unacked in %s", g.Lag, g.Pending, stream)
			}
		}
		if len(groups) != 1 {
			return 0, "", fmt.Errorf("%s has %d groups, want one", stream, len(groups))
		}
	}
	return sum, detail, nil
}

func (r *redisSystem) restart(ctx context.Context, down time.Duration) error {
	if err := r.broker.Kill(); err != nil {
		return err
	}
	if !consumer.Pause(ctx, down) {
		return ctx.Err()
	}
	return r.broker.Start(ctx)
}

// disconnect closes the connections of all clients except its own.
func (r *redisSystem) disconnect(ctx context.Context) error {
	return r.client.ClientKillByFilter(ctx, "TYPE", "normal").Err()
}
