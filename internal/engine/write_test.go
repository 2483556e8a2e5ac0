package engine_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

func failWith(err error) engine.Options[*record] {
	return handle(func(context.Context, *record) error { return err })
}

// hourly returns a policy whose retries come after the end of a test.
func hourly() redeliver.Policy {
	return redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Fixed(time.Hour)}
}

// The end of a message is reported when the broker has confirmed the write, and not before.
func TestAWriteIsReportedWhenItIsConfirmed(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		where string
		event string
	}{
		"retry":       {errOurs, "level", "RetryScheduled"},
		"postpone":    {redeliver.Postpone(errOurs), "level", "MessagePostponed"},
		"dead letter": {redeliver.Permanent(errOurs), "dlq", "DeadLettered"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j, confirm := newJournal(hourly()), make(chan struct{})
			j.answer = func(context.Context, string, int) error { <-confirm; return nil }
			j.start(t, failWith(c.err))
			j.publish("a")
			<-time.After(time.Minute)
			if settled, _ := j.all(); len(settled) > 0 {
				t.Errorf("%s: it is settled before the confirmation", name)
			}
			j.want(t, name, "Attempted")
			close(confirm)
			synctest.Wait()
			j.want(t, name, "Attempted", c.where+" confirms", c.event)
			if settled, _ := j.all(); len(settled) != 1 || j.written()[0].Policy != j.sub.Fingerprint() {
				t.Errorf("%s: settled %v, written %+v", name, settled, j.written())
			}
			if e := events[redeliver.RetryScheduled](j); len(e) > 0 && (e[0].State != j.written()[0] || e[0].Where != "level" || e[0].Delay != time.Hour || !errors.Is(e[0].Err, errOurs)) {
				t.Errorf("reported %+v", e[0])
			}
		})
	}
}

// A message that one place refuses goes to the next place, and finally to the DLQ without its body. A DLQ that refuses
// even that is an outage.
func TestARefusedMessageGoesToTheNextPlace(t *testing.T) {
	tooLarge := fmt.Errorf("%w: too large", driver.ErrRefused)
	tooLong := fmt.Errorf("here: %w", &redeliver.UnschedulableError{Wait: time.Hour, Max: time.Minute})
	stub := fmt.Sprintf("7 sha256:%x", sha256.Sum256([]byte("payload")))
	for name, c := range map[string]struct {
		err       error
		answers   []error // of the first writes; later ones succeed
		truncates bool
		log       []string
		truncated string
		says      string
	}{
		"by the level": {errOurs, []error{tooLarge}, true, []string{"level refuses", "dlq confirms", "DeadLettered"}, "", "too large"},
		"no level is long enough": {
			errOurs, []error{tooLong, errTheirs}, true,
			[]string{"level refuses", "dlq refuses", "intake paused", "PublishFailed", "dlq confirms", "intake resumed", "DeadLettered"}, "", "1h",
		},
		"by both":           {errOurs, []error{tooLarge, tooLarge}, true, []string{"level refuses", "dlq refuses", "dlq confirms", "DeadLettered"}, stub, "too large"},
		"a dead letter":     {redeliver.Permanent(errOurs), []error{tooLarge}, true, []string{"dlq refuses", "dlq confirms", "DeadLettered"}, stub, "too large"},
		"even without body": {redeliver.Permanent(errOurs), []error{tooLarge, tooLarge}, true, []string{"dlq refuses", "dlq refuses", "intake paused", "PublishFailed", "dlq confirms", "intake resumed", "DeadLettered"}, stub, "too large"},
		"nothing truncates": {redeliver.Reject("no"), []error{tooLarge}, false, []string{"dlq refuses", "PublishFailed", "dlq confirms", "DeadLettered"}, "", "no"},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(hourly())
			j.truncates = c.truncates
			j.answer = func(_ context.Context, _ string, try int) error {
				if try <= len(c.answers) {
					return c.answers[try-1]
				}
				return nil
			}
			j.start(t, failWith(c.err))
			j.in <- &record{id: "a", body: []byte("payload")}
			<-time.After(time.Minute)
			synctest.Wait()
			j.want(t, name, append([]string{"Attempted"}, c.log...)...)
			st := j.written()[0]
			reason := redeliver.ReasonUnschedulable
			if !c.truncates {
				reason = redeliver.ReasonRejected
			}
			if st.Reason != reason || st.Truncated != c.truncated || !st.Due.IsZero() || !strings.Contains(st.Error, c.says) || st.Attempts != 1 {
				t.Errorf("%s: written as %+v", name, st)
			}
		})
	}
}

