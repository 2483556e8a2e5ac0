package middleware_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/redelivertest"
)

// numbered parses an id such as "stream/7". Other ids have no number.
func numbered(msg *message.Message) (stream string, number uint64, ok bool) {
	stream, text, ok := strings.Cut(msg.UUID, "/")
	number, err := strconv.ParseUint(text, 10, 64)
	return stream, number, ok && err == nil
}

// skips records the skipped numbers.
type skips struct {
	mu  sync.Mutex
	all []string
}

func (s *skips) add(stream string, from, to uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, fmt.Sprintf("%s/%d-%d", stream, from, to))
}

func TestResequenceSortsEachStream(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search", MaxInFlight: 100}).Handle("documents", h.handle(func(*message.Message) error {
			<-time.After(time.Millisecond)
			return nil
		}), seq)
		var ids []string
		for i := range 30 {
			for _, stream := range []string{"a", "b", "c"} {
				ids = append(ids, fmt.Sprintf("%s/%d", stream, i+1))
			}
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		publish(b, append(ids, "has no number")...)
		b.Wait()
		last := map[string]uint64{}
		for _, id := range h.ids {
			stream, number, ok := numbered(&message.Message{UUID: id})
			if !ok {
				continue
			}
			if number != last[stream]+1 {
				t.Errorf("%s ran after number %d", id, last[stream])
			}
			last[stream] = number
		}
		if len(h.ids) != 91 || last["a"] != 30 || last["b"] != 30 || last["c"] != 30 || len(skipped.all) != 0 {
			t.Errorf("%d ran, up to %v, skipped %v", len(h.ids), last, skipped.all)
		}
	})
}

func TestResequenceHoldsMessagesBehindAFailure(t *testing.T) {
	for name, test := range map[string]struct {
		err   error
		want  []string
		takes time.Duration
	}{
		"retried":       {redeliver.RetryAfter(errHandler, second), []string{"a/1", "a/1", "a/2", "a/3"}, second},
		"dead-lettered": {redeliver.Permanent(errHandler), []string{"a/1", "a/2", "a/3"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				var h handled
				seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered}))
				b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(func(msg *message.Message) error {
					if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == "a/1" && st.Attempt() == 1 {
						return test.err
					}
					return nil
				}), seq)
				begun := time.Now()
				publish(b, "a/1", "a/3", "a/2")
				b.Wait()
				h.want(t, test.want...)
				if took := time.Since(begun); took != test.takes {
					t.Errorf("took %v, want %v", took, test.takes)
				}
			})
		})
	}
}

// Above 100,000 streams some are dropped, but none in which a message waits or runs.
func TestResequenceDropsNoStreamInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var mu sync.Mutex
		var ran []string
		handle := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered}))(func(msg *message.Message) ([]*message.Message, error) {
			if msg.UUID == "a/1" {
				<-release
			}
			if !strings.HasPrefix(msg.UUID, "other") {
				mu.Lock()
				defer mu.Unlock()
				ran = append(ran, msg.UUID)
			}
			return nil, nil
		})
		begin := func(id string) {
			go func() {
				if _, err := handle(message.NewMessage(id, nil)); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}()
			synctest.Wait()
		}
		for _, id := range []string{"c/1", "d/1", "c/2", "a/1", "b/2"} {
			begin(id)
		}
		for i := range 100_000 {
			if _, err := handle(message.NewMessage(fmt.Sprintf("other%d/1", i), nil)); err != nil {
				t.Fatal(err)
			}
		}
		begin("a/2")
		begin("b/1")
		close(release)
		synctest.Wait() // and no time passes: no message waits for an unknown number
		if want := []string{"c/1", "d/1", "c/2", "b/1", "b/2", "a/1", "a/2"}; !slices.Equal(ran, want) {
			t.Errorf("%q ran at once, want %q", ran, want)
		}
	})
}

