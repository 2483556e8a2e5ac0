// Package crash finds the records that kill their process, and lets each run alone until it has killed too many.
//
// Such a record comes back, together with all other records that the process had begun and not committed. Kafka counts
// no deliveries, so the owner of a partition writes its state into its commits, see package commitmeta. An owner that
// ends in order says so. Otherwise it died, and nobody knows which record killed it. Then the next owner is careful for
// a stretch above the committed offset: it commits a window, and begins only records in that window. If this owner
// dies, too, only the records of the window are suspects. Suspects run one at a time, while nothing else of the client
// runs, see engine.Turn. Each is committed as alone before it runs. Only a suspect that was alone when its process died
// is charged with a crash.
//
// A [Gate] decides which messages of one partition may begin, and what the partition's commits say.
package crash

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

const (
	// metaTimeout bounds how long a lane waits for the commit of its metadata. Then its messages begin without.
	metaTimeout = 10 * time.Second
	// maxTurn bounds how long one suspect after another may run in one turn.
	maxTurn = time.Second
	// turnPoll is how often an unused turn is checked, because a gate may have closed meanwhile.
	turnPoll = 50 * time.Millisecond
	// Bounds of a window: it limits how many records become suspects at once, and how many commits a stretch takes.
	minWindow = 32
	maxWindow = 256
	// A stretch is stretchFactor times MaxInFlight, within minStretch and maxStretch. It estimates how many records
	// above the mark the last owner may have begun: those in flight, and those settled within a commit interval. A
	// record beyond the stretch that kills its process is found later.
	stretchFactor = 500
	minStretch    = 5_000
	maxStretch    = 50_000
)

// message is a message of a partition.
type message = driver.Message[*sarama.ConsumerMessage]

// Partition is the partition that a gate guards. Its lock guards the gate, too: it is held while the gate is called,
// and while the gate calls a method other than Post.
type Partition interface {
	// Offset returns the offset of a message that has not ended.
	Offset(m *message) int64
	// Mark returns the offset that would be committed now. All records below it are settled.
	Mark() int64
	// Commit makes a commit necessary: at once, or with the next regular one.
	Commit(atOnce bool)
	// Post calls f in the lane's goroutine, with the lock. It reports whether it will.
	Post(f func()) bool
}

// Config describes the partition of a gate.
type Config struct {
	Sub            *engine.Subscription // without a Turn, crashes are not counted
	Owner, TopicID string               // for the metadata
	From, LogEnd   int64                // the offset at which the lane begins, and the end of the log
	MaxInFlight    int                  // first deliveries of a subscription that run at once
	Slots          int                  // messages of this partition that run at once
	// ReportUncounted reports that crashes are not counted for now.
	ReportUncounted func(error)
}

// Gate counts crashes. The lane asks it last whether a message may begin. A zero Gate lets all begin.
type Gate struct {
	partition       Partition
	sub             *engine.Subscription
	reportUncounted func(error)
	meta            commitmeta.Meta // as committed
	counted         bool            // if false, no state is committed and no message waits
	unrestricted    bool            // the committed state allows all messages but suspects
	cleared         bool            // the last owner died, and everything that it may have begun is settled
	windowSize      int             // records in a window
	ended           bool            // the lane has ended in order

	version    uint64 // of the metadata to commit
	writing    bool   // pending is not committed yet
	pending    commitmeta.Meta
	unwritable bool // what may begin cannot be committed, so all messages may; until a commit succeeds that says so

	running   int                   // handlers that the gate has let begin
	waiting   []*message            // for a window, in order
	isWaiting map[*message]struct{} // the same
	suspects  []*message            // messages that wait to run alone

	ctx       context.Context // after its end no suspect gets a turn
	cancel    context.CancelFunc
	turn      turnState
	turnStart time.Time
	alone     *message  // the suspect whose handler runs
	aloneAt   time.Time // when meta.Alone was committed
}

type turnState uint8

const (
	noTurn turnState = iota
	turnAwaited
	turnHeld
)

