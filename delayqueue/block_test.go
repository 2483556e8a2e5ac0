package delayqueue_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// sitter is a Mover that is told when its message waits in place.
type sitter struct {
	refuses bool

	mu   sync.Mutex
	told []string
}

func (s *sitter) tell(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, what)
}

func (s *sitter) Moved(bool)                   { s.tell("moved") }
func (s *sitter) Waits(st *redeliver.State)    { s.tell("waits until " + st.Due.Format(time.TimeOnly)) }
func (s *sitter) Resumes(<-chan struct{}) bool { s.tell("resumes"); return !s.refuses }

// What a message does that fails once where messages wait in place.
func TestWaitingInPlace(t *testing.T) {
	type outcome struct {
		how   delayqueue.Ending
		ended bool
		runs  int
		took  time.Duration
	}
	for name, row := range map[string]struct {
		longest   time.Duration
		delay     time.Duration
		postponed bool // by its handler
		displaced bool
		sitter    *sitter // nil for none
		lostAt    time.Duration
		want      outcome
		told      []string
		wrote     []string
	}{
		"waits":                       {delay: 20 * time.Second, want: outcome{delayqueue.Acked, true, 2, 20 * time.Second}},
		"is cut":                      {delay: time.Hour, want: outcome{delayqueue.Acked, true, 2, redeliver.MaxBlock}},
		"is lengthened":               {delay: time.Millisecond, want: outcome{delayqueue.Acked, true, 2, redeliver.MinBlock}},
		"is not cut to the longest":   {longest: 2 * time.Hour, delay: time.Hour, want: outcome{delayqueue.Acked, true, 2, time.Hour}},
		"is just the longest":         {longest: time.Hour, delay: time.Hour, want: outcome{delayqueue.Acked, true, 2, time.Hour}},
		"nor lengthened":              {longest: 2 * time.Hour, delay: time.Millisecond, want: outcome{delayqueue.Acked, true, 2, time.Millisecond}},
		"is too long":                 {longest: time.Hour, delay: time.Hour + time.Second, want: outcome{delayqueue.Forwarded, false, 1, 0}, wrote: []string{"unschedulable"}},
		"is postponed, and cut":       {longest: time.Hour, delay: 2 * time.Hour, postponed: true, want: outcome{delayqueue.Acked, true, 2, time.Hour}},
		"is postponed":                {longest: 2 * time.Hour, delay: time.Hour, postponed: true, want: outcome{delayqueue.Acked, true, 2, time.Hour}},
		"is postponed, by no longest": {delay: time.Hour, postponed: true, want: outcome{delayqueue.Acked, true, 2, redeliver.MaxBlock}},
		"has no place any more":       {delay: time.Minute, displaced: true, want: outcome{delayqueue.Forwarded, false, 1, 0}, wrote: []string{""}},
		"is lost":                     {delay: 20 * time.Second, lostAt: 5 * time.Second, want: outcome{delayqueue.Abandoned, true, 1, 5 * time.Second}},
		"is told":                     {delay: 20 * time.Second, sitter: &sitter{}, want: outcome{delayqueue.Acked, true, 2, 20 * time.Second}, told: []string{"waits until 00:00:20", "resumes"}},
		"is told, and may not":        {delay: 20 * time.Second, sitter: &sitter{refuses: true}, want: outcome{delayqueue.Abandoned, true, 1, 20 * time.Second}, told: []string{"waits until 00:00:20", "resumes"}},
		"is told, and lost meanwhile": {delay: 20 * time.Second, sitter: &sitter{}, lostAt: time.Second, want: outcome{delayqueue.Abandoned, true, 1, time.Second}, told: []string{"waits until 00:00:20"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &broker{}
				session, lose := context.WithCancel(t.Context())
				defer lose()
				if row.lostAt > 0 {
					time.AfterFunc(row.lostAt, lose)
				}
				sub, _ := subscribe(b, session)
				sub.Blocking, sub.LongestBlock = true, row.longest
				sub.Policy.Backoff = redeliver.Fixed(row.delay)
				d := &delayqueue.Delivery{Sub: sub, Record: record{}, ID: "orders/0/1", Displaced: row.displaced}
				if row.sitter != nil {
					d.Mover = row.sitter
				}
				d.Begin(session)
				var got outcome
				begun := time.Now()
				work := &task{handle: func(context.Context) error {
					switch got.runs++; {
					case got.runs > 1:
						return nil
					case row.postponed:
						return redeliver.Postpone(errors.New("busy"))
					default:
						return redeliver.RetryAfter(errors.New("busy"), row.delay)
					}
				}}
				got.how, got.ended = work.work(d)
				got.took = time.Since(begun)
				if got != row.want {
					t.Errorf("%+v, want %+v", got, row.want)
				}
				if row.sitter != nil && !slices.Equal(row.sitter.told, row.told) {
					t.Errorf("told %q, want %q", row.sitter.told, row.told)
				}
				var wrote []string
				for _, st := range b.wrote {
					wrote = append(wrote, string(st.Reason))
				}
				if !slices.Equal(wrote, row.wrote) {
					t.Errorf("wrote %q, want %q", wrote, row.wrote)
				}
			})
		})
	}
}
