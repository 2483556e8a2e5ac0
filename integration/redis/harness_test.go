package redis_test

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/pubsub"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokerstate"
	"github.com/redeliver/redeliver/integration/redis/alive"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// features are what watermill-redisstream can do under adapters/pubsub.
var features = adaptertest.Features{
	BinaryHeaders: true, ForeignHeaders: true, Refuse: true, ManyGroups: true, KeepsAttempts: true, DelayedPublish: true,
}

// harness runs adapters/pubsub over watermill-redisstream for the conformance kit. Its own client is go-redis, which
// does not know redeliver.
type harness struct {
	addr   string
	client *redis.Client
}

func newHarness(t *testing.T, addr string) adaptertest.Harness {
	t.Helper()
	h := &harness{addr: addr, client: redis.NewClient(brokerstate.Redis(addr))}
	t.Cleanup(func() { _ = h.client.Close() })
	return adaptertest.Harness{
		Name: "Watermill", Features: features,
		Origin: h.origin, Open: h.open, Put: h.put, PutRetries: h.putBack, DeadLetters: h.dead, Received: seen, Refuse: h.refuse,
		ForgeHeaders: func(st redeliver.State) []adaptertest.Header {
			fields := make(map[string]string)
			for _, f := range driver.AppendStateHeaders(st, nil) {
				fields[strings.TrimPrefix(f.Name, redeliver.HeaderPrefix)] = f.Value
			}
			text, err := json.Marshal(fields)
			if err != nil {
				panic(err) // a map of strings never fails
			}
			return []adaptertest.Header{{Name: pubsub.StateKey, Value: text}}
		},
	}
}

func (h *harness) origin(t testing.TB, n int) (string, []string) {
	t.Helper()
	origin := "kit-" + strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() {
		keys, err := h.client.Keys(context.Background(), origin+"*").Result()
		if err == nil && len(keys) > 0 {
			err = h.client.Del(context.Background(), keys...).Err()
		}
		if err != nil {
			t.Error(err)
		}
	})
	return origin, []string{"billing", "mail", "stock"}[:n]
}

// service is a process: its own Redis client, with a publisher, a subscriber and the adapter over it.
type service struct {
	*mq.Client
	kill func()
	end  func()
}

func (s service) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s service) Publisher() message.Publisher   { return s.Client.Publisher() }
func (s service) Kill()                          { s.kill() }

// Close closes the adapter and then its Redis client.
func (s service) Close(ctx context.Context) error {
	defer s.end()
	return s.Client.Close(ctx)
}

func (h *harness) open(_ testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
	opts := brokerstate.Redis(h.addr)
	opts.PoolSize = 200 // every lane reads on its own connection
	client := redis.NewClient(opts)
	heartbeatCtx, stopHeartbeats := context.WithCancel(context.Background())
	kill := sync.OnceFunc(func() {
		stopHeartbeats()
		_ = client.Close() // this also cuts requests that are under way
	})
	consumer := "kit-" + rand.Text()
	c, err := connect(heartbeatCtx, client, consumer, cfg)
	if err != nil {
		kill()
		return nil, err
	}
	end := func() {
		kill()
		_ = h.client.Del(context.Background(), "alive:"+consumer).Err() // others may claim its messages at once
	}
	return service{c, kill, end}, nil
}

// life is how long a killed consumer counts as alive. It is longer than the heartbeats of a living one may be late on a
// busy machine.
const life = 12 * time.Second

func connect(ctx context.Context, client redis.UniversalClient, consumer string, cfg adaptertest.Config) (*mq.Client, error) {
	if err := alive.Keep(ctx, client, consumer, life); err != nil {
		return nil, err
	}
	pub, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: client}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	sub, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: client, ConsumerGroup: cfg.Group, Consumer: consumer,
		BlockTime: time.Second, DisableIndefiniteInitialBlock: true,
		ClaimInterval: 700 * time.Millisecond, MaxIdleTime: time.Second, ShouldClaimPendingMessage: alive.Claimable(client, consumer),
	}, watermill.NopLogger{})
	if err != nil {
		return nil, err
	}
	return pubsub.Open(ctx, pubsub.Config{
		Publisher: pub, Subscriber: sub, Group: cfg.Group, Confirms: true, MaxUnacked: time.Hour, Policy: cfg.Policy, Sink: cfg.Sink,
		MaxInFlight: cfg.MaxInFlight, NackDelay: cfg.NackDelay, DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout,
		Decode: decode,
	})
}

// decode refuses the message that the kit defines as undecodable.
func decode(msg *message.Message) error {
	if string(msg.Payload) == adaptertest.Undecodable {
		return errors.New("no such schema")
	}
	return nil
}

