package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
)

// RunDeadLetterKills kills a runner between any two calls of its driver: for each call of a replay and of a purge,
// once before it and once after it. Another runner resumes. Nothing is lost, at most a window is sent twice, and the
// task counts each message once. The DLQ must be one of [driver.New].
func RunDeadLetterKills(t *testing.T, h Harness, open DeadLetters) {
	t.Helper()
	var todo []test
	for name, kind := range map[string]deadletter.Kind{
		"AReplayThatIsKilledAnywhereIsFinishedAndCounted": deadletter.KindReplay,
		"APurgeThatIsKilledAnywhereIsFinishedAndCounted":  deadletter.KindPurge,
	} {
		todo = append(todo, test{name: name, body: func(b *fixture) {
			killsAll(&dlqFixture{fixture: b, open: open}, kind)
		}})
	}
	runEach(t, h, todo)
}

const (
	killMessages = 5
	killWindow   = 2
	lastID       = "last-" // prefix of the ids of messages that succeed at once
)

func killsAll(d *dlqFixture, kind deadletter.Kind) {
	d.start(Config{Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}}, func(a *attempt) error {
		if a.State.Replays == 0 && !strings.HasPrefix(a.State.ID, lastID) {
			return errHandler
		}
		return nil
	})
	dead := 0
	for call, survived := 1, false; !survived; call++ {
		for _, behind := range []bool{false, true} {
			ids := make([]string, killMessages)
			for i := range ids {
				ids[i] = fmt.Sprintf("%s-%03d-%t-%d", kind, call, behind, i)
			}
			d.put(namedMessages(ids...)...)
			dead += len(ids)
			awaitEvents[redeliver.DeadLettered](d.fixture, dead)
			survived = d.killedAt(kind, call, behind, ids)
		}
	}
}

// killedAt kills a task at one call of its driver and resumes it. survived is true if there are fewer calls.
func (d *dlqFixture) killedAt(kind deadletter.Kind, call int, behind bool, ids []string) (survived bool) {
	d.Helper()
	where := fmt.Sprintf("killed at call %d (behind it: %t)", call, behind)
	m := &killableDriver{left: call, after: behind}
	q := d.killableQueue(m)
	ctx := d.withTimeout()
	task := func(q deadletter.Queue) (deadletter.Task, error) {
		if kind == deadletter.KindPurge {
			return deadletter.Purge(ctx, q, deadletter.PurgeOptions{Who: "ann@ops", Why: "kills", Everything: true, Window: killWindow})
		}
		r := newReplay()
		r.Window = killWindow
		return deadletter.Replay(ctx, q, r)
	}
	t, err := task(q)
	if survived = !m.dead; survived && call == 1 {
		d.Fatalf("the task makes no call of the driver: is the DLQ one of driver.New?")
	}
	next, kills := d.queue(), 0
	for m.dead && kills == 0 || errors.Is(err, deadletter.ErrClaimLost) { // a claim also expires when the broker stalls
		kills++
		d.awaitClaim(next)
		t, err = d.takenOver(ctx, next, t.ID, task)
	}
	if err != nil {
		d.Fatalf("%s, and %d runners after it: the task ended as %s (%s): %v", where, kills, t.Status, t.Note, err)
	}
	if n := t.Counts.Replayed + t.Counts.Purged; t.Status != deadletter.StatusDone || n != int64(len(ids)) {
		d.Errorf("%s in %s: the task is %s (%s) and counts %d, want %d", where, m.at, t.Status, t.Note, n, len(ids))
	}
	d.wantEmpty(next)
	runs := 1
	if kind == deadletter.KindReplay {
		d.awaitCommits(ids...)
		runs = 2
	}
	if again := d.runsAbove(runs, ids); again > kills*killWindow || kind == deadletter.KindPurge && again > 0 {
		d.Errorf("%s in %s: %d messages were replayed twice, want at most a window of %d for each of %d kills", where, m.at, again, killWindow, kills)
	}
	_ = errors.Join(q.Close(), next.Close()) // one may have been killed
	return survived
}

// takenOver resumes a task. If the task was not recorded before its runner was killed, takenOver calls task to begin it again.
func (d *dlqFixture) takenOver(ctx context.Context, q deadletter.Queue, id string, task func(deadletter.Queue) (deadletter.Task, error)) (deadletter.Task, error) {
	d.Helper()
	all, err := deadletter.History(ctx, q)
	if err != nil {
		d.Fatalf("the history: %v", err)
	}
	at := slices.IndexFunc(all, func(t deadletter.Task) bool { return t.ID == id })
	switch {
	case at < 0:
		return task(q)
	case all[at].Status == deadletter.StatusDone: // the runner died when everything was done
		return all[at], nil
	default:
		return deadletter.Resume(ctx, q, id, deadletter.ResumeOptions{Who: "ben@ops"})
	}
}

