package settle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
	"github.com/redeliver/redeliver/internal/engine"
)

// A message that keeps its place begins again only when a commit has its attempts, or when it was reported that none will.
// Two members take the partition over from each other, in order or by a kill, while commits are refused, late and too
// large. A commit never has fewer attempts than the one before.
func TestAttemptsAreCommittedBeforeTheNextOne(t *testing.T) {
	t.Parallel()
	histories := 3000
	if testing.Short() {
		histories = 300
	}
	var total headHistory
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) { // timeouts and intervals take no time
			h := &headHistory{random: rand.New(rand.NewPCG(uint64(seed), 53)), decided: make(map[int64]int)}
			h.run()
			if h.problem != "" {
				t.Fatalf("history %d: %s", seed, h.problem)
			}
			total.begun += h.begun
			total.inherited += h.inherited
			total.reported += h.reported
			total.forgotten += h.forgotten
		})
	}
	t.Logf("%d attempts after the first, %d of them inherited; %d reports; %d attempts were forgotten by kills", total.begun, total.inherited, total.reported, total.forgotten)
	if total.begun < 10*histories || total.inherited < histories || total.reported < histories/20 {
		t.Errorf("%d attempts, %d inherited and %d reports in %d histories prove little", total.begun, total.inherited, total.reported, histories)
	}
}

// headHistory is one history of a partition whose messages run one after another.
type headHistory struct {
	random                                *rand.Rand
	c                                     *coordinator
	decided                               map[int64]int // attempts that were decided about, by offset
	problem                               string
	begun, inherited, reported, forgotten int
}

func (h *headHistory) failf(format string, args ...any) {
	if h.problem == "" {
		h.problem = fmt.Sprintf(format, args...)
	}
}

// committed returns the attempts that the latest commit has of a record.
func (h *headHistory) committed(offset int64) int {
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	if head := commitmeta.Parse(h.c.text).At(h.c.offset).Head; head.Record.Offset == offset {
		return head.Attempts
	}
	return 0
}

func (h *headHistory) run() {
	h.c = &coordinator{random: h.random, offset: -1, maxBytes: 4096, listed: make(map[int64]bool), settled: make(map[int64]bool), small: h.random.IntN(3) == 0}
	for offset := int64(0); len(h.c.log) < 20; offset += []int64{1, 1, 2, 5}[h.random.IntN(4)] {
		h.c.log = append(h.c.log, offset)
	}
	faults := []error{nil, nil, nil, nil, errLate, errLost, sarama.ErrOffsetsLoadInProgress, sarama.ErrRequestTimedOut}
	limits := []*Limit{{}, {}}
	for range 2 + h.random.IntN(5) {
		h.c.setFault(faults[h.random.IntN(len(faults))])
		who := h.random.IntN(2)
		m := h.join([]string{"aaaaaaaa", "bbbbbbbb"}[who], limits[who])
		for range h.random.IntN(40) {
			if h.random.IntN(5) == 0 {
				h.c.setFault(faults[h.random.IntN(len(faults))])
			}
			h.step(m)
			<-time.After(time.Duration(10+h.random.IntN(300)) * time.Millisecond)
			synctest.Wait()
		}
		if h.random.IntN(2) == 0 {
			m.die()
		} else {
			h.c.setFault(nil)
			<-time.After(15 * time.Second) // the last fault may be a late commit
			m.leave()
			h.checkLeft(m)
		}
		for offset, n := range h.decided { // what a kill forgets is decided again, also about a message whose settlement it forgets
			kept := h.committed(offset)
			if kept < n && !h.c.settled[offset] {
				h.forgotten += n - kept
				if n-kept > 1 && !h.c.small {
					h.failf("one end of a process forgets %d attempts", n-kept)
				}
			}
			h.decided[offset] = min(n, kept)
		}
	}
	h.c.setFault(nil)
	h.c.mu.Lock()
	h.c.member = nil
	h.c.mu.Unlock()
	<-time.After(time.Minute) // commits that are late
}

// orderedMember is a member that runs one message at a time.
type orderedMember struct {
	*member

	h        *headHistory
	head     *message // the message that is first, or runs
	inMemory bool     // it was reported that attempts are not committed
}

func (h *headHistory) join(owner string, limit *Limit) *orderedMember {
	m := &orderedMember{member: h.c.join(owner, limit), h: h}
	// The partition of join counts crashes: then a commit comes before the first attempt, too.
	m.p.cfg.ReportInMemory = func(error) {
		m.inMemory = true
		h.reported++
		if !h.c.small {
			h.failf("the broker accepts all metadata, and it is reported that it does not")
		}
	}
	return m
}

