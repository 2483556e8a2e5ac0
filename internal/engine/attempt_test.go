package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/binding"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// The engine writes and reports every way in which a message ends.
func TestEveryEndIsWrittenAndReported(t *testing.T) {
	var j *journal
	lose := func() {
		close(j.lost)
		synctest.Wait()
	}
	retried := []string{"Attempted", "level confirms", "RetryScheduled"}
	dead := []string{"Attempted", "dlq confirms", "DeadLettered"}
	for name, c := range map[string]struct {
		policy  redeliver.Policy
		handle  func(context.Context) error
		log     []string
		settled bool
		says    string // the error that is written
	}{
		"succeeds":  {handle: func(context.Context) error { return nil }, log: []string{"Attempted", "Committed"}, settled: true},
		"fails":     {handle: func(context.Context) error { return errOurs }, log: retried, settled: true, says: "ours"},
		"permanent": {handle: func(context.Context) error { return redeliver.Permanent(errOurs) }, log: dead, settled: true, says: "ours"},
		"panics":    {handle: func(context.Context) error { panic("no such table") }, log: retried, settled: true, says: "no such table"},
		"goexit":    {handle: func(context.Context) error { runtime.Goexit(); return nil }, log: retried, settled: true, says: "runtime.Goexit"},
		"invalid": {
			policy: redeliver.Policy{Invalid: func(redeliver.Message) error { return errOurs }},
			handle: func(context.Context) error { panic("it must not run") }, log: dead[1:], settled: true, says: "ours",
		},
		"invalid, which panics": {
			policy: redeliver.Policy{Invalid: func(redeliver.Message) error { panic("no such table") }},
			handle: func(context.Context) error { panic("it must not run") }, log: dead[1:], settled: true, says: "no such table",
		},
		"out of time": {handle: func(ctx context.Context) error { <-ctx.Done(); return nil }, log: retried, settled: true, says: "1m"},
		"stuck": {
			handle: func(context.Context) error { <-time.After(time.Hour); return nil }, settled: true, says: "1m",
			log: slices.Concat(retried, []string{"HandlerStuck", "LateAnswer"}),
		},
		"lost": {handle: func(context.Context) error { lose(); return errOurs }, log: []string{"Attempted", "Abandoned"}},
		"lost, and out of time": {
			handle: func(context.Context) error { lose(); <-time.After(time.Hour); return nil },
			log:    []string{"Attempted", "Abandoned", "HandlerStuck", "LateAnswer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := c.policy
				p.Backoff, p.Timeout = redeliver.Fixed(24*time.Hour), time.Minute
				j = newJournal(p)
				j.start(t, handle(func(ctx context.Context, _ *record) error { return c.handle(ctx) }))
				j.publish("a")
				<-time.After(3 * time.Hour)
				synctest.Wait()
				j.want(t, name, c.log...)
				if settled, _ := j.all(); (len(settled) == 1) != c.settled {
					t.Errorf("settled %v", settled)
				}
				if wrote := j.written(); c.says != "" && (len(wrote) != 1 || !strings.Contains(wrote[0].Error, c.says)) {
					t.Errorf("written as %+v, want %q", wrote, c.says)
				}
			})
		})
	}
}

// An immediate retry counts the first attempt and has the values of the message's own context. Its context ends when
// the message ends.
func TestAnImmediateRetryHasTheStateOfTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Immediate: 2})
		j.values = context.WithValue(context.Background(), key{}, "value")
		var seen []context.Context
		j.start(t, handle(func(ctx context.Context, _ *record) error {
			st, _ := redeliver.FromContext(ctx)
			if seen = append(seen, ctx); st.Attempt() != len(seen) || ctx.Err() != nil || ctx.Value(key{}) != "value" || engine.FromContext(ctx).Lost() {
				t.Errorf("attempt %d: %+v, %v", len(seen), st, ctx.Err())
			}
			if len(seen) < 3 {
				return errOurs
			}
			return nil
		}))
		j.publish("a")
		synctest.Wait()
		if len(seen) != 3 || seen[2].Err() == nil || len(j.written()) > 0 {
			t.Errorf("%d attempts, the last one's context ended with %v, written %v", len(seen), seen[2].Err(), j.written())
		}
	})
}

