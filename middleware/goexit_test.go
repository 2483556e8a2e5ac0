package middleware_test

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/middleware"
)

// runtime.Goexit (t.FailNow in a handler) leaves nobody to answer.
func TestGoexitIsAFailure(t *testing.T) {
	for _, timeout := range []time.Duration{minute, redeliver.NoTimeout} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			b := &broker{}
			msg := deliver(t.Context(), subscribe(b, redeliver.Policy{Timeout: timeout, Immediate: 1}))
			run(middleware.Retry()(func(*message.Message) ([]*message.Message, error) {
				runtime.Goexit()
				return nil, nil
			}), msg)
			<-msg.Acked()
			st := b.only(t, "level")
			if st.Attempts != 1 || st.Error != "panic: the handler called runtime.Goexit" || time.Since(start) != 0 {
				t.Errorf("after %s, written as %+v", time.Since(start), st)
			}
			<-time.After(hour) // the watch has nothing left to do
			if got := b.seen(); !slices.Equal(got, []string{"Attempted", "level confirms", "RetryScheduled"}) {
				t.Errorf("%q", got)
			}
		})
	}
}

func TestGoexitAfterTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub := subscribe(b, redeliver.Policy{Timeout: second})
		msg := deliver(t.Context(), sub)
		run(middleware.Retry()(func(*message.Message) ([]*message.Message, error) {
			<-time.After(minute)
			runtime.Goexit()
			return nil, nil
		}), msg)
		<-time.After(hour)
		if b.only(t, "level"); len(events[redeliver.LateAnswer](b)) != 1 || sub.Stuck.Load() != 0 {
			t.Errorf("%q, %d stuck", b.seen(), sub.Stuck.Load())
		}
	})
}
