package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

// DeadLetters opens the DLQ of a group as a process of its own would, and returns
// how that process is killed: as [Service.Kill], nothing is released. After a kill
// the claim it had must end by itself, soon.
type DeadLetters func(t testing.TB, origin, group string) (q deadletter.Queue, kill func())

// RunDeadLetters runs the kit of a [deadletter.Queue]: one subtest for each promise.
func RunDeadLetters(t *testing.T, h Harness, open DeadLetters) {
	t.Helper()
	var todo []test
	for _, c := range deadTests() {
		missing := slices.DeleteFunc(strings.Fields(c.needs), h.Features.has)
		if len(missing) > 0 {
			t.Logf("%s makes no promise of %s: %s is not run", h.Name, strings.Join(missing, ", "), c.name)
			continue
		}
		if c.possible != nil && !c.possible(&h) {
			t.Logf("the harness of %s does not say how a DLQ is read: %s is not run", h.Name, c.name)
			continue
		}
		todo = append(todo, test{name: c.name, groups: c.groups, body: func(b *bench) {
			c.body(&morgue{bench: b, open: open, mended: make(chan struct{})})
		}})
	}
	play(t, h, todo)
}

type deadTest struct {
	name   string
	body   func(*morgue)
	needs  string
	groups int
	// possible is that of test.
	possible func(*Harness) bool
}

func deadTests() []deadTest {
	return slices.Concat(looks(), replaying(), dying(), changing(), consuming())
}

// morgue is a bench with dead letters.
type morgue struct {
	*bench
	open   DeadLetters
	mended chan struct{} // closed when the handler shall succeed
}

// queue opens the DLQ; the end of the test closes it.
func (d *morgue) queue() deadletter.Queue {
	d.Helper()
	q, _ := d.openOne()
	return q
}

func (d *morgue) openOne() (q deadletter.Queue, kill func()) {
	d.Helper()
	q, kill = d.open(d.T, d.origin, d.group)
	d.Cleanup(func() { _ = q.Close() }) // it may have been killed
	return q, kill
}

// die makes dead letters of messages: the handler fails each with the error that
// why says, until mend is called.
func (d *morgue) die(why func(id string) error, msgs ...Message) {
	d.Helper()
	d.start(Config{Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}, func(a *attempt) error {
		select {
		case <-d.mended:
			return nil
		default:
			return why(a.State.ID)
		}
	})
	d.put(msgs...)
	awaitEvents[redeliver.DeadLettered](d.bench, len(msgs))
}

func declined(string) error { return errDeclined }

func (d *morgue) mend() { close(d.mended) }