// Policy.Invalid is called for a message without a body, such as a tombstone of Kafka, but not for a message that
// cannot be read.
func TestInvalidIsAskedAboutReadableMessages(t *testing.T) {
	headers := message.Metadata{"kind": "tombstone"}
	for _, c := range []struct {
		headers redeliver.Headers
		body    []byte
		want    bool
	}{
		{headers, nil, true}, {headers, []byte("payload"), true}, {nil, []byte("payload"), true}, {nil, nil, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked []redeliver.Message
			j := newJournal(redeliver.Policy{Invalid: func(m redeliver.Message) error { asked = append(asked, m); return errOurs }})
			router := binding.New(j.message)
			j.start(t, engine.Options[*record]{Handler: router})
			j.in <- &record{id: "a", key: "k"}
			msg := <-router.Messages()
			d := engine.FromContext(msg.Context())
			d.SetForm(described{c.headers, c.body})
			_, _ = d.Run(d, func(context.Context) error { return nil })
			msg.Ack()
			if len(asked) != map[bool]int{true: 1}[c.want] {
				t.Errorf("%v, %q: asked %d times", c.headers, c.body, len(asked))
			}
			if c.want && (string(asked[0].Body) != string(c.body) || asked[0].State.ID != "a" || string(asked[0].Key) != "k") {
				t.Errorf("asked about %+v", asked[0])
			}
		})
	}
}

// described is a form with this description of its message.
type described struct {
	headers redeliver.Headers
	body    []byte
}

func (d described) Describe() (redeliver.Headers, []byte) { return d.headers, d.body }
func (described) Answered() bool                          { return false }
func (described) Declined() bool                          { return false }
func (described) Settled()                                {}

// The return value of a handler that has settled its message itself does not count.
func TestAMessageThatItsHandlerSettledIsNotSettledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		router := binding.New(j.message)
		j.start(t, engine.Options[*record]{Handler: router})
		j.publish("a")
		msg := <-router.Messages()
		_, err := binding.Run(engine.FromContext(msg.Context()), func(m *message.Message) ([]*message.Message, error) {
			m.Ack()
			return nil, errOurs
		}, msg)
		synctest.Wait()
		if settled, _ := j.all(); err != nil || len(settled) != 1 {
			t.Errorf("%v, settled %v", err, settled)
		}
		// The worker sees the ack while the handler's goroutine reports the attempt.
		if got := slices.Sorted(slices.Values(j.logged())); !slices.Equal(got, []string{"Attempted", "Committed"}) {
			t.Errorf("logged %q", got)
		}
	})
}

// A nack while the subscription ends does not count as an attempt, because the end may be its cause. The message is
// returned at once for other processes. On SQS it was once hidden for the visibility timeout, together with its FIFO
// group.
func TestANackWhileTheLaneEndsIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		router := binding.New(j.message)
		stop := j.start(t, engine.Options[*record]{Handler: router})
		j.publish("a")
		msg := <-router.Messages()
		go stop()
		synctest.Wait()
		msg.Nack()
		synctest.Wait()
		if settled, _ := j.all(); len(settled) > 0 || len(j.written()) > 0 || !slices.Equal(j.returned, []string{"a 0s false"}) {
			t.Errorf("settled %v, written %v, returned %q", settled, j.written(), j.returned)
		}
	})
}

// With OrderBlocking a message that fails waits in place.
func TestAFailedMessageWaitsInPlace(t *testing.T) {
	for name, c := range map[string]struct {
		maxInPlace, delay time.Duration
		postponed         bool // by its handler
		displaced         bool
		lostAt            time.Duration
		waits             time.Duration // for the second attempt; 0: there is none
		wrote             []string      // reasons
	}{
		"waits":                                {delay: 20 * time.Second, waits: 20 * time.Second},
		"is cut":                               {delay: time.Hour, waits: limits.MaxBlock},
		"is lengthened":                        {delay: time.Millisecond, waits: limits.MinBlock},
		"is not shortened to the longest":      {maxInPlace: 2 * time.Hour, delay: time.Hour, waits: time.Hour},
		"is exactly the longest":               {maxInPlace: time.Hour, delay: time.Hour, waits: time.Hour},
		"nor lengthened":                       {maxInPlace: 2 * time.Hour, delay: time.Millisecond, waits: time.Millisecond},
		"is too long":                          {maxInPlace: time.Hour, delay: time.Hour + time.Second, wrote: []string{"unschedulable"}},
		"is postponed, and shortened":          {maxInPlace: time.Hour, delay: 2 * time.Hour, postponed: true, waits: time.Hour},
		"is postponed":                         {maxInPlace: 2 * time.Hour, delay: time.Hour, postponed: true, waits: time.Hour},
		"is postponed, without a longest wait": {delay: time.Hour, postponed: true, waits: limits.MaxBlock},
		"it has lost its place":                {delay: 24 * time.Hour, displaced: true, wrote: []string{""}},
		"is lost":                              {delay: 20 * time.Second, lostAt: 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(redeliver.Policy{Backoff: redeliver.Fixed(c.delay)})
			j.sub.KeepsPlace, j.sub.MaxInPlace, j.displaced = true, c.maxInPlace, c.displaced
			var at []time.Duration
			j.start(t, handle(func(context.Context, *record) error {
				switch at = append(at, time.Since(j.begun)); {
				case len(at) > 1:
					return nil
				case c.postponed:
					return redeliver.Postpone(errors.New("busy"))
				default:
					return redeliver.RetryAfter(errors.New("busy"), c.delay)
				}
			}))
			j.publish("a")
			if c.lostAt > 0 {
				<-time.After(c.lostAt)
				close(j.lost)
			}
			<-time.After(12 * time.Hour)
			synctest.Wait()
			want := []time.Duration{0, c.waits}
			if c.waits == 0 {
				want = want[:1]
			}
			var wrote []string
			for _, st := range j.written() {
				wrote = append(wrote, string(st.Reason))
			}
			if !slices.Equal(at, want) || !slices.Equal(wrote, c.wrote) {
				t.Errorf("%s: attempts at %v, want %v; written %q, want %q", name, at, want, wrote, c.wrote)
			}
		})
	}
}

