package crash

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/internal/engine"
)

// onePartition is a partition that counts posted functions and does not call them.
type onePartition struct{ posted int }

func (*onePartition) Offset(m *message) int64 { return int64(m.Seq) }
func (*onePartition) Mark() int64             { return 0 }
func (*onePartition) Commit(bool)             {}
func (p *onePartition) Post(func()) bool      { p.posted++; return true }

// Suspects run like other messages while metadata cannot be committed. Then they need slots, or all would begin at
// once.
func TestASuspectNeedsASlotWithoutCommitMetadata(t *testing.T) {
	t.Parallel()
	p := &onePartition{}
	found := commitmeta.Parse("redeliver/1 by=x state=careful window=0")
	g := New(p, Config{Sub: &engine.Subscription{Policy: redeliver.Policy{MaxCrashes: 3}, Turn: engine.NewTurn()}, Owner: "me"}, found)
	if !g.IsSuspect(0) {
		t.Fatal("the record in the window of the dead owner is no suspect")
	}
	g.unwritable = true
	m := &message{Alone: true}
	if admission := g.Begin(m); admission != engine.NotYet || m.Alone || p.posted != 1 {
		t.Errorf("it was answered %v, alone %v, and was asked to ask again %d times", admission, m.Alone, p.posted)
	}
	if admission := g.Begin(m); admission != engine.Begins {
		t.Errorf("the second answer is %v", admission)
	}
}

// livePartition commits at once. runFor calls the posted functions.
type livePartition struct {
	onePartition

	g *Gate

	mu     sync.Mutex
	posted []func()
}

func (p *livePartition) Commit(bool) {
	p.Post(func() {
		p.g.Committed(p.g.Metadata(0, nil, commitmeta.Record{}, commitmeta.Head{}, commitmeta.MaxText))
	})
}

func (p *livePartition) Post(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.posted = append(p.posted, f)
	return true
}

// nextPosted removes and returns the first posted function, or returns nil.
func (p *livePartition) nextPosted() (f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.posted) > 0 {
		f, p.posted = p.posted[0], p.posted[1:]
	}
	return f
}

// runFor runs posted functions for a duration.
func (p *livePartition) runFor(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(turnPoll / 2) {
		for f := p.nextPosted(); f != nil; f = p.nextPosted() {
			f()
			synctest.Wait()
		}
	}
}

// newLiveGate returns a gate with one suspect, at offset 0.
func newLiveGate() (*Gate, *livePartition) {
	p := &livePartition{}
	sub := &engine.Subscription{Policy: redeliver.Policy{MaxCrashes: 3}, Turn: engine.NewTurn()}
	p.g = New(p, Config{Sub: sub, Owner: "me"}, commitmeta.Parse("redeliver/1 by=x state=careful window=0"))
	return p.g, p
}

// While a suspect has the turn, nothing else in the client runs.
func TestARefusedSuspectGivesTheTurnBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, p := newLiveGate()
		m := &message{Alone: true}
		if admission := g.Begin(m); admission != engine.NotYet {
			t.Fatalf("the suspect was answered %v before it has the turn", admission)
		}
		p.runFor(2 * maxTurn) // another gate refuses the suspect, so it does not ask this one
		if !g.sub.Turn.Begin() {
			t.Error("the turn is held")
		}
		g.sub.Turn.End()
		if g.meta.Alone >= 0 {
			t.Errorf("offset %d would be charged with a crash", g.meta.Alone)
		}
		g.Begin(m)
		p.runFor(maxTurn / 2)
		if admission := g.Begin(m); admission != engine.Begins || !m.Alone {
			t.Errorf("when it asks again, the suspect is answered %v, alone %v", admission, m.Alone)
		}
	})
}