// step lets the first message begin, if it may, and ends it.
func (h *headHistory) step(m *orderedMember) {
	m.runPosted()
	for m.head == nil && m.next < len(h.c.log) {
		one := &message{Record: &sarama.ConsumerMessage{Offset: h.c.log[m.next], Timestamp: time.Unix(1_700_000_000, 0)}}
		m.next++
		if m.p.Add(one) == nil {
			m.head = one
			h.restore(m)
		}
	}
	one := m.head
	if one == nil || m.p.Begin(one) != engine.Begins {
		return
	}
	offset := one.Record.Offset
	if n := h.decided[offset]; n > 0 {
		h.begun++
		if kept := h.committed(offset); kept < n && !m.inMemory {
			h.failf("attempt %d of %d begins, and the commit of %d has %d: %q", n+1, offset, h.c.offset, kept, h.c.text)
		}
	}
	m.p.HandlerEnded(one)
	if h.random.IntN(4) == 0 {
		m.p.Ended(one, engine.Ending{Kind: engine.Acked})
		h.c.mu.Lock()
		h.c.settled[offset] = true
		h.c.mu.Unlock()
		m.p.Settle(one.Seq)
		m.head = nil
		return
	}
	h.decided[offset]++
	st := redeliver.State{Attempts: h.decided[offset], LastFailed: time.Now(), FirstFailed: time.Now(), Due: time.Now().Add(time.Second), Error: "card declined"}
	one.State = &st
	m.p.Ended(one, engine.Ending{Kind: engine.Stays, State: &st})
}

// restore checks the state that a new member inherits.
func (h *headHistory) restore(m *orderedMember) {
	offset := m.head.Record.Offset
	found := m.p.HeadOf(m.head)
	if found.Attempts != h.decided[offset] {
		h.failf("a member inherits %d attempts of %d, and the last one had committed %d", found.Attempts, offset, h.decided[offset])
	}
	if found.Known() {
		h.inherited++
		m.head.State = new(redeliver.State)
		found.Restore(m.head.State)
	}
}

// checkLeft checks that an orderly end forgets no attempt.
func (h *headHistory) checkLeft(m *orderedMember) {
	if m.head == nil || m.inMemory || h.c.small {
		return
	}
	if offset := m.head.Record.Offset; h.committed(offset) < h.decided[offset] {
		h.failf("a member left in order after %d attempts of %d, and committed %d: %q", h.decided[offset], offset, h.committed(offset), h.c.text)
	}
}

// A note about one record counts for no other, at whatever offset that is.
func TestANoteCountsForItsRecordOnly(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	noted := commitmeta.HeadOf(commitmeta.Identify(3, at, []byte("k"), 5), &redeliver.State{Attempts: 7, LastFailed: at})
	for name, c := range map[string]struct {
		rec     sarama.ConsumerMessage
		settled commitmeta.Runs
		want    int
	}{
		"the same":             {sarama.ConsumerMessage{Offset: 3, Timestamp: at, Key: []byte("k"), Value: []byte("12345")}, nil, 7},
		"of another time":      {sarama.ConsumerMessage{Offset: 3, Timestamp: at.Add(time.Millisecond), Key: []byte("k"), Value: []byte("12345")}, nil, 0},
		"of another key":       {sarama.ConsumerMessage{Offset: 3, Timestamp: at, Key: []byte("l"), Value: []byte("12345")}, nil, 0},
		"at a later offset":    {sarama.ConsumerMessage{Offset: 4, Timestamp: at, Key: []byte("k"), Value: []byte("12345")}, nil, 0},
		"at an earlier offset": {sarama.ConsumerMessage{Offset: 2, Timestamp: at, Key: []byte("k"), Value: []byte("12345")}, nil, 0},
		"settled since":        {sarama.ConsumerMessage{Offset: 3, Timestamp: at, Key: []byte("k"), Value: []byte("12345")}, commitmeta.Runs{{From: 3, To: 4}}, 0},
	} {
		accept := func(_ sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error {
			return make([]error, len(all))
		}
		p := NewPartition(NewCommitter(CommitterConfig{Commit: accept}), Config{
			Crash: crash.Config{Sub: &engine.Subscription{}}, Meta: commitmeta.Meta{Head: noted}, Settled: c.settled,
		})
		m := &message{Record: &c.rec}
		_ = p.Add(m)
		if head := p.HeadOf(m); head.Attempts != c.want {
			t.Errorf("%s: it has %d attempts, want %d", name, head.Attempts, c.want)
		}
		p.dirty = true
		keeps := c.want > 0 || c.rec.Offset < 3 // until it was compared, a commit must not say less than the one before
		if snap := p.takeSnapshot(); snap.metadata.HasHead != keeps {
			t.Errorf("%s: the next commit is %q", name, snap.metadata.Text)
		}
	}
}
