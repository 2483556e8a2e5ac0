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

// DeadLetters opens the DLQ of a group as a separate process would. kill has the effect of SIGKILL on that process, as
// [Service.Kill] has: nothing is released, and its claim expires soon.
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
		todo = append(todo, test{name: c.name, groups: c.groups, body: func(b *fixture) {
			c.body(&dlqFixture{fixture: b, open: open, fixed: make(chan struct{})})
		}})
	}
	runEach(t, h, todo)
}

type deadTest struct {
	name   string
	body   func(*dlqFixture)
	needs  string
	groups int
	// See test.possible.
	possible func(*Harness) bool
}

func deadTests() []deadTest {
	return slices.Concat(browsing(), replaying(), killedRunners(), changing(), consuming())
}

// dlqFixture is a fixture with dead letters.
type dlqFixture struct {
	*fixture
	open  DeadLetters
	fixed chan struct{} // closed when the handler should succeed
}

// queue opens the DLQ. The end of the test closes it.
func (d *dlqFixture) queue() deadletter.Queue {
	d.Helper()
	q, _ := d.openOne()
	return q
}

func (d *dlqFixture) openOne() (q deadletter.Queue, kill func()) {
	d.Helper()
	q, kill = d.open(d.T, d.origin, d.group)
	d.Cleanup(func() { _ = q.Close() }) // it may have been killed
	return q, kill
}

// makeDeadLetters makes dead letters: the handler fails each message with the error that why returns, until
// fixHandler is called.
func (d *dlqFixture) makeDeadLetters(why func(id string) error, msgs ...Message) {
	d.Helper()
	d.start(Config{Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}, func(a *attempt) error {
		select {
		case <-d.fixed:
			return nil
		default:
			return why(a.State.ID)
		}
	})
	d.put(msgs...)
	awaitEvents[redeliver.DeadLettered](d.fixture, len(msgs))
}

func failAlways(string) error { return errHandler }

func (d *dlqFixture) fixHandler() { close(d.fixed) }

// idsInDLQ returns the sorted ids of the messages in the DLQ.
func (d *dlqFixture) idsInDLQ(q deadletter.Queue) (ids []string) {
	d.Helper()
	for _, m := range d.browse(q, deadletter.Filter{}) {
		ids = append(ids, m.ID)
	}
	slices.Sort(ids)
	return ids
}

// wantEmpty checks that the DLQ is empty.
func (d *dlqFixture) wantEmpty(q deadletter.Queue) {
	d.Helper()
	if got := d.idsInDLQ(q); len(got) > 0 {
		d.Errorf("%q are still in the DLQ", got)
	}
}

// replayedOnce checks that messages, each with one attempt before, were replayed and have left the DLQ. twice bounds
// how many of them may have run twice.
func (d *dlqFixture) replayedOnce(q deadletter.Queue, twice int, ids ...string) {
	d.Helper()
	d.awaitCommits(ids...)
	d.wantEmpty(q)
	if again := d.runsAbove(2, ids); again > twice {
		d.Errorf("%d messages were replayed twice, want at most %d", again, twice)
	}
}

// runsAbove returns how many attempts were too many. each is the limit per message. It first waits for a later message,
// because duplicates come before it.
func (d *dlqFixture) runsAbove(each int, ids []string) (n int) {
	d.Helper()
	last := fmt.Sprint(lastID, len(d.all()))
	d.put(namedMessages(last)...)
	d.awaitCommits(last)
	for _, id := range ids {
		n += len(d.ran(id)) - each
	}
	return n
}

func (d *dlqFixture) browse(q deadletter.Queue, f deadletter.Filter) (found []*deadletter.Message) {
	d.Helper()
	ctx := d.withTimeout()
	for m, err := range deadletter.Browse(ctx, q, f) {
		if err != nil {
			d.Fatalf("browsing: %v", err)
		}
		found = append(found, m)
	}
	return found
}

// withTimeout returns a context for one wait.
func (d *dlqFixture) withTimeout() context.Context {
	ctx, cancel := context.WithTimeout(d.Context(), Timeout)
	d.Cleanup(cancel)
	return ctx
}

// newReplay returns a replay of everything.
func newReplay() deadletter.ReplayOptions {
	return deadletter.ReplayOptions{Who: "ann@ops", Why: "the bank is back", Window: 10}
}

