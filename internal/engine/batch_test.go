package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

type members = []*engine.BatchMember[*record]

// batchRecorder records the batches that a function gets before it calls fn.
type batchRecorder struct {
	mu  sync.Mutex
	all []string
}

func (bs *batchRecorder) options(c redeliver.BatchConfig, fn func(b *engine.Batch, all members) error) engine.Options[*record] {
	return engine.Options[*record]{BatchConfig: c.WithDefaults(), Batch: func(b *engine.Batch, all members) error {
		var ids []string
		for _, m := range all {
			ids = append(ids, m.Record.id)
		}
		bs.mu.Lock()
		bs.all = append(bs.all, strings.Join(ids, " "))
		bs.mu.Unlock()
		if fn == nil {
			return nil
		}
		return fn(b, all)
	}}
}

// take returns the batches since its last call.
func (bs *batchRecorder) take() []string {
	synctest.Wait()
	bs.mu.Lock()
	defer bs.mu.Unlock()
	all := bs.all
	bs.all = nil
	return all
}

// A batch is full when it reaches its size or its bytes, and never exceeds either. A suspect forms its own batch at
// once, beside the messages that are gathered.
func TestABatchIsFullBySizeOrBytes(t *testing.T) {
	type step struct {
		after time.Duration
		id    string
		want  []string // the batches that have run since
	}
	for name, c := range map[string]struct {
		config redeliver.BatchConfig
		steps  []step
	}{
		"suspects": {redeliver.BatchConfig{Size: 3, Timeout: time.Minute}, []step{
			{0, "a", nil}, {0, "suspect", []string{"suspect"}}, {0, "suspect 2", []string{"suspect 2"}},
			{0, "b", nil}, {0, "c", []string{"a b c"}}, {0, "d", nil}, {0, "e", nil},
			{59 * time.Second, "suspect 3", []string{"suspect 3"}}, {2 * time.Second, "suspect 4", []string{"d e", "suspect 4"}},
		}},
		"bytes": {redeliver.BatchConfig{Size: 9, Bytes: 6, Timeout: time.Hour}, []step{
			{0, "abc", nil}, {0, "def", []string{"abc def"}}, // just as many
			{0, "ab", nil}, {0, "cd", nil}, {0, "efg", []string{"ab cd"}}, // more: the last one is the next batch's
			{0, "hij", []string{"efg hij"}}, {0, "much too long", []string{"much too long"}},
		}},
		"no wait": {redeliver.BatchConfig{Size: 9, Timeout: redeliver.NoWait}, []step{{0, "a", []string{"a"}}, {0, "b", []string{"b"}}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			j, bs := newJournal(hourly()), &batchRecorder{}
			j.alone = func(id string) bool { return strings.HasPrefix(id, "suspect") }
			j.start(t, bs.options(c.config, nil))
			for _, s := range c.steps {
				<-time.After(s.after)
				j.in <- &record{id: s.id, body: []byte(s.id)}
				if got := bs.take(); !slices.Equal(got, s.want) {
					t.Errorf("%s: with %s: batches %q, want %q", name, s.id, got, s.want)
				}
			}
		})
	}
}

// A suspect that waits for the client's turn keeps other messages from joining a batch, so the batch does not wait for
// more. Otherwise the suspect would wait for the Timeout, and with it the whole client.
func TestABatchDoesNotWaitWhileASuspectWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(hourly()), &batchRecorder{}
		j.sub.Turn = engine.NewTurn()
		j.start(t, bs.options(redeliver.BatchConfig{Size: 3, Timeout: time.Hour}, nil))
		j.in <- &record{id: "a"}
		if got := bs.take(); got != nil {
			t.Fatalf("batches %q ran before the suspect came", got)
		}
		asked := time.Now()
		if !j.sub.Turn.Take(t.Context(), &j.sub.Gate) {
			t.Fatal("the suspect got no turn")
		}
		if waited := time.Since(asked); waited > time.Second {
			t.Errorf("the suspect waited %v", waited)
		}
		j.sub.Turn.Give()
		if got := bs.take(); !slices.Equal(got, []string{"a"}) {
			t.Errorf("batches %q", got)
		}
	})
}