func (h *harness) put(t testing.TB, origin string, msgs ...adaptertest.Message) {
	t.Helper()
	for _, m := range msgs {
		msg := message.NewMessage(m.ID, m.Body)
		for _, header := range m.Headers {
			msg.Metadata[header.Name] = string(header.Value)
		}
		if len(m.OwnHeaders) > 0 {
			fields := make(map[string]string)
			if own, ok := msg.Metadata["redeliver"]; ok {
				fields["own"] = base64.StdEncoding.EncodeToString([]byte(own))
			}
			for _, header := range m.OwnHeaders {
				fields[strings.TrimPrefix(header.Name, "redeliver-")] = header.Value
			}
			text, err := json.Marshal(fields)
			if err != nil {
				t.Fatal(err)
			}
			msg.Metadata["redeliver"] = string(text)
		}
		values, err := redisstream.DefaultMarshallerUnmarshaller{}.Marshal(origin, msg)
		if err == nil {
			err = h.client.XAdd(context.Background(), &redis.XAddArgs{Stream: origin, Values: values}).Err()
		}
		if err != nil {
			t.Fatalf("writing to %s: %v", origin, err)
		}
	}
}

func (h *harness) putBack(t testing.TB, origin, group string, msgs ...adaptertest.Message) {
	t.Helper()
	h.put(t, origin+"."+group+".retry", msgs...)
}

func (h *harness) dead(t testing.TB, origin, group string, n int) []adaptertest.Message {
	t.Helper()
	dlq := origin + "." + group + ".dlq"
	deadline := time.Now().Add(adaptertest.Timeout)
	for {
		entries, err := h.client.XRange(context.Background(), dlq, "-", "+").Result()
		if err != nil && !strings.HasPrefix(err.Error(), "WRONGTYPE") { // refuse has replaced the stream
			t.Fatalf("reading %s: %v", dlq, err)
		}
		if len(entries) >= n || time.Now().After(deadline) {
			msgs := make([]adaptertest.Message, len(entries))
			for i, entry := range entries {
				if msgs[i], err = parseDeadLetter(entry); err != nil {
					t.Fatalf("dead letter %s: %v", entry.ID, err)
				}
			}
			return msgs
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // Redis notifies only readers
	}
}

// parseDeadLetter parses a dead letter as pubsub.StateKey documents it.
func parseDeadLetter(entry redis.XMessage) (adaptertest.Message, error) {
	msg, err := redisstream.DefaultMarshallerUnmarshaller{}.Unmarshal(entry.Values)
	if err != nil {
		return adaptertest.Message{}, err
	}
	var fields map[string]string
	if text, ok := msg.Metadata["redeliver"]; ok {
		delete(msg.Metadata, "redeliver")
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			return adaptertest.Message{}, err
		}
	}
	if own, ok := fields["own"]; ok {
		raw, err := base64.StdEncoding.DecodeString(own)
		if err != nil {
			return adaptertest.Message{}, err
		}
		msg.Metadata["redeliver"] = string(raw)
		delete(fields, "own")
	}
	m := plain(msg)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		m.OwnHeaders = append(m.OwnHeaders, driver.Header{Name: "redeliver-" + name, Value: fields[name]})
	}
	return m, nil
}

func plain(msg *message.Message) adaptertest.Message {
	m := adaptertest.Message{ID: msg.UUID, Body: slices.Clone(msg.Payload)}
	for name, value := range msg.Metadata {
		m.Headers = append(m.Headers, adaptertest.Header{Name: name, Value: []byte(value)})
	}
	return m
}

func seen(msg *message.Message) adaptertest.Message {
	native := pubsub.MessageFromContext(msg.Context())
	if native == nil {
		return adaptertest.Message{}
	}
	return plain(native)
}

// refuse replaces streams with texts, so that Redis refuses writes to them.
func (h *harness) refuse(t testing.TB, origin, group string, what adaptertest.Place) (restore func()) {
	t.Helper()
	base := origin + "." + group
	streams := []string{base + ".dlq"}
	if what == adaptertest.Levels {
		streams = []string{base + ".retry"}
		for n := range 8 {
			streams = append(streams, base+".retry."+strconv.Itoa(n+1))
		}
	}
	ctx := context.Background()
	for _, stream := range streams {
		there, err := h.client.Exists(ctx, stream).Result()
		if err == nil {
			_, err = h.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
				if there > 0 {
					p.Rename(ctx, stream, stream+":aside")
				}
				p.Set(ctx, stream, "in the way", 0)
				return nil
			})
		}
		if err != nil {
			t.Fatalf("refusing writes to %s: %v", stream, err)
		}
	}
	return func() {
		t.Helper()
		for _, stream := range streams {
			there, err := h.client.Exists(ctx, stream+":aside").Result()
			if err == nil {
				_, err = h.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Del(ctx, stream)
					if there > 0 {
						p.Rename(ctx, stream+":aside", stream)
					}
					return nil
				})
			}
			if err != nil {
				t.Error(fmt.Errorf("restoring %s: %w", stream, err))
			}
		}
	}
}