// New makes the gate of a partition whose lane begins with the metadata that was found.
func New(p Partition, cfg Config, found commitmeta.Meta) *Gate {
	stretch := min(max(int64(stretchFactor)*int64(cfg.MaxInFlight), minStretch), maxStretch)
	g := &Gate{
		partition: p, sub: cfg.Sub, reportUncounted: cfg.ReportUncounted, meta: found.Inherit(cfg.Owner, cfg.From, cfg.LogEnd, stretch),
		windowSize: min(max(cfg.Slots, minWindow), maxWindow), counted: cfg.Sub.Turn != nil, isWaiting: make(map[*message]struct{}),
	}
	g.meta.Topic = cfg.TopicID
	g.cleared = found.Known() && found.State != commitmeta.Left && g.meta.End == 0 && len(g.meta.Suspects) == 0
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Restrictions returns up to which offset few messages run at a time, and how many are suspects; 0 for none.
func (g *Gate) Restrictions() (end int64, suspects int) { return g.meta.End, len(g.meta.Suspects) }

// IsSuspect reports whether the record at an offset is a suspect, which takes no slot.
func (g *Gate) IsSuspect(offset int64) bool {
	if !g.counted {
		return false
	}
	_, suspected := g.meta.Suspects[offset]
	return suspected
}

// Metadata is the metadata of one commit.
type Metadata struct {
	commitmeta.Written

	Idle bool // there are no suspects, and no message waits for this commit

	version uint64
	allows  bool // all messages may begin, and the text says so
}

// Metadata returns the metadata of a commit of mark, in at most size bytes. settled has the settled records above mark,
// which a commit always lists. last is the last record that was read, and head is that of the partition.
func (g *Gate) Metadata(mark int64, settled commitmeta.Runs, last commitmeta.Record, head commitmeta.Head, size int) Metadata {
	next := Metadata{Idle: g.isIdle(), version: g.version}
	n := g.meta
	switch {
	case g.ended:
		n.State, n.Window, n.Alone = commitmeta.Left, nil, -1
	case !g.counted:
		n = commitmeta.Ended(n.Owner, n.Topic)
	case g.unwritable:
		n = running(n)
	case g.writing:
		n = g.pending
	case g.unrestricted:
		n.State = commitmeta.Running
	}
	n.Last, n.Head = last, head
	next.Written = n.TextIn(size, mark, settled)
	next.allows = g.unwritable && next.Complete && size == commitmeta.MaxText
	return next
}

// running returns the metadata of an owner that may have begun all messages but suspects.
func running(n commitmeta.Meta) commitmeta.Meta {
	n.State, n.End, n.Window, n.Alone = commitmeta.Running, 0, nil, -1
	return n
}

var errTooLittle = errors.New("kafka: the broker accepts too little metadata")

// Committed is called when a commit has succeeded.
func (g *Gate) Committed(n Metadata) {
	switch {
	case g.writing && n.version == g.version && !n.Complete:
		g.GiveUp(errTooLittle)
	case g.writing && n.version == g.version:
		g.partition.Post(func() { g.applyPending(n.version) })
	case n.allows:
		g.partition.Post(g.countAgain)
	}
}

// GiveUp is called when the broker has refused a commit for good. It lets all messages begin until a commit succeeds.
func (g *Gate) GiveUp(err error) {
	g.unwritable = true
	g.partition.Post(func() { g.allowAll(err) })
}

// isIdle reports whether there are no suspects and no message waits for a commit.
func (g *Gate) isIdle() bool {
	return !g.counted || !g.writing && g.turn == noTurn && g.unrestricted && !g.unwritable && len(g.meta.Suspects) == 0
}

// Begin decides whether a message may begin.
func (g *Gate) Begin(m *message) engine.Admission {
	hadTurn := m.Alone
	m.Alone = false
	if m.Step != driver.StepHandle || !g.counted {
		return engine.Begins // no handler sees it
	}
	if g.unrestricted && len(g.meta.Suspects) == 0 {
		return g.allow()
	}
	offset := g.partition.Offset(m)
	crashes, suspected := g.meta.Suspects[offset]
	switch {
	case suspected && crashes >= g.sub.Policy.MaxCrashes:
		m.Step, m.Err = driver.StepDeadLetter, &redeliver.CrashedError{Crashes: crashes}
		return engine.Begins
	case g.unwritable && hadTurn:
		g.partition.Post(func() {}) // it must ask again, because now it needs a slot
		return engine.NotYet
	case g.unwritable:
		return g.allow()
	case suspected && !m.Retry && g.sub.NewGate.Closed(): // it waits with the other first deliveries
		g.suspects = without(g.suspects, m)
		g.partition.Post(func() {}) // it must ask again, because now it is not alone
		return engine.NotYet
	case suspected && g.turn == turnHeld && g.alone == nil && !g.writing && g.meta.Alone == offset:
		g.suspects = without(g.suspects, m)
		m.Alone, g.alone = true, m
		return g.allow()
	case suspected:
		m.Alone = true // it needs no slot
		if !slices.Contains(g.suspects, m) {
			g.suspects = append(g.suspects, m)
		}
		g.runSuspects()
		return engine.NotYet
	case g.unrestricted || g.meta.Window[offset]:
		return g.allow()
	default:
		if _, waits := g.isWaiting[m]; !waits {
			g.isWaiting[m] = struct{}{}
			g.waiting = append(g.waiting, m)
			if len(g.waiting) == 1 {
				g.partition.Post(g.requestWindow) // after other messages have asked
			}
		}
		return engine.NotYet
	}
}

func (g *Gate) allow() engine.Admission {
	g.running++
	return engine.Begins
}

// Ended handles the end of a message that the gate has let begin. With Stays, the message will ask again.
func (g *Gate) Ended(m *message, how engine.EndingKind) {
	if !g.counted {
		return
	}
	if m.Step == driver.StepHandle {
		g.running--
		g.HandlerEnded(m)
	}
	if how != engine.Stays && how != engine.Unsettled && how != engine.NotBegun {
		g.forget(m, how != engine.Abandoned)
	}
	if len(g.waiting) > 0 {
		g.requestWindow()
	}
}

// HandlerEnded records that the handler of a message has returned. Its write, which may take long, must not hold up
// suspects and is not charged.
func (g *Gate) HandlerEnded(m *message) {
	if g.alone == m {
		g.alone = nil
		g.runSuspects()
	}
}

// Returned handles a message that leaves the lane unsettled.
func (g *Gate) Returned(m *message) { g.forget(m, false) }

// forget removes a message that has left the lane.
func (g *Gate) forget(m *message, settled bool) {
	if !g.counted || g.unrestricted && len(g.meta.Suspects) == 0 && !g.writing {
		return
	}
	offset := g.partition.Offset(m)
	g.suspects = without(g.suspects, m)
	if _, waits := g.isWaiting[m]; waits {
		delete(g.isWaiting, m)
		g.waiting = without(g.waiting, m)
	}
	for _, n := range []commitmeta.Meta{g.meta, g.pending} {
		delete(n.Window, offset)
		if crashes, suspected := n.Suspects[offset]; suspected && settled && crashes < g.sub.Policy.MaxCrashes {
			delete(n.Suspects, offset) // it did not kill its process
		}
	}
}

func without[T comparable](all []T, one T) []T {
	return slices.DeleteFunc(all, func(other T) bool { return other == one })
}

// requestWindow commits that waiting messages may begin or, if one is above the stretch, that all may.
func (g *Gate) requestWindow() {
	if len(g.waiting) == 0 || g.ended || g.writing || g.unwritable || g.turn != noTurn {
		return // applyPending and runSuspects call it again
	}
	offset := g.partition.Offset
	next := g.copyMeta()
	if slices.ContainsFunc(g.waiting, func(m *message) bool { return offset(m) >= g.meta.End }) {
		g.forgetWindow()
		g.write(running(next))
		return
	}
	next.State = commitmeta.Careful
	switch {
	case g.running == 0: // none of the old window runs
		next.Window = make(map[int64]bool)
	case g.running > g.windowSize*3/4 || len(next.Window) >= g.windowSize:
		return // wait, because each window is a commit
	}
	for _, m := range g.waiting {
		if len(next.Window) >= g.windowSize {
			break
		}
		next.Window[offset(m)] = true
	}
	if !next.WindowFits(g.partition.Mark()) { // the offsets are too far apart
		if g.running > 0 {
			return
		}
		next.Window = map[int64]bool{offset(g.waiting[0]): true}
	}
	g.forgetWindow() // messages without room ask again
	g.write(next)
}

func (g *Gate) forgetWindow() {
	clear(g.isWaiting)
	g.waiting = nil
}

// copyMeta returns a copy of the committed metadata.
func (g *Gate) copyMeta() commitmeta.Meta {
	next := g.meta
	next.Window, next.Suspects = maps.Clone(g.meta.Window), maps.Clone(g.meta.Suspects)
	if next.Window == nil {
		next.Window = make(map[int64]bool)
	}
	if g.unrestricted {
		next.State = commitmeta.Running
	}
	return next
}

// write commits next, which takes effect when the commit has succeeded.
func (g *Gate) write(next commitmeta.Meta) {
	g.version++
	g.writing, g.pending = true, next
	g.partition.Commit(true)
	number := g.version
	time.AfterFunc(metaTimeout, func() {
		g.partition.Post(func() {
			if g.writing && g.version == number {
				g.allowAll(fmt.Errorf("kafka: the broker did not accept a commit within %s", metaTimeout))
			}
		})
	})
}

// applyPending applies the pending metadata after its commit.
func (g *Gate) applyPending(number uint64) {
	if !g.writing || g.version != number {
		return
	}
	g.meta, g.unrestricted, g.unwritable = g.pending, g.pending.State == commitmeta.Running, false
	g.writing, g.pending = false, commitmeta.Meta{}
	if g.unrestricted {
		g.forgetWindow() // messages that asked again meanwhile wait for no further commit
	}
	mark := g.partition.Mark()
	maps.DeleteFunc(g.meta.Suspects, func(o int64, _ int) bool { return o < mark })
	if g.turn == turnHeld && g.meta.Alone >= 0 {
		g.aloneAt = time.Now()
		g.runSuspectsLater()
	}
	g.runSuspects()
	g.requestWindow()
}

// runSuspectsLater checks later whether a suspect has used its turn.
func (g *Gate) runSuspectsLater() {
	time.AfterFunc(turnPoll, func() { g.partition.Post(g.runSuspects) })
}

// allowAll lets all messages begin although their metadata cannot be committed.
func (g *Gate) allowAll(err error) {
	g.reportUncounted(err)
	g.writing, g.pending, g.unwritable = false, commitmeta.Meta{}, true
	g.meta.Alone, g.meta.Window = -1, make(map[int64]bool)
	g.forgetWindow()
	g.partition.Commit(false) // says that all may have begun
	g.runSuspects()
}

// countAgain ends what allowAll has begun: a commit says that all messages but suspects may have begun.
func (g *Gate) countAgain() {
	if !g.unwritable || g.ended {
		return
	}
	g.meta, g.unrestricted, g.unwritable = running(g.meta), true, false
	g.runSuspects()
}

// runSuspects lets the next suspect run alone, or gives the turn back.
func (g *Gate) runSuspects() {
	if g.ended || g.writing {
		return
	}
	waits := len(g.suspects) > 0 && !g.unwritable
	switch g.turn {
	case turnAwaited:
	case noTurn:
		if waits {
			g.takeTurn()
		}
	case turnHeld:
		switch gate := &g.sub.Gate; {
		case g.alone != nil:
		case waits && g.meta.Alone >= 0 && g.meta.Alone == g.partition.Offset(g.suspects[0]) && !gate.Closed():
			if time.Since(g.aloneAt) < maxTurn {
				g.runSuspectsLater() // it is about to begin
				return
			}
			g.suspects = slices.Delete(g.suspects, 0, 1) // another gate refuses it; it asks again
			g.runSuspects()
		case waits && !gate.Closed() && time.Since(g.turnStart) < maxTurn && g.sub.Turn.Idle():
			next := g.copyMeta()
			next.Alone = g.partition.Offset(g.suspects[0])
			g.write(next)
		case g.meta.Alone >= 0 && !g.unwritable:
			next := g.copyMeta()
			next.Alone = -1
			g.write(next)
		default:
			g.turn = noTurn
			g.sub.Turn.Give()
			g.requestWindow()
			if waits && !g.writing {
				g.takeTurn()
			}
		}
	}
}

// takeTurn asks for the client's turn.
func (g *Gate) takeTurn() {
	g.turn = turnAwaited
	turn, gate := g.sub.Turn, &g.sub.Gate
	go func() {
		if !turn.Take(g.ctx, gate) {
			return
		}
		posted := g.partition.Post(func() {
			if g.ended {
				turn.Give()
				return
			}
			g.turn, g.turnStart = turnHeld, time.Now()
			g.runSuspects()
		})
		if !posted {
			turn.Give()
		}
	}()
}

// Drains stops waiting for the turn: while a suspect waits, nothing else of the client begins. Any goroutine may call it.
func (g *Gate) Drains() { g.cancel() }

// Finish makes the last commit say that the owner has ended in order, so that the next owner does not take this for a
// crash. Suspects stay suspects, uncharged. progressed reports whether the lane has committed or settled anything;
// otherwise the last owner's metadata stays.
func (g *Gate) Finish(progressed bool) {
	g.ended, g.writing = true, false
	g.cancel()
	if progressed || g.cleared {
		g.version++
		g.partition.Commit(false)
	}
}

// ReleaseTurn gives the turn back. It is called after the last commit, because another suspect of the client may kill
// the process then.
func (g *Gate) ReleaseTurn() {
	if g.turn == turnHeld {
		g.turn = noTurn
		g.sub.Turn.Give()
	}
}