// runReplay runs a replay that must succeed.
func (d *dlqFixture) runReplay(q deadletter.Queue, r deadletter.ReplayOptions) deadletter.Task {
	d.Helper()
	ctx := d.withTimeout()
	t, err := deadletter.Replay(ctx, q, r)
	if err != nil || t.Status != deadletter.StatusDone {
		d.Fatalf("the replay ended as %s (%s): %v", t.Status, t.Note, err)
	}
	return t
}

// awaitClaim waits until no process holds the claim of the DLQ.
func (d *dlqFixture) awaitClaim(q deadletter.Queue) {
	d.Helper()
	d.retryWhileHeld("the claim of a killed process ends", func(ctx context.Context) error {
		c, err := q.Claim(ctx, deadletter.Holder{Who: "ben@ops", Task: "none"})
		if err != nil {
			return err
		}
		return c.Release(ctx)
	})
}

// retryWhileHeld repeats do while another process holds the claim.
func (d *dlqFixture) retryWhileHeld(what string, do func(context.Context) error) {
	d.Helper()
	ctx := d.withTimeout()
	every := 500 * time.Millisecond
	if d.h.Wrap != nil { // virtual time: waiting costs nothing, but each try does
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

// browsing tests that a DLQ shows its messages.
func browsing() []deadTest {
	return []deadTest{
		{name: "ADeadLetterIsSeenAsItWasPublished", body: publishedMessage},
		{name: "DeadLettersAreGroupedByCause", body: grouped},
		{name: "OldestNeedsNoScanIfTheBrokerReportsIt", body: aged},
		{name: "BrowsingRemovesNothing", body: func(d *dlqFixture) {
			msgs, ids := numberedMessages(5)
			d.makeDeadLetters(failAlways, msgs...)
			q := d.queue()
			for range 3 {
				if got := d.idsInDLQ(q); !slices.Equal(got, ids) {
					d.Fatalf("the DLQ has %q, want %q", got, ids)
				}
			}
			if n, exact, err := q.Count(d.Context()); err != nil || exact && n != 5 {
				d.Errorf("the DLQ counts %d messages, want 5: %v", n, err)
			}
		}},
	}
}

func publishedMessage(d *dlqFixture) {
	msg := Message{ID: "a", Body: []byte("{\"n\": 12345678901234567890}"), Headers: []Header{{"tenant", []byte("acme")}, {"trace", []byte("t-1")}}}
	if d.h.Features.OrderFirstAttempts {
		msg.Key = []byte("k\x00\xff")
	}
	if d.h.Features.BinaryHeaders {
		msg.Headers = append(msg.Headers, Header{"raw", []byte{0, 0xff, 0x80}})
	}
	if d.h.Features.DuplicateHeaders {
		msg.Headers = append(msg.Headers, Header{"tenant", []byte("again")})
	}
	d.makeDeadLetters(failAlways, msg)
	got := d.browse(d.queue(), deadletter.Filter{IDs: []string{"a"}})
	if len(got) != 1 {
		d.Fatalf("%d messages have the id a, want 1", len(got))
	}
	m := got[0]
	d.checkSame("the dead letter", plainMessage(m, msg.ID), msg)
	if st := m.State; st.Reason != redeliver.ReasonExhausted || st.Attempts != 1 || st.Group != d.group || st.Origin != d.origin ||
		st.Error != errHandler.Error() || st.LastFailed.IsZero() || m.Mismatch != "" || m.Writer != deadletter.WriterRedeliver || len(m.Findings) > 0 {
		d.Errorf("the dead letter says %+v, %q, %v", st, m.Mismatch, m.Findings)
	}
}

// plainMessage returns a dead letter as the kit's other clients see it, without the header that carries the id.
func plainMessage(m *deadletter.Message, id string) Message {
	p := Message{ID: m.ID, Key: m.Key, Body: m.Body}
	for _, h := range m.Headers {
		if string(h.Value) != id || !strings.Contains(h.Name, "uuid") {
			p.Headers = append(p.Headers, Header(h))
		}
	}
	return p
}

func grouped(d *dlqFixture) {
	msgs, _ := numberedMessages(9)
	d.makeDeadLetters(func(id string) error {
		if id < "m-003" {
			return errors.New("no such account: " + strings.TrimPrefix(id, "m-"))
		}
		return errHandler
	}, msgs...)
	sum, err := deadletter.Groups(d.Context(), d.queue(), deadletter.Filter{})
	if err != nil {
		d.Fatal(err)
	}
	if len(sum.Groups) != 2 || sum.Groups[0].Count != 6 || sum.Groups[1].Count != 3 || sum.Scanned != 9 || sum.Matched != 9 {
		d.Errorf("the groups are %+v", sum)
	}
}
