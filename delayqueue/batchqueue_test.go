package delayqueue_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// A message that is to be alone is so, at once and in its place; what comes later gathers
// as before.
func TestASuspectIsInABatchOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var batches []string
		_, give := crew(t, &broker{}, redeliver.Policy{}, delayqueue.BatchConfig{Size: 3, Timeout: minute, Concurrency: 1}, func(_ context.Context, _ *delayqueue.Batch, all []*member) error {
			mu.Lock()
			defer mu.Unlock()
			batches = append(batches, strings.Join(ids(all), " "))
			return nil
		})
		for _, c := range []struct {
			after time.Duration
			give  string
			want  []string // the batches that have run since the last one was given
		}{
			{0, "a", nil},
			{0, "suspect", []string{"a", "suspect"}},
			{0, "suspect 2", []string{"suspect 2"}},
			{0, "b", nil},
			{0, "c", nil},
			{0, "d", []string{"b c d"}},
			{0, "e", nil},
			{minute - second, "f", nil},
			{2 * second, "suspect 3", []string{"e f", "suspect 3"}},
		} {
			<-time.After(c.after)
			give(c.give, t.Context())
			synctest.Wait()
			mu.Lock()
			if !slices.Equal(batches, c.want) {
				t.Errorf("with %s: batches %q, want %q", c.give, batches, c.want)
			}
			batches = nil
			mu.Unlock()
		}
	})
}

// A batch runs when its bytes are as many as may be, and has no more of them.
func TestABatchIsFullByItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ran := make(chan string, 10)
		_, give := crew(t, &broker{}, redeliver.Policy{}, delayqueue.BatchConfig{Size: 9, Bytes: 6, Timeout: hour, Concurrency: 1}, func(_ context.Context, _ *delayqueue.Batch, all []*member) error {
			ran <- strings.Join(ids(all), " ")
			return nil
		})
		for _, c := range []struct {
			give string
			want string // "": it waits for more
		}{
			{"abc", ""}, {"def", "abc def"}, // just as many
			{"ab", ""}, {"cd", ""}, {"efg", "ab cd"}, // more: the last one is the next batch's
			{"hij", "efg hij"},
		} {
			give(c.give, t.Context())
			synctest.Wait()
			got := ""
			if len(ran) > 0 {
				got = <-ran
			}
			if got != c.want || len(ran) > 0 {
				t.Errorf("with %s: %q ran, and %d others; want %q", c.give, got, len(ran), c.want)
			}
		}
	})
}

// A batch whose messages have all been lost before it begins leaves its room to the next.
func TestABatchThatNobodyIsInAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var batches []string
		_, give := crew(t, &broker{}, redeliver.Policy{}, delayqueue.BatchConfig{Size: 2, Timeout: hour, Concurrency: 1}, func(_ context.Context, _ *delayqueue.Batch, all []*member) error {
			batches = append(batches, strings.Join(ids(all), " "))
			return nil
		})
		lost, end := context.WithCancel(t.Context())
		end()
		for _, id := range []string{"a", "b"} {
			m := give(id, lost)
			defer m.want(t, delayqueue.Abandoned, 1)
		}
		synctest.Wait()
		give("c", t.Context())
		give("d", t.Context())
		synctest.Wait()
		if want := []string{"c d"}; !slices.Equal(batches, want) {
			t.Errorf("batches %q, want %q", batches, want)
		}
	})
}

// What is written of a batch function that has ended without a word says what it did.
func TestWhatABatchFunctionEndedWith(t *testing.T) {
	for want, end := range map[string]func(){
		"no such table":  func() { panic("no such table") },
		"runtime.Goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &broker{}
			_, give := crew(t, b, redeliver.Policy{}, delayqueue.BatchConfig{Size: 1}, func(context.Context, *delayqueue.Batch, []*member) error {
				end()
				return nil
			})
			m := give("a", t.Context())
			synctest.Wait()
			m.want(t, delayqueue.Forwarded, 1)
			if len(b.wrote) != 1 || !strings.Contains(b.wrote[0].Error, want) {
				t.Errorf("%s: wrote %+v", want, b.wrote)
			}
		})
	}
}