// An immediate retry joins the next batch for retries, which is smaller. A late answer to the first attempt does not count.
func TestAnImmediateRetryJoinsASmallerBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(redeliver.Policy{Immediate: 1, Timeout: time.Minute}), &batchRecorder{}
		var first *engine.BatchMember[*record]
		j.start(t, bs.options(redeliver.BatchConfig{Size: 2}, func(_ *engine.Batch, all members) error {
			for _, m := range all {
				switch {
				case m.Record.id != "b":
				case first == nil:
					if first = m; !m.Answer(errOurs) {
						t.Error("the first answer does not count")
					}
				case m.State().Attempts != 1 || first.Answer(nil):
					t.Errorf("it runs as %+v, or the first attempt's answer counts for it", m.State())
				}
			}
			return nil
		}))
		for _, id := range []string{"a", "b"} {
			j.publish(id)
			synctest.Wait()
		}
		if got := bs.take(); !slices.Equal(got, []string{"a b", "b"}) || len(j.written()) > 0 || len(j.settled) != 2 {
			t.Errorf("batches %q, written %v, settled %v", got, j.written(), j.settled)
		}
	})
}

// An invalid message goes to the DLQ and is in no batch.
func TestAnInvalidMessageIsInNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(redeliver.Policy{Invalid: func(m redeliver.Message) error {
			switch string(m.Body) {
			case "old":
				return errOurs
			case "odd":
				panic("ours")
			}
			return nil
		}}), &batchRecorder{}
		j.start(t, bs.options(redeliver.BatchConfig{Size: 2}, nil))
		for _, id := range []string{"old", "odd", "fine", "too"} {
			j.in <- &record{id: id, body: []byte(id)}
			synctest.Wait()
		}
		if got := bs.take(); !slices.Equal(got, []string{"fine too"}) {
			t.Errorf("batches %q", got)
		}
		for _, st := range j.written() {
			if st.Reason != redeliver.ReasonInvalidated || st.Attempts != 0 {
				t.Errorf("in the DLQ as %+v", st)
			}
		}
		if len(j.written()) != 2 || len(j.settled) != 4 {
			t.Errorf("written %v, settled %v", j.written(), j.settled)
		}
	})
}

// The messages of a batch function that panics or calls runtime.Goexit fail with an error that says so.
func TestABatchFailsIfItsFunctionDoesNotReturn(t *testing.T) {
	for want, end := range map[string]func(){
		"no such table": func() { panic("no such table") }, "runtime.Goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			j, bs := newJournal(hourly()), &batchRecorder{}
			j.start(t, bs.options(redeliver.BatchConfig{Size: 1}, func(*engine.Batch, members) error { end(); return nil }))
			j.publish("a", "b")
			synctest.Wait()
			if wrote := j.written(); len(wrote) != 2 || !strings.Contains(wrote[0].Error, want) { // and the next one runs
				t.Errorf("%s: written as %+v", want, wrote)
			}
		})
	}
}

// When the Timeout of a batch is over after AckAll, the messages without an answer are acked. A function that hangs delays the next
// batch for a second.
func TestABatchThatTimesOutAfterAckAllIsAcked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(redeliver.Policy{Timeout: time.Minute, Backoff: redeliver.Fixed(24 * time.Hour)}), &batchRecorder{}
		release := make(chan struct{})
		j.start(t, bs.options(redeliver.BatchConfig{Size: 2}, func(b *engine.Batch, all members) error {
			if all[0].Record.id != "a" {
				return nil
			}
			all[0].Answer(errOurs)
			b.Answer(nil)
			<-release
			return errOurs
		}))
		for _, id := range []string{"a", "b", "c", "d"} {
			j.publish(id)
			synctest.Wait()
		}
		<-time.After(61*time.Second - 1)
		if got := bs.take(); !slices.Equal(got, []string{"a b"}) {
			t.Errorf("batches %q", got)
		}
		<-time.After(1)
		if got := bs.take(); !slices.Equal(got, []string{"c d"}) {
			t.Errorf("batches %q after one that hangs", got)
		}
		if wrote := j.written(); len(wrote) != 1 || wrote[0].ID != "a" || len(j.settled) != 4 || len(events[redeliver.Committed](j)) != 3 {
			t.Errorf("written %v, settled %v", wrote, j.settled)
		}
		if n := len(events[redeliver.HandlerStuck](j)); n != 1 {
			t.Errorf("%d handlers are stuck, want only that of the message without an answer", n)
		}
		close(release)
		synctest.Wait()
		if n := len(events[redeliver.LateAnswer](j)); n != 1 {
			t.Errorf("%d late answers", n)
		}
	})
}