// A message that is passed on to another level gets this policy's fingerprint.
func TestAHopCarriesThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		j.hops = true
		j.answer = func(_ context.Context, _ string, try int) error {
			if try == 2 { // otherwise it would hop forever
				j.hops = false
			}
			return nil
		}
		j.start(t, failWith(nil))
		j.in <- &record{id: "w", state: &redeliver.State{ID: "w", Attempts: 1, Policy: "0123456789abcdef"}}
		synctest.Wait()
		if got := j.written(); len(got) != 2 || got[0].Policy != j.sub.Fingerprint() || got[0].Attempts != 1 {
			t.Errorf("written as %+v", got)
		}
	})
}

// An origin may refuse a delayed publish because it is full. New messages begin nevertheless, because only they make room.
func TestAFullOriginStopsNoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		j.publishes = true
		var free atomic.Bool
		j.answerID = func(string, string) error {
			if !free.Load() {
				return errTheirs
			}
			return nil
		}
		j.start(t, handle(func(_ context.Context, r *record) error {
			if r.id == "new" {
				free.Store(true)
			}
			return nil
		}))
		j.in <- &record{id: "later", state: &redeliver.State{ID: "later"}}
		synctest.Wait()
		j.want(t, "full", "topic refuses", "PublishFailed")
		j.publishes = false // otherwise it would be published forever
		j.publish("new")
		<-time.After(time.Minute)
		synctest.Wait()
		if settled, dead := j.all(); len(settled) != 3 || len(dead) > 0 || slices.Contains(j.changes(), "intake paused") {
			t.Errorf("settled %v, dead %v, changes %v, want new, the delayed publish, and what it published", settled, dead, j.changes())
		}
	})
}

// operationChanges returns how many operations were reported to fail, and to work again.
func operationChanges(j *journal) (n [2]int) {
	for _, c := range j.changes() {
		switch c {
		case string(redeliver.ChangeOperationFails):
			n[0]++
		case string(redeliver.ChangeOperationWorks):
			n[1]++
		}
	}
	return n
}

// While the origin refuses one delayed publish, that one and the others wait on a level for half a minute. If they stayed in
// their source, they would fill its memory, and the broker would not send the retries behind them.
func TestDelayedPublishesWaitOnALevelWhileTheOriginIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		j.publishes = true
		var mu sync.Mutex
		tried := make(map[string]int)
		var works atomic.Bool
		j.answerID = func(where, id string) error {
			if where != "topic" || works.Load() {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			tried[id]++
			return errTheirs
		}
		j.start(t, handle(func(context.Context, *record) error { return nil }))
		began := time.Now()
		for n := range 100 {
			j.in <- &record{id: fmt.Sprint(n), state: &redeliver.State{ID: fmt.Sprint(n)}}
			synctest.Wait()
		}
		<-time.After(20 * time.Second)
		synctest.Wait()
		if settled, dead := j.all(); len(settled) != 100 || len(dead) > 0 || slices.Contains(j.changes(), "intake paused") {
			t.Errorf("%d settled, %d dead, changes %v, want all to leave their source", len(settled), len(dead), j.changes())
		}
		for _, st := range j.written() {
			if wait := st.Due.Sub(began); wait < 30*time.Second || wait > 45*time.Second || st.Policy != j.sub.Fingerprint() || st.Attempts != 0 {
				t.Errorf("%s is written as %+v, want it to wait for half a minute", st.ID, st)
			}
		}
		if n := tried["0"]; len(tried) != 1 || n < 2 {
			t.Errorf("tried %v, want the first alone, some times", tried)
		}
		failed := events[redeliver.PublishFailed](j)
		if last := failed[len(failed)-1]; last.Retry != 30*time.Second {
			t.Errorf("the last failure reports %+v, want the wait of half a minute", last)
		}
		if n := operationChanges(j); n != [2]int{1, 0} {
			t.Errorf("%v operations are reported to fail and to work again, want one failure", n)
		}
		j.in <- &record{id: "again", state: &redeliver.State{ID: "again"}}
		synctest.Wait()
		if tried["again"] != 1 {
			t.Error("the origin is not tried again")
		}
		j.publishes = false // otherwise it would be published forever
		works.Store(true)
		<-time.After(10 * time.Second)
		synctest.Wait()
		if n := operationChanges(j); n[1] != 1 {
			t.Errorf("%v operations are reported to fail and to work again, want the end of the failure", n)
		}
	})
}

