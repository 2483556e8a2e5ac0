//go:build prove

package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The faults are tested, too, because a fault without effect proves nothing.

// envClock makes this test binary test its clock.
const envClock = "REDELIVER_CHAOS_CLOCK"

// tryClock steps the clock. Monotonic measurements are not affected.
func tryClock() error {
	began := time.Now()
	replaceClock()
	for _, step := range []int64{5, -7, 0} {
		clockStep.Store(step)
		now := time.Now()
		// Round removes the monotonic reading, so that the wall clocks are compared.
		if off := now.Round(0).Sub(realNow().Round(0)); off.Round(time.Second) != time.Duration(step)*time.Second {
			return fmt.Errorf("the clock differs by %s, want %d s", off, step)
		}
		if passed := now.Sub(began); passed < 0 || passed > 4*time.Second {
			return fmt.Errorf("%s have passed since the beginning, after a step of %d s", passed, step)
		}
		if until := time.Until(now.Add(time.Hour)); until < time.Hour-4*time.Second || until > time.Hour {
			return fmt.Errorf("a deadline in an hour is %s away, after a step of %d s", until, step)
		}
	}
	return nil
}

func TestClockSteps(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), envClock+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// A client that checks records notices the corruption, and gets the record when it is over. A client that does not
// check gets another value.
func TestCorruptionIsNoticed(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "records"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	writer, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(writer.Close)
	value := strings.Repeat("the truth ", 20)
	if err := writer.ProduceSync(ctx, &kgo.Record{Topic: "records", Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}

	l := newCorruptor(t, cluster.ListenAddrs()[0])
	l.lying.Store(true)
	read := func(opts ...kgo.Opt) *kgo.Client {
		client, err := kgo.NewClient(append(opts, kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics("records"),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableFetchSessions(),
			kgo.Dialer(func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, l.address())
			}))...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	careless := read(kgo.DisableFetchCRCValidation()).PollFetches(ctx)
	if records := careless.Records(); len(records) > 0 && string(records[0].Value) == value {
		t.Errorf("a reader without checks reads %q although %d corrupted answers were sent", records[0].Value, l.corrupted.Load())
	}
	careful := read()
	fetches := careful.PollFetches(ctx)
	if fetches.Err() == nil || errors.Is(fetches.Err(), context.DeadlineExceeded) {
		t.Errorf("a reader with checks reads %v and reports nothing: %v", fetches.Records(), fetches.Err())
	}
	if l.corrupted.Load() < 2 {
		t.Errorf("%d corrupted answers were sent, want one to each", l.corrupted.Load())
	}
	l.lying.Store(false)
	for {
		fetches := careful.PollFetches(ctx)
		if records := fetches.Records(); len(records) > 0 {
			if string(records[0].Value) != value {
				t.Errorf("the record is %q, want %q", records[0].Value, value)
			}
			return
		}
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
	}
}