// lie returns the ids of what lies in the DLQ, sorted.
func (d *morgue) lie(q deadletter.Queue) (ids []string) {
	d.Helper()
	for _, m := range d.browse(q, deadletter.Filter{}) {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}

// empty checks that nothing lies in the DLQ.
func (d *morgue) empty(q deadletter.Queue) {
	d.Helper()
	if got := d.lie(q); len(got) > 0 {
		d.Errorf("%q still lie in the DLQ", got)
	}
}

// replayedOnce checks that messages, of which each had an attempt before, were replayed and left the DLQ, and at most so many
// twice.
func (d *morgue) replayedOnce(q deadletter.Queue, twice int, ids ...string) {
	d.Helper()
	d.awaitCommits(ids...)
	d.empty(q)
	if again := d.runsAbove(2, ids); again > twice {
		d.Errorf("%d messages were replayed twice, want at most %d", again, twice)
	}
}

// runsAbove counts the attempts of messages above so many of each. What was sent twice may still be on its way; what is
// behind it shows that it is not.
func (d *morgue) runsAbove(each int, ids []string) (n int) {
	d.Helper()
	last := fmt.Sprint(lastID, len(d.all()))
	d.put(named(last)...)
	d.awaitCommits(last)
	for _, id := range ids {
		n += len(d.ran(id)) - each
	}
	return n
}

func (d *morgue) browse(q deadletter.Queue, f deadletter.Filter) (found []*deadletter.Message) {
	d.Helper()
	ctx := d.patience()
	if err := deadletter.Browse(ctx, q, f, 0, func(m *deadletter.Message) bool {
		found = append(found, m)
		return true
	}); err != nil {
		d.Fatalf("browsing: %v", err)
	}
	return found
}

// patience is a context for one wait.
func (d *morgue) patience() context.Context {
	ctx, cancel := context.WithTimeout(d.Context(), Timeout)
	d.Cleanup(cancel)
	return ctx
}

// order is a replay of everything.
func order() deadletter.Replay {
	return deadletter.Replay{Who: "ann@ops", Why: "the bank is back", Window: 10}
}

// replayed runs a replay that must end well.
func (d *morgue) replayed(q deadletter.Queue, r deadletter.Replay) deadletter.Task {
	d.Helper()
	ctx := d.patience()
	t, err := deadletter.Run(ctx, q, r)
	if err != nil || t.Status != deadletter.StatusDone {
		d.Fatalf("the replay ended as %s (%s): %v", t.Status, t.Note, err)
	}
	return t
}

// claimed takes the DLQ as soon as whoever had it is gone.
func (d *morgue) claimed(q deadletter.Queue) {
	d.Helper()
	d.retried("the claim of a killed process ends", func(ctx context.Context) error {
		c, err := q.Claim(ctx, deadletter.Holder{Who: "ben@ops", Task: "none"})
		if err != nil {
			return err
		}
		return c.Release(ctx)
	})
}

// retried does something until it is not held up by another's claim.
func (d *morgue) retried(what string, do func(context.Context) error) {
	d.Helper()
	ctx := d.patience()
	every := 500 * time.Millisecond
	if d.h.Wrap != nil { // a lease takes no time where time is virtual, but each try does
		every = 3 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil {
			return
		}
		if !errors.Is(err, deadletter.ErrHeld) {
			d.Fatalf("%s: %v", what, err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			d.Fatalf("not within %s: %s: %v", Timeout, what, err)
		}
	}
}

// looks: what is seen is what lies there.
func looks() []deadTest {
	return []deadTest{
		{name: "ADeadLetterIsSeenAsItWasPublished", body: seenAsItWas},
		{name: "DeadLettersAreGroupedByCause", body: grouped},
		{name: "TheOldestIsKnownWithoutALookWhereItIsTold", body: aged},
		{name: "LookingTakesNothingOut", body: func(d *morgue) {
			msgs, ids := many(5)
			d.die(declined, msgs...)
			q := d.queue()
			for range 3 {
				if got := d.lie(q); !slices.Equal(got, ids) {
					d.Fatalf("the DLQ has %q, want %q", got, ids)
				}
			}
			if n, exact, err := q.Count(d.Context()); err != nil || exact && n != 5 {
				d.Errorf("the DLQ counts %d messages, want 5: %v", n, err)
			}
		}},
	}
}

func seenAsItWas(d *morgue) {
	msg := Message{ID: "a", Body: []byte("{\"n\": 12345678901234567890}"), Headers: []Header{{"tenant", []byte("acme")}, {"trace", []byte("t-1")}}}
	if d.h.Features.KeyOrder {
		msg.Key = []byte("k\x00\xff")
	}
	if d.h.Features.BinaryHeaders {
		msg.Headers = append(msg.Headers, Header{"raw", []byte{0, 0xff, 0x80}})
	}
	if d.h.Features.DuplicateHeaders {
		msg.Headers = append(msg.Headers, Header{"tenant", []byte("again")})
	}
	d.die(declined, msg)
	got := d.browse(d.queue(), deadletter.Filter{IDs: []string{"a"}})
	if len(got) != 1 {
		d.Fatalf("%d messages have the id a, want 1", len(got))
	}
	m := got[0]
	d.same("the dead letter", plain(m, msg.ID), msg)
	if st := m.State; st.Reason != redeliver.ReasonExhausted || st.Attempts != 1 || st.Group != d.group || st.Origin != d.origin ||
		st.Error != errDeclined.Error() || st.LastFailed.IsZero() || m.Mismatch != "" || m.Writer != deadletter.WriterRedeliver || len(m.Findings) > 0 {
		d.Errorf("the dead letter says %+v, %q, %v", st, m.Mismatch, m.Findings)
	}
}

// plain is a dead letter as the kit's other clients see it. The header that
// carries the id is no header of the user's.
func plain(m *deadletter.Message, id string) Message {
	p := Message{ID: m.ID, Key: m.Key, Body: m.Body}
	for _, h := range m.Headers {
		if string(h.Value) != id || !strings.Contains(h.Name, "uuid") {
			p.Headers = append(p.Headers, Header(h))
		}
	}
	return p
}

func grouped(d *morgue) {
	msgs, _ := many(9)
	d.die(func(id string) error {
		if id < "m-003" {
			return errors.New("no such account: " + strings.TrimPrefix(id, "m-"))
		}
		return errDeclined
	}, msgs...)
	sum, err := deadletter.Groups(d.Context(), d.queue(), deadletter.Filter{})
	if err != nil {
		d.Fatal(err)
	}
	if len(sum.Groups) != 2 || sum.Groups[0].Count != 6 || sum.Groups[1].Count != 3 || sum.Scanned != 9 || sum.Matched != 9 {
		d.Errorf("the groups are %+v", sum)
	}
}