// The origin does not answer for a while. That does not stop the intake either.
func TestAnOriginThatDoesNotAnswerStopsNoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBroker(hourly())
		b.publishes, b.hangs = true, make(chan error)
		b.run(t, handle(func(context.Context, *record) error { return nil }), engine.LaneOptions[*record]{})
		b.in <- &record{id: "later", state: &redeliver.State{ID: "later"}}
		synctest.Wait()
		b.publish("new")
		synctest.Wait()
		if settled, _ := b.all(); !slices.Equal(settled, []string{"new"}) {
			t.Errorf("settled %v, want the new message", settled)
		}
		b.hangs <- nil
		synctest.Wait()
		if settled, _ := b.all(); !slices.Equal(settled, []string{"new", "later"}) {
			t.Errorf("settled %v, want both", settled)
		}
	})
}

// A message that is only passed on also goes to the DLQ if its next place refuses it.
func TestARefusedHopGoesToTheDLQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		j.hops = true
		j.answer = func(_ context.Context, where string, try int) error {
			switch {
			case where == "dlq":
				return nil
			case try < 3:
				return errTheirs
			default:
				return driver.ErrRefused
			}
		}
		j.start(t, failWith(errOurs))
		j.in <- &record{id: "w", state: &redeliver.State{ID: "w", Attempts: 1}}
		<-time.After(time.Minute)
		synctest.Wait()
		j.want(t, "hop", "level refuses", "intake paused", "PublishFailed", "level refuses", "PublishFailed", "level refuses",
			"dlq confirms", "intake resumed", "DeadLettered")
		if st := j.written()[0]; st.Reason != redeliver.ReasonUnschedulable || st.Attempts != 1 {
			t.Errorf("written as %+v", st)
		}
	})
}

// A doubtful error counts as a refusal when other messages are written to the same place between the tries. The intake goes on.
func TestAnUnknownErrorIsARefusalWhileNeighboursAreWritten(t *testing.T) {
	for name, c := range map[string]struct {
		neighbours bool
		refused    bool
	}{"beside others": {true, true}, "alone": {false, false}} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(hourly())
			j.answerID = func(where, id string) error {
				if id == "bad" && where == "level" {
					return fmt.Errorf("%w: code 4711", driver.ErrDoubtful)
				}
				return nil
			}
			j.start(t, failWith(errOurs))
			j.publish("bad")
			for i := range 600 {
				<-time.After(100 * time.Millisecond)
				if c.neighbours {
					j.publish(fmt.Sprint("neighbour ", i))
				}
			}
			synctest.Wait()
			_, dead := j.all()
			st, refused := dead["bad"]
			if refused != c.refused || refused && (st.Reason != redeliver.ReasonUnschedulable || !strings.Contains(st.Error, "code 4711")) {
				t.Errorf("%s: a refusal: %t, written as %+v", name, refused, st)
			}
			if slices.Contains(j.logged(), "intake paused") {
				t.Errorf("%s: the other messages were delayed", name)
			}
		})
	}
}