// A pause of new messages holds back suspects that are first deliveries, and leaves the turn to others.
func TestAPauseOfNewMessagesHoldsBackSuspects(t *testing.T) {
	for _, when := range []string{"before it asks", "when it has the turn"} {
		synctest.Test(t, func(t *testing.T) {
			g, p := newLiveGate()
			m := &message{Alone: true}
			if when == "when it has the turn" {
				g.Begin(m)
				p.runFor(maxTurn / 2)
			}
			g.sub.NewGate.Close()
			if admission := g.Begin(m); admission != engine.NotYet || m.Alone {
				t.Errorf("%s: the suspect was answered %v, alone %v", when, admission, m.Alone)
			}
			p.runFor(maxTurn / 2)
			if !g.sub.Turn.Begin() {
				t.Errorf("%s: the turn is held", when)
			}
			g.sub.Turn.End()
			g.sub.NewGate.Open()
			g.Begin(m)
			p.runFor(maxTurn / 2)
			if admission := g.Begin(m); admission != engine.Begins || !m.Alone {
				t.Errorf("%s: after the pause the suspect was answered %v, alone %v", when, admission, m.Alone)
			}
			g.Finish(true)
			g.ReleaseTurn()
		})
	}
}

// countedPartition counts the commits that a message waits for.
type countedPartition struct {
	livePartition

	answers bool
	commits int
}

func (p *countedPartition) Commit(atOnce bool) {
	if !atOnce {
		return
	}
	p.commits++
	if p.answers {
		p.livePartition.Commit(atOnce)
	}
}

// The first messages of a partition wait for one commit, although they ask again before it has succeeded.
func TestTheFirstMessagesNeedOneCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &countedPartition{answers: true}
		p.g = New(p, Config{Sub: &engine.Subscription{Turn: engine.NewTurn()}, Owner: "me"}, commitmeta.Meta{})
		m := &message{}
		p.g.Begin(m)
		p.nextPosted()() // writes
		p.g.Begin(m)
		p.runFor(time.Second)
		if admission := p.g.Begin(m); admission != engine.Begins || p.commits != 1 {
			t.Errorf("it was answered %v after %d commits, want one", admission, p.commits)
		}
	})
}

// While commits are refused, all messages begin. The next one that succeeds says so, and keeps the suspects with their
// charges. From then on suspects run alone again.
func TestACommitAfterRefusalsKeepsTheSuspects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &countedPartition{}
		sub := &engine.Subscription{Policy: redeliver.Policy{MaxCrashes: 3}, Turn: engine.NewTurn()}
		g := New(p, Config{Sub: sub, Owner: "me", LogEnd: 100, ReportUncounted: func(error) {}}, commitmeta.Parse("redeliver/1 by=x state=careful end=9 base=0 window=4 suspects=7x2"))
		g.Begin(&message{Seq: 1}) // waits for a window
		p.runFor(metaTimeout + time.Second)
		if admission := g.Begin(&message{Seq: 1}); admission != engine.Begins {
			t.Errorf("after %s it was answered %v", metaTimeout, admission)
		}
		settled := commitmeta.Runs{{From: 2, To: 4}}
		text := g.Metadata(1, settled, commitmeta.Record{}, commitmeta.Head{}, commitmeta.MaxText)
		if want := "redeliver/1 by=me state=run base=1 suspects=3,6x2 settled=bBg"; text.Text != want {
			t.Errorf("then the metadata is %q, want %q", text.Text, want)
		}
		g.Committed(text)
		p.runFor(time.Second)
		if admission := g.Begin(&message{Seq: 7}); admission != engine.NotYet {
			t.Errorf("after a commit the suspect was answered %v", admission)
		}
		g.Finish(true)
		g.ReleaseTurn()
	})
}

// A lane may drain for as long as its longest attempt. Other lanes of the client go on meanwhile.
func TestASuspectOfADrainingLaneDoesNotWaitForTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := newLiveGate()
		if !g.sub.Turn.Begin() { // it runs for long
			t.Fatal("the turn is held")
		}
		g.Begin(&message{Alone: true})
		synctest.Wait()
		if g.sub.Turn.Begin() {
			t.Error("another message began while the suspect waited for the turn")
		}
		g.Drains()
		synctest.Wait()
		if !g.sub.Turn.Begin() {
			t.Error("nothing begins while the suspect's lane drains")
		}
	})
}