func TestResequenceSkipsANumberThatDoesNotCome(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: time.Minute, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), seq)
		begun := time.Now()
		publish(b, "a/1", "a/5", "a/4", "a/8")
		b.Wait()
		h.want(t, "a/1", "a/4", "a/5", "a/8")
		if took := time.Since(begun); took < 2*time.Minute || took > 2*time.Minute+time.Second {
			t.Errorf("took %v, want a minute for each of the two gaps", took)
		}
		if want := []string{"a/2-3", "a/6-7"}; !slices.Equal(skipped.all, want) {
			t.Errorf("skipped %q, want %q", skipped.all, want)
		}
		publish(b, "a/2", "a/9")
		b.Wait()
		h.want(t, "a/1", "a/4", "a/5", "a/8", "a/2", "a/9")
	})
}

func TestResequenceSkipsAFailureThatWaitsForLong(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: time.Minute}))
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Backoff: redeliver.Fixed(hour)}}).
			Handle("documents", h.handle(failsFirst), seq)
		publish(b, "a/1", "a/2")
		b.Wait()
		h.want(t, "a/1", "a/2", "a/1", "a/2")
	})
}

func TestResequenceBeginsInTheMiddle(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), seq)
		begun := time.Now()
		publish(b, "a/58", "a/57", "a/59")
		b.Wait()
		if took := time.Since(begun); took > time.Second {
			t.Errorf("took %v, want the 100 ms of Settle", took)
		}
		h.want(t, "a/57", "a/58", "a/59")
		if len(skipped.all) != 0 {
			t.Errorf("skipped %q: messages before this process are not a gap", skipped.all)
		}
	})
}

// At the beginning of a stream a message waits for lower numbers for Settle, but not when it has the number First.
func TestResequenceSettles(t *testing.T) {
	for name, test := range map[string]struct {
		settle time.Duration
		number int
		want   time.Duration
	}{
		"by default": {0, 58, 100 * ms},
		"as set":     {10 * second, 58, 10 * second},
		"at First":   {10 * second, 5, 0},
	} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				var h handled
				seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Settle: test.settle, First: 5}))
				b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), seq)
				begun := time.Now()
				publish(b, fmt.Sprint("a/", test.number))
				b.Wait()
				if took := time.Since(begun); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
			})
		})
	}
}

// A stream waits for a running message without a bound, even for one that has waited for its turn.
func TestResequenceDoesNotSkipARunningMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		busy := false
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: second}))
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(func(msg *message.Message) error {
			if busy {
				t.Errorf("%s runs at the same time as the one before", msg.UUID)
			}
			busy = true
			<-time.After(minute)
			busy = false
			return nil
		}), seq)
		publish(b, "a/1", "a/2", "a/3")
		b.Wait()
		h.want(t, "a/1", "a/2", "a/3")
	})
}

// A handler that ignores the end of its context does not stop its stream. Otherwise every later message would wait for it, until
// its own timeout.
func TestResequenceDoesNotWaitForAHandlerThatHangs(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: second / 2, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries}}).
			Handle("documents", h.handle(func(msg *message.Message) error {
				if msg.UUID == "a/1" {
					<-t.Context().Done()
				}
				return nil
			}), seq)
		publish(b, "a/1")
		<-time.After(5 * second)
		publish(b, "a/2", "a/3")
		b.Wait()
		h.want(t, "a/1", "a/2", "a/3")
		if want := []string{"a/1-1"}; !slices.Equal(skipped.all, want) {
			t.Errorf("skipped %q, want %q", skipped.all, want)
		}
	})
}

// A message that is acked before its handler returns ends when its handler returns.
func TestResequenceWaitsForAHandlerThatHasAcked(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		began := time.Now()
		var ran time.Duration
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered}))
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(func(msg *message.Message) error {
			if msg.UUID == "a/2" {
				ran = time.Since(began)
				return nil
			}
			msg.Ack()
			<-time.After(second)
			return nil
		}), seq)
		publish(b, "a/1", "a/2")
		b.Wait()
		h.want(t, "a/1", "a/2")
		if ran != second {
			t.Errorf("the next number ran after %s, want %s", ran, second)
		}
	})
}

// A message whose turn has come does not count in the Buffer.
func TestResequenceUsesItsBufferAgain(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Buffer: 1, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), seq)
		publish(b, "a/1", "a/3", "a/2", "a/5", "a/4", "a/7", "a/6")
		b.Wait()
		h.want(t, "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7")
		if len(skipped.all) > 0 {
			t.Errorf("skipped %q", skipped.all)
		}
	})
}