// Only messages that cannot be written now count as doubtful, not those that were written or refused. While other
// messages are written, several that cannot be written are no outage.
func TestDoubtsEndWithTheirMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		j.sub.MaxInFlight = 1000
		var mu sync.Mutex
		away := true
		j.answerID = func(where, id string) error {
			mu.Lock()
			defer mu.Unlock()
			if where == "level" && (id[:3] == "bad" || away) {
				return fmt.Errorf("%w: code 4711", driver.ErrDoubtful)
			}
			return nil
		}
		j.start(t, failWith(errOurs))
		want := func(when string, closed bool, paused int) {
			t.Helper()
			synctest.Wait()
			n := 0
			for _, c := range j.changes() {
				if c == "intake paused" {
					n++
				}
			}
			if j.sub.Gate.Closed() != closed || n != paused {
				t.Errorf("%s: closed %t, paused %d times; want %t, %d", when, j.sub.Gate.Closed(), n, closed, paused)
			}
		}
		j.publish("bad 1", "good 1")
		<-time.After(time.Minute)
		want("nothing is written", true, 1)
		mu.Lock()
		away = false
		mu.Unlock()
		<-time.After(time.Minute)
		want("the other message is written", false, 1)
		if _, dead := j.all(); len(dead) > 0 {
			t.Errorf("refused without a cause: %v", dead)
		}
		j.publish("good 2") // while nothing is written, two doubtful messages are an outage
		<-time.After(100 * time.Millisecond)
		j.publish("bad 2", "bad 3")
		for i := range 2000 {
			j.publish(fmt.Sprint("good", i))
			<-time.After(50 * time.Millisecond)
		}
		want("others are written", false, 1)
		if _, dead := j.all(); len(dead) != 3 {
			t.Errorf("%d messages are refused, want the three bad ones", len(dead))
		}
		j.publish("bad 4")
		<-time.After(time.Minute)
		want("one alone", false, 1)
	})
}

// If no other message can be written, a doubtful error is an outage.
func TestAnUnknownErrorOfEveryMessageIsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		j.answer = func(context.Context, string, int) error {
			if time.Since(j.begun) < 5*time.Minute {
				return driver.ErrDoubtful
			}
			return nil
		}
		j.start(t, failWith(errOurs))
		j.publish("a")
		<-time.After(time.Minute)
		if j.sub.Gate.Closed() {
			t.Error("the intake is paused although only one message cannot be written")
		}
		j.publish("b")
		<-time.After(time.Minute)
		if !j.sub.Gate.Closed() {
			t.Error("the intake is not paused although nothing can be written")
		}
		<-time.After(4 * time.Minute)
		synctest.Wait()
		if len(events[redeliver.RetryScheduled](j)) != 2 || j.sub.Gate.Closed() {
			t.Errorf("%q, closed %v", j.logged(), j.sub.Gate.Closed())
		}
	})
}

// In an outage a write is tried again after growing pauses, and the intake is paused until the broker answers.
func TestAWriteOutlastsAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage = 40
		j := newJournal(hourly())
		j.answer = func(_ context.Context, _ string, try int) error {
			if shut := j.sub.Gate.Closed(); shut != (try > 1) {
				t.Errorf("try %d: the gate is closed: %v", try, shut)
			}
			if try <= outage {
				return errTheirs
			}
			return nil
		}
		j.start(t, failWith(errOurs))
		j.publish("a")
		<-time.After(30 * time.Minute)
		synctest.Wait()
		failed := events[redeliver.PublishFailed](j)
		if len(failed) != outage || len(j.tries) != outage+1 || j.sub.Gate.Closed() {
			t.Fatalf("%d failures reported, %d tries, closed %v", len(failed), len(j.tries), j.sub.Gate.Closed())
		}
		// A pause is drawn from half to one and a half of 100 ms * 1.5^n, at most 10 s.
		middle := 100 * time.Millisecond
		for i, e := range failed {
			if e.Try != i+1 || e.Where != "level" || !errors.Is(e.Err, errTheirs) || e.State.Attempts != 1 {
				t.Errorf("try %d: %+v", i+1, e)
			}
			if e.Retry < middle/2-1 || e.Retry > middle*3/2+1 {
				t.Errorf("try %d: a pause of %s, want about %s", i+1, e.Retry, middle)
			}
			if pause := j.tries[i+1].Sub(j.tries[i]); pause != e.Retry {
				t.Errorf("try %d: paused for %s, reported %s", i+1, pause, e.Retry)
			}
			middle = min(middle*3/2, 10*time.Second)
		}
		if got := j.changes(); !slices.Equal(got, []string{"intake paused", "intake resumed"}) {
			t.Errorf("want one change for each pause, not one for each try: %q", got)
		}
	})
}

