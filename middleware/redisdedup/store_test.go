package redisdedup_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/middleware/redisdedup"
	"github.com/redeliver/redeliver/redelivertest"
)

// server is a fake Redis: it answers the commands inside the client. integration/ tests a real one.
type server struct {
	said []string
	keys map[string]time.Duration
	away error
}

func (*server) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("nobody dials here") }
}

func (*server) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *server) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		s.said = append(s.said, fmt.Sprintf("%q", fmt.Sprint(cmd.Args()...)))
		if s.away != nil {
			cmd.SetErr(s.away)
			return s.away
		}
		key, _ := cmd.Args()[1].(string)
		switch cmd := cmd.(type) {
		case *redis.IntCmd:
			if _, ok := s.keys[key]; ok {
				cmd.SetVal(1)
			}
		case *redis.StatusCmd:
			s.keys[key] = 0
			cmd.SetVal("OK")
		}
		return nil
	}
}

func newStore(t *testing.T, cfg redisdedup.Config) (*redisdedup.Store, *server) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: "nowhere:6379"})
	t.Cleanup(func() { _ = client.Close() })
	s := &server{keys: make(map[string]time.Duration)}
	client.AddHook(s)
	store, err := redisdedup.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return store, s
}

func TestStore(t *testing.T) {
	for prefix, want := range map[string]string{"": "redeliver:dedup:", "shop/": "shop/"} {
		store, s := newStore(t, redisdedup.Config{Prefix: prefix})
		if seen, err := store.Seen(t.Context(), "a"); seen || err != nil {
			t.Error(seen, err)
		}
		if err := store.Mark(t.Context(), "a", 90*time.Second); err != nil {
			t.Error(err)
		}
		if err := store.Mark(t.Context(), "b", time.Nanosecond); err != nil {
			t.Error(err)
		}
		if seen, err := store.Seen(t.Context(), "a"); !seen || err != nil {
			t.Error(seen, err)
		}
		commands := []string{
			fmt.Sprintf("%q", fmt.Sprint("exists", want+"a")),
			fmt.Sprintf("%q", fmt.Sprint("set", want+"a", 1, "ex", 90)),
			fmt.Sprintf("%q", fmt.Sprint("set", want+"b", 1, "px", 1)),
			fmt.Sprintf("%q", fmt.Sprint("exists", want+"a")),
		}
		if !slices.Equal(s.said, commands) {
			t.Errorf("commands %q, want %q", s.said, commands)
		}
		s.away = errors.New("connection refused")
		if _, err := store.Seen(t.Context(), "a"); !errors.Is(err, s.away) {
			t.Error(err)
		}
		if err := store.Mark(t.Context(), "a", time.Second); !errors.Is(err, s.away) {
			t.Error(err)
		}
	}
}

func TestNewRefusesNoClient(t *testing.T) {
	if _, err := redisdedup.New(nil, redisdedup.Config{}); !errors.Is(err, redeliver.ErrConfig) {
		t.Error(err)
	}
}

// The processes of a group share their marks.
func TestDedupOfTwoProcesses(t *testing.T) {
	store, _ := newStore(t, redisdedup.Config{})
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		runs := 0
		handle := func(*message.Message) error { runs++; return nil }
		for range 3 {
			client := b.Open(redelivertest.Config{Group: "search"})
			client.Handle("documents", handle, must(middleware.Dedup(middleware.DedupConfig{Store: store})))
			b.Publish("documents", message.NewMessage("a", nil))
			b.Wait()
			if err := client.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if runs != 1 {
			t.Errorf("ran %d times", runs)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