var errKilled = errors.New("the runner was killed")

// Names of driver calls that tests use.
const (
	callWrite  = "Write"
	callRemove = "Remove (messages)"
)

// killableQueue opens the DLQ as a separate process, which m kills.
func (d *dlqFixture) killableQueue(m *killableDriver) deadletter.Queue {
	d.Helper()
	q, kill := d.openOne()
	m.kill = kill
	return m.over(q)
}

func (m *killableDriver) over(q deadletter.Queue) deadletter.Queue {
	return driver.Wrap(q, func(inner driver.DLQ) driver.DLQ { return killableDLQ{inner, m} })
}

// killableDriver counts the calls of a driver, or only those with one name, and kills its process at one of them.
type killableDriver struct {
	only  string
	left  int
	after bool
	kill  func()
	lives bool // the process continues after that call
	dead  bool
	at    string // the name of that call
}

// call makes one call of the driver if its process is alive.
func (m *killableDriver) call(name string, do func() error) error {
	switch {
	case m.dead:
		return errKilled
	case m.only != "" && m.only != name:
		return do()
	}
	m.left--
	if m.left == 0 && !m.after {
		if err := m.die(name); err != nil {
			return err
		}
	}
	err := do()
	if m.left == 0 && m.after {
		return m.die(name)
	}
	return err
}

func (m *killableDriver) die(name string) error {
	m.dead, m.at = !m.lives, name
	m.kill()
	if m.lives {
		return nil
	}
	return errKilled
}

type killableDLQ struct {
	driver.DLQ
	m *killableDriver
}

func (q killableDLQ) Connect(ctx context.Context) (s driver.Session, err error) {
	err = q.m.call("Connect", func() (err error) {
		s, err = q.DLQ.Connect(ctx)
		return err
	})
	return killableSession{s, q.m}, err
}

func (q killableDLQ) Load(ctx context.Context) (s driver.State, err error) {
	err = q.m.call("Load", func() (err error) {
		s, err = q.DLQ.Load(ctx)
		return err
	})
	return s, err
}

func (q killableDLQ) Append(ctx context.Context, entries ...driver.Entry) error {
	return q.m.call("Append", func() error { return q.DLQ.Append(ctx, entries...) })
}

type killableSession struct {
	driver.Session
	m *killableDriver
}

func (s killableSession) Lock(ctx context.Context, lock string, h deadletter.Holder) error {
	return s.m.call("Lock "+lock, func() error { return s.Session.Lock(ctx, lock, h) })
}

func (s killableSession) Open(ctx context.Context, from deadletter.From) (r driver.Reader, err error) {
	err = s.m.call("Open", func() (err error) {
		r, err = s.Session.Open(ctx, from)
		return err
	})
	return killableReader{r, s.m}, err
}

func (s killableSession) Write(ctx context.Context, to driver.Destination, msgs []*deadletter.Message) (errs []error) {
	if err := s.m.call(callWrite, func() error {
		errs = s.Session.Write(ctx, to, msgs)
		return nil
	}); err != nil {
		return slices.Repeat([]error{err}, len(msgs))
	}
	return errs
}

// Remove consists of three calls: record the entries, remove one message, remove the rest.
func (s killableSession) Remove(ctx context.Context, msgs []*deadletter.Message, entries ...driver.Entry) error {
	err := s.m.call("Remove (record)", func() error { return s.Session.Remove(ctx, nil, entries...) })
	for i := 0; i < min(2, len(msgs)) && err == nil; i++ {
		part := msgs[:1]
		if i == 1 {
			part = msgs[1:]
		}
		err = s.m.call(callRemove, func() error { return s.Session.Remove(ctx, part) })
	}
	return err
}

func (s killableSession) Close(ctx context.Context) error {
	if s.Session == nil {
		return errKilled
	}
	return s.m.call("Session.Close", func() error { return s.Session.Close(ctx) })
}

type killableReader struct {
	driver.Reader
	m *killableDriver
}

func (r killableReader) Next(ctx context.Context, want func(*deadletter.Message) bool) (m *deadletter.Message, err error) {
	err = r.m.call("Next", func() (err error) {
		m, err = r.Reader.Next(ctx, want)
		return err
	})
	if errors.Is(err, errKilled) {
		m = nil
	}
	return m, err
}

func (r killableReader) Close(ctx context.Context) error {
	if r.Reader == nil {
		return errKilled
	}
	return r.m.call("Reader.Close", func() error { return r.Reader.Close(ctx) })
}