// The gate belongs to all messages that cannot be written, and opens with the last of them.
func TestTheGateOpensWithTheLastMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		up := map[string]time.Duration{"a": time.Minute, "b": 2 * time.Minute}
		j.answerID = func(_, id string) error {
			<-time.After(time.Millisecond) // both have begun before the first answer closes the gate
			if time.Since(j.begun) < up[id] {
				return errTheirs
			}
			return nil
		}
		j.publish("a", "b")
		j.start(t, failWith(errOurs))
		<-time.After(90 * time.Second)
		if len(j.written()) != 1 || !j.sub.Gate.Closed() {
			t.Errorf("%d messages are written; the gate is open while another is not", len(j.written()))
		}
		<-time.After(time.Minute)
		if j.sub.Gate.Closed() {
			t.Error("the gate is closed after the last message was written")
		}
		changes := events[redeliver.SubscriptionChanged](j)
		if len(changes) != 2 || changes[0].Detail != "writing to level" || !errors.Is(changes[0].Err, errTheirs) || changes[1].Err != nil {
			t.Errorf("reported %+v", changes)
		}
	})
}

// A message that is lost while its write fails is not written any more, and opens the gate. One that was lost before its first write
// failed does not close it: otherwise many messages would report a pause each after a lost connection.
func TestALostMessageIsNotWrittenAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		lostAt  time.Duration // 0: in the first write
		changes []string
	}{
		"in a pause":         {10*time.Second + 1, []string{"intake paused", "intake resumed"}},
		"in the first write": {0, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(hourly())
			lose := sync.OnceFunc(func() { close(j.lost) })
			j.answer = func(context.Context, string, int) error {
				if c.lostAt == 0 {
					lose()
					<-time.After(time.Second) // the lane has ended
				}
				return errTheirs
			}
			j.start(t, failWith(errOurs))
			j.publish("a")
			if <-time.After(c.lostAt + 10*time.Second); c.lostAt > 0 {
				lose()
			}
			synctest.Wait()
			tries := len(j.tries)
			<-time.After(time.Hour)
			if len(j.tries) != tries || tries == 0 || len(j.written()) > 0 || j.sub.Gate.Closed() || !slices.Equal(j.changes(), c.changes) {
				t.Errorf("%s: %d tries, then %d, closed %v, changes %q", name, tries, len(j.tries), j.sub.Gate.Closed(), j.changes())
			}
			settled, _ := j.all()
			if lost := events[redeliver.Abandoned](j); len(lost) != 1 || !errors.Is(lost[0].Err, errOurs) || len(settled) > 0 {
				t.Errorf("%s: reported as lost %+v, settled %v", name, lost, settled)
			}
		})
	}
}

// SendTimeout bounds each try. The context of a write is not below the handler's, which has ended.
func TestSendTimeoutBoundsEachTry(t *testing.T) {
	for _, c := range []struct{ set, want time.Duration }{
		{0, engine.DefaultSendTimeout}, {-1, engine.DefaultSendTimeout}, {3 * time.Second, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(hourly())
			j.sub.SendTimeout = c.set
			j.values = context.WithValue(context.Background(), key{}, "value")
			j.answer = func(ctx context.Context, _ string, try int) error {
				began := time.Now()
				if ctx.Value(key{}) != nil || engine.FromContext(ctx) != nil {
					t.Error("the message's context is in the write's")
				}
				if try == 4 {
					return ctx.Err()
				}
				<-ctx.Done()
				if took := time.Since(began); took != c.want || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
					t.Errorf("try %d ended after %s with %v, want %s", try, took, ctx.Err(), c.want)
				}
				return ctx.Err()
			}
			j.start(t, failWith(errOurs))
			j.publish("a")
			<-time.After(30 * time.Minute)
			if len(j.written()) != 1 || len(j.tries) != 4 {
				t.Errorf("%d written after %d tries", len(j.written()), len(j.tries))
			}
		})
	}
}

