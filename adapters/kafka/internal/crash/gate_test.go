package crash

import (
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/internal/engine"
)

// onePartition is a partition that counts what is posted, and does not run it.
type onePartition struct{ posted int }

func (*onePartition) Offset(m *message) int64 { return int64(m.Seq) }
func (*onePartition) Mark() int64             { return 0 }
func (*onePartition) Commit(bool)             {}
func (*onePartition) Idle()                   {}
func (p *onePartition) Post(func()) bool      { p.posted++; return true }
func (*onePartition) ReportUncounted(error)   {}

// Suspects run like other messages while metadata cannot be committed, and then they need slots. All of them used to
// begin at once.
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