func TestResequenceIsBounded(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Buffer: 2, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search"}).Handle("documents", h.handle(nil), seq)
		begun := time.Now()
		publish(b, "a/1", "a/4", "a/3")
		<-time.After(time.Second)
		publish(b, "a/7")
		b.Wait()
		if took := time.Since(begun); took > 40*time.Second {
			t.Errorf("took %v", took)
		}
		h.want(t, "a/1", "a/3", "a/4", "a/7")
		if want := []string{"a/2-2", "a/5-6"}; !slices.Equal(skipped.all, want) {
			t.Errorf("skipped %q, want %q", skipped.all, want)
		}
	})
}

func TestResequenceReleasesALostMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: hour}))
		sub := b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Timeout: time.Second, MaxRetries: redeliver.NoRetries}}).
			Handle("documents", h.handle(nil), seq)
		publish(b, "a/1", "a/3")
		b.Wait()
		h.want(t, "a/1")
		dead := sub.DeadLetters()
		if len(dead) != 1 || dead[0].State.Reason != redeliver.ReasonTimeout {
			t.Errorf("dead letters %+v, want number 3, timed out", dead)
		}
	})
}

// A message whose context ends leaves its place in the Buffer, and a copy of it continues to wait.
func TestResequenceKeepsNoPlaceForALostMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		var skipped skips
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: hour, Buffer: 2, Skipped: skipped.add}))
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Timeout: second, MaxRetries: redeliver.NoRetries}}).
			Handle("documents", h.handle(nil), seq)
		publish(b, "a/1", "a/3")
		<-time.After(second / 2)
		publish(b, "a/3")
		<-time.After(3 * second / 4) // the context of the first a/3 has ended
		publish(b, "a/4", "a/2")
		b.Wait()
		h.want(t, "a/1", "a/2", "a/3", "a/4")
		if len(skipped.all) > 0 {
			t.Errorf("skipped %q", skipped.all)
		}
	})
}

// A stream does not continue with the number of a lost message, for which it would wait again.
func TestResequenceDoesNotSkipToALostMessage(t *testing.T) {
	redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
		var h handled
		seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered, Wait: 8 * second}))
		b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{Timeout: 10 * second, MaxRetries: redeliver.NoRetries}}).
			Handle("documents", h.handle(nil), seq)
		publish(b, "a/1", "a/4")
		<-time.After(5 * second)
		publish(b, "a/2")           // and the stream has not stopped
		<-time.After(5*second + ms) // the context of a/4 has ended
		publish(b, "a/6")
		b.Wait()
		h.want(t, "a/1", "a/2", "a/6")
	})
}

// A panic or runtime.Goexit in the last attempt ends a message. The stream does not wait for it until Wait is over.
func TestResequenceDoesNotWaitForAMessageThatPanicked(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
				began := time.Now()
				took := time.Hour // if it does not run
				seq := must(middleware.Resequence(middleware.ResequenceConfig{Sequence: numbered}))
				b.Open(redelivertest.Config{Group: "search", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}).
					Handle("documents", func(msg *message.Message) error {
						if msg.UUID == "a/1" {
							end()
						}
						took = time.Since(began)
						return nil
					}, seq)
				publish(b, "a/1", "a/2")
				b.Wait()
				if took > second {
					t.Errorf("the message after one that panicked in its last attempt ran after %s, want at most %s", took, second)
				}
			})
		})
	}
}

func TestResequenceRefusesBadConfigurations(t *testing.T) {
	err := middleware.ResequenceConfig{Settle: -1, Wait: -1, Buffer: -1}.Validate()
	var refused *redeliver.ConfigError
	if !errors.As(err, &refused) || len(refused.Problems) != 4 {
		t.Errorf("got %v, want four problems", err)
	}
	if _, err := middleware.Resequence(middleware.ResequenceConfig{}); !errors.Is(err, redeliver.ErrConfig) {
		t.Error(err)
	}
}