// The watch removes an attempt that has answered from any position in its list, and does not report its timeout later.
func TestAnAttemptThatHasAnsweredDoesNotExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(redeliver.Policy{Timeout: time.Minute, Backoff: redeliver.Fixed(24 * time.Hour)})
		takes := []int{50, 20, 90, 30, 10} // seconds, and one is too late
		j.start(t, handle(func(ctx context.Context, r *record) error {
			select {
			case <-time.After(time.Duration(takes[r.id[0]-'0']) * time.Second):
			case <-ctx.Done():
			}
			return nil
		}))
		for i := range takes {
			j.publish(fmt.Sprint(i))
			<-time.After(time.Second)
		}
		<-time.After(time.Hour)
		var late []string
		for _, e := range events[redeliver.Attempted](j) {
			if e.Err != nil {
				late = append(late, e.State.ID)
			}
		}
		if n := len(j.logged()); n != 5+4+2 || !slices.Equal(late, []string{"2"}) {
			t.Errorf("%v failed, want the one that took 90 s; %q", late, j.logged())
		}
	})
}

// A failure that Classify blames on the message does not throttle the subscription, also while it waits in place.
func TestMessagesAtFaultInBlockingOrderDoNotThrottle(t *testing.T) {
	for _, atFault := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(redeliver.Policy{
				MaxRetries: 100, Backoff: redeliver.Fixed(time.Second), Order: redeliver.OrderBlocking,
				Classify: func(error) redeliver.Class { return redeliver.Class{MessageAtFault: atFault} },
			})
			j.sub.KeepsPlace, j.sub.MinInFlight, j.sub.MaxInFlight, j.sub.MaxRetriesInFlight = true, 1, 50, 50
			throttled := false
			j.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
				if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeThrottled {
					throttled = true
				}
			})
			j.start(t, handle(func(context.Context, *record) error { return errOurs }))
			for i := range 40 {
				j.publish(strconv.Itoa(i))
			}
			<-time.After(20 * time.Second)
			synctest.Wait()
			if throttled == atFault {
				t.Errorf("messages at fault: %v; throttled: %v", atFault, throttled)
			}
		})
	}
}

// A message that fails while its subscription ends keeps the attempt, also if an immediate retry is left.
func TestAnImmediateRetryIsWrittenWhenTheSubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(redeliver.Policy{Immediate: 3, MaxRetries: 1, Backoff: redeliver.Fixed(time.Second)})
		runs := 0
		var waits []redeliver.State
		b.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
			if r, ok := e.(redeliver.RetryScheduled); ok {
				waits = append(waits, r.State)
			}
		})
		stop := b.run(t, handle(func(context.Context, *record) error {
			runs++
			<-time.After(5 * time.Second)
			return errOurs
		}), engine.LaneOptions[*record]{})
		b.publish("a")
		<-time.After(time.Second)
		stop()
		settled, dead := b.all()
		if runs != 1 || !slices.Equal(settled, []string{"a"}) || len(dead) > 0 {
			t.Errorf("%d runs, settled %v, dead %v", runs, settled, dead)
		}
		if len(waits) != 1 || waits[0].Attempts != 1 {
			t.Errorf("waiting: %+v, want one message with one attempt", waits)
		}
	})
}