// Tries that begin within a short time share a context, and are shorter than SendTimeout by at most a 64th.
func TestTriesThatBeginTogetherShareAContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout, tries = 64 * time.Second, 200
		j := newJournal(hourly())
		j.sub.SendTimeout, j.sub.MaxInFlight = timeout, tries
		contexts := make(map[context.Context]bool)
		var mu sync.Mutex
		j.answer = func(ctx context.Context, _ string, _ int) error {
			began := time.Now()
			mu.Lock()
			contexts[ctx] = true
			mu.Unlock()
			<-ctx.Done()
			if took := time.Since(began); took > timeout || took <= timeout-time.Second {
				t.Errorf("a try ended after %s, want %s or up to 1s less", took, timeout)
			}
			return nil
		}
		j.start(t, failWith(errOurs))
		for i := range tries {
			j.publish(fmt.Sprint(i))
			<-time.After(50 * time.Millisecond)
		}
		<-time.After(2 * timeout)
		synctest.Wait()
		if n := len(contexts); n < 10 || n > 11 || len(j.written()) != tries { // 10 s of tries
			t.Errorf("%d contexts for %d tries, %d written", n, tries, len(j.written()))
		}
	})
}

// The gate opens after its event is reported. Otherwise another message could close it while a slow sink handles that event, and
// report that first: then the latest event would say that the gate is open.
func TestChangesAreReportedInTheirOrder(t *testing.T) {
	j := newJournal(hourly())
	failed := make(map[string]bool)
	var mu sync.Mutex
	j.answerID = func(_, id string) error {
		mu.Lock()
		defer mu.Unlock()
		if !failed[id] {
			failed[id] = true
			return errTheirs
		}
		return nil
	}
	resuming, again := make(chan struct{}), make(chan struct{})
	resumed, paused := sync.OnceFunc(func() { close(resuming) }), 0
	var reported []string
	done := make(chan struct{})
	j.sub.Sink = redeliver.SinkFunc(func(e redeliver.Event) {
		c, ok := e.(redeliver.SubscriptionChanged)
		if !ok {
			return
		}
		if c.Change == redeliver.ChangeIntakeResumed {
			resumed()
			select {
			case <-again: // reported before this event, although it happened after it
			case <-time.After(300 * time.Millisecond):
			}
		}
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, string(c.Change))
		if c.Change == redeliver.ChangeIntakePaused {
			if paused++; paused == 2 {
				close(again)
			}
		}
		if len(reported) == 4 {
			close(done)
		}
	})
	j.start(t, failWith(errOurs))
	j.publish("a")
	<-resuming
	j.publish("b")
	<-done
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"intake paused", "intake resumed", "intake paused", "intake resumed"}; !slices.Equal(reported, want) {
		t.Errorf("reported %q, want %q", reported, want)
	}
}

// A subscription needs no sink, and a panic of a sink ends no message.
func TestASinkMayBeMissingOrPanic(t *testing.T) {
	n := 0
	for name, sink := range map[string]redeliver.Sink{"none": nil, "one that panics": redeliver.SinkFunc(func(redeliver.Event) { n++; panic("no disk") })} {
		synctest.Test(t, func(t *testing.T) {
			j := newJournal(hourly())
			j.sub.Sink = sink
			j.answer = func(_ context.Context, _ string, try int) error {
				if try == 1 {
					return errTheirs
				}
				return nil
			}
			j.start(t, failWith(errOurs))
			j.publish("a")
			<-time.After(time.Minute)
			if settled, _ := j.all(); len(settled) != 1 || len(j.written()) != 1 {
				t.Errorf("%s: settled %v, written %v", name, settled, j.written())
			}
		})
	}
	if n != 5 { // Attempted, the pause, PublishFailed, the end of the pause, RetryScheduled
		t.Errorf("the sink got %d events", n)
	}
}

// After the engine has closed, a failure that nothing tries again is no event: the sink may be gone.
func TestAClosedEngineReportsNoOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJournal(hourly())
		stop := j.start(t, handle(func(context.Context, *record) error { return nil }))
		j.sub.Operations.Failed(engine.Operation{Name: "publish", Place: "orders"}, errTheirs, true, false)
		stop()
		<-time.After(time.Hour)
		synctest.Wait()
		if got := j.changes(); !slices.Equal(got, []string{"an operation fails"}) {
			t.Errorf("reported %q, want only the failure", got)
		}
	})
}
