package pubsub

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// listen runs a handler over a broadcast consumer until the test's end.
func listen(t *testing.T, cfg BroadcastConfig, h message.NoPublishHandlerFunc, around ...message.HandlerMiddleware) {
	t.Helper()
	b, err := OpenBroadcast(cfg)
	if err != nil {
		t.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{})
	if err != nil {
		t.Fatal(err)
	}
	router.AddMiddleware(around...)
	router.AddConsumerHandler("h", "prices", b, h)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, b.Close()); err != nil {
			t.Error(err)
		}
	})
	<-router.Running()
}

func ends(s *told) (well, ill []string) {
	for _, e := range of[redeliver.Committed](s) {
		well = append(well, e.State.ID)
	}
	for _, e := range of[redeliver.BroadcastFailed](s) {
		ill = append(ill, e.State.ID+" "+string(e.State.Reason))
	}
	return well, ill
}

// Every process gets every message; what fails is told of and acked, and the next goes on.
func TestBroadcast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		sinks := []*told{{}, {}}
		hang := make(chan struct{})
		for i, name := range []string{"one", "two"} { // in this broker a group of one's own is none
			listen(t, BroadcastConfig{
				Subscriber: m.member(t, name), Sink: sinks[i], Policy: redeliver.Policy{Timeout: time.Minute, Immediate: 1},
				Decode: func(msg *message.Message) error {
					if msg.UUID == "garbage" {
						return errors.New("no such schema")
					}
					return nil
				},
			}, func(msg *message.Message) error {
				if MessageFromContext(msg.Context()) == nil {
					t.Errorf("%s: its context has no message", msg.UUID)
				}
				switch msg.UUID {
				case "panics":
					panic("no")
				case "hangs":
					<-hang
				case "fails", "garbage":
					return redeliver.RetryAfter(errors.New("no"), time.Hour)
				}
				return nil
			}, middleware.Retry(middleware.AllowBroadcast))
		}
		t.Cleanup(func() { close(hang) })
		writer := m.member(t, "writer")
		for _, id := range []string{"a", "fails", "panics", "garbage", "hangs", "b"} {
			msg := message.NewMessage(id, nil)
			if id == "a" {
				msg.Metadata[redeliver.HeaderAttempt] = "17" // copied onward
			}
			if err := writer.Publish("prices", msg); err != nil {
				t.Fatal(err)
			}
		}
		elapse(2 * time.Minute)
		for i, sink := range sinks {
			well, ill := ends(sink)
			if !slices.Equal(well, []string{"a", "b"}) || !slices.Equal(ill, []string{"fails exhausted", "panics panic", "garbage undecodable", "hangs timeout"}) {
				t.Errorf("process %d: %q, %q", i, well, ill)
			}
			if n := len(of[redeliver.HeadersIgnored](sink)); n != 1 {
				t.Errorf("process %d: %d times headers were ignored", i, n)
			}
			if n := len(of[redeliver.Attempted](sink)); n != 7 { // the panic has an immediate try
				t.Errorf("process %d: %d attempts", i, n)
			}
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for at, left := range m.groups {
			if len(left) > 0 {
				t.Errorf("%d messages of %s are not acked", len(left), at)
			}
		}
		if len(m.topics) != 1 {
			t.Errorf("there are topics beside the one: %v", m.topics)
		}
	})
}

// A Subscribe that ends by itself is made again.
func TestABroadcastSubscribesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := newMemory().member(t, "one"), &told{}
		sub := &breakingOf{breaking{Subscriber: m}, "prices"}
		sub.left.Store(2)
		listen(t, BroadcastConfig{Subscriber: sub, Sink: sink}, func(*message.Message) error { return nil })
		if err := m.Publish("prices", message.NewMessage("a", nil)); err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		if well, _ := ends(sink); !slices.Equal(well, []string{"a"}) {
			t.Errorf("ran %q", well)
		}
		var changes []string
		for _, e := range of[redeliver.SubscriptionChanged](sink) {
			changes = append(changes, e.Change)
		}
		if want := []string{"consuming", "disconnected", "consuming", "disconnected", "consuming"}; !slices.Equal(changes, want) {
			t.Errorf("told %q, want %q", changes, want)
		}
	})
}

// breakingOf is breaking for another topic.
type breakingOf struct {
	breaking
	topic string
}

func (s *breakingOf) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if topic == s.topic && s.left.Add(-1) >= 0 {
		in := make(chan *message.Message)
		close(in)
		return in, nil
	}
	return s.Subscriber.Subscribe(ctx, topic)
}

// Retry without the option is refused, and says what to do.
func TestRetryAroundABroadcastIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, sink := newMemory().member(t, "one"), &told{}
		listen(t, BroadcastConfig{Subscriber: m, Sink: sink}, func(*message.Message) error {
			t.Error("the handler ran")
			return nil
		}, middleware.Retry())
		if err := m.Publish("prices", message.NewMessage("a", nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		failed := of[redeliver.BroadcastFailed](sink)
		if len(failed) != 1 || !errors.Is(failed[0].Err, middleware.ErrBroadcast) {
			t.Errorf("told %+v", failed)
		}
	})
}

func TestOpenBroadcastRefuses(t *testing.T) {
	_, err := OpenBroadcast(BroadcastConfig{DrainTimeout: -1, Policy: redeliver.Policy{Backoff: redeliver.Fixed(time.Second), Order: redeliver.Blocking}})
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatal(err)
	}
	var fields []string
	for _, p := range bad.Problems {
		fields = append(fields, p.Field)
	}
	if want := []string{"Subscriber", "Policy.Backoff", "Policy.Order", "DrainTimeout"}; !slices.Equal(fields, want) {
		t.Errorf("refused %q, want %q", fields, want)
	}
}