// With OrderBlocking the context of a batch function ends at its timeout, and the function has a moment to return. Its
// messages run again in place, as after a timeout.
func TestABatchThatTimesOutInBlockingOrderRunsAgainInPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j, bs := newJournal(redeliver.Policy{Timeout: time.Minute, Backoff: redeliver.Fixed(20 * time.Second)}), &batchRecorder{}
		j.sub.KeepsPlace = true
		var began []time.Duration
		j.start(t, bs.options(redeliver.BatchConfig{Size: 1}, func(b *engine.Batch, _ members) error {
			if began = append(began, time.Since(j.begun)); len(began) > 1 {
				return nil
			}
			<-b.Done()
			if !errors.Is(b.Err(), context.DeadlineExceeded) {
				t.Error(b.Err())
			}
			return b.Err()
		}))
		j.publish("a")
		<-time.After(time.Hour)
		synctest.Wait()
		if want := []time.Duration{0, 80 * time.Second}; !slices.Equal(began, want) || len(j.settled) != 1 || len(j.written()) > 0 {
			t.Errorf("it ran at %v, want %v; settled %v, written %v", began, want, j.settled, j.written())
		}
		if a := events[redeliver.Attempted](j); len(a) != 2 || !errors.Is(a[0].Err, redeliver.ErrTimeout) {
			t.Errorf("attempts %+v", a)
		}
	})
}

// A message that is lost while it waits for its batch had no attempt.
func TestALostMessageInNoBatchHadNoAttempt(t *testing.T) {
	for name, lose := range map[string]func(j *journal){
		"its source": func(j *journal) { close(j.lost) },
		"only it":    func(j *journal) { j.abandonAll() },
	} {
		synctest.Test(t, func(t *testing.T) {
			j, bs := newJournal(hourly()), &batchRecorder{}
			j.start(t, bs.options(redeliver.BatchConfig{Size: 2, Timeout: time.Hour}, nil))
			j.publish("a")
			synctest.Wait()
			lose(j)
			<-time.After(time.Second)
			if got := bs.take(); len(got) > 0 {
				t.Errorf("lost with %s: batches %q", name, got)
			}
			if a, lost := events[redeliver.Attempted](j), events[redeliver.Abandoned](j); len(a) > 0 || len(lost) != 1 {
				t.Errorf("lost with %s: attempts %+v, abandoned %+v", name, a, lost)
			}
		})
	}
}

// The context of a batch ends with the last of the lanes of its messages. No attempt of a lost message is counted, and the message
// is not in the next batch.
func TestABatchEndsWithTheLastOfItsLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, bs := newJournal(hourly()), &batchRecorder{}
		two := &journal{broker: newBroker(hourly())}
		var cause error
		opt := bs.options(redeliver.BatchConfig{Size: 5}, func(b *engine.Batch, _ members) error {
			<-b.Done()
			cause = context.Cause(b)
			return b.Err()
		})
		opt.Sub, opt.Codec, opt.Store = one.sub, one, one
		e := engine.New(opt)
		var all sync.WaitGroup
		for _, j := range []*journal{one, two} {
			all.Go(func() {
				e.RunLane(t.Context(), context.Background(), j.broker, engine.LaneOptions[*record]{DrainTimeout: time.Second}, nil)
			})
		}
		for i, j := range []*journal{one, two, one, two, two} {
			j.publish(fmt.Sprint(i))
			synctest.Wait()
		}
		close(two.lost)
		synctest.Wait()
		if cause != nil || !slices.Equal(bs.take(), []string{"0 1 2 3 4"}) {
			t.Errorf("the context ended with %v before all messages were lost", cause)
		}
		close(one.lost)
		all.Wait()
		e.Close()
		synctest.Wait()
		if !errors.Is(cause, engine.ErrLost) || len(one.written()) > 0 {
			t.Errorf("it ended with %v, written %v", cause, one.written())
		}
	})
}
