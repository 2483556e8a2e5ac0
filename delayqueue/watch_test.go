package delayqueue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
)

// An attempt that has answered is watched no more, wherever it stands among those that
// run: nothing is told of it when its time would have been over.
func TestWhoHasAnsweredDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &broker{}
		sub, _ := subscribe(b, t.Context())
		sub.Policy = redeliver.Policy{Timeout: time.Minute}.WithDefaults()
		var all sync.WaitGroup
		for i, takes := range []int{50, 20, 90, 30, 10} { // seconds, and one is too late
			d := of(sub, fmt.Sprint(i), t.Context())
			tk := &task{handle: func(ctx context.Context) error {
				select {
				case <-time.After(time.Duration(takes) * time.Second):
				case <-ctx.Done():
				}
				return nil
			}}
			d.Mover = tk
			all.Go(func() { tk.work(d) })
			<-time.After(time.Second)
		}
		all.Wait()
		<-time.After(time.Hour)
		want := []string{"Attempted", "Attempted", "Attempted", "Attempted", "Attempted", "level confirms", "RetryScheduled"}
		if got := b.seen(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		var late []string
		for _, e := range events[redeliver.Attempted](b) {
			if e.Err != nil {
				late = append(late, e.State.ID)
			}
		}
		if !slices.Equal(late, []string{"2"}) {
			t.Errorf("%v failed, want the one that took 90 s", late)
		}
	})
}
