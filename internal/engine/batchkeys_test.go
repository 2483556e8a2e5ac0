package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// batchModel runs random messages in batches, and checks what must hold for every one of them.
type batchModel struct {
	t       *testing.T
	rand    *rand.Rand
	j       *journal
	ordered bool // later messages of a key wait for one that has failed
	own     bool // each message has an answer of its own; otherwise the function returns one error
	policy  redeliver.Policy
	config  redeliver.BatchConfig

	mu      sync.Mutex
	bad     map[string]int // how often a message fails; a hundred times is always
	hangs   map[string]bool
	running map[string]int      // batches, by key
	runs    map[string]int      // of each message
	began   map[string][]string // the first runs of each key
	sizes   map[string][]int    // of the batches of each message
	calls   int
}

func keyOf(id string) string { return id[:1] }

// call is the batch function.
func (m *batchModel) call(b *engine.Batch, all members) error {
	m.mu.Lock()
	m.calls++
	keys := map[string]string{}
	for _, member := range all {
		id := member.Record.id
		if last := keys[keyOf(id)]; last != "" && last >= id && !m.failed(last, id) {
			m.t.Errorf("%s is before %s in a batch", last, id)
		}
		keys[keyOf(id)] = id
		if m.runs[id]++; m.runs[id] == 1 {
			m.began[keyOf(id)] = append(m.began[keyOf(id)], id)
		}
		m.sizes[id] = append(m.sizes[id], len(all))
	}
	for key := range keys {
		if m.running[key]++; m.running[key] > 1 {
			m.t.Errorf("two batches have messages of key %s", key)
		}
	}
	if len(all) > m.config.Size {
		m.t.Errorf("a batch of %d", len(all))
	}
	takes, stuck := time.Duration(1+m.rand.IntN(100))*time.Millisecond, time.Duration(m.rand.IntN(4))*800*time.Millisecond
	answers := m.rand.Perm(len(all))
	m.mu.Unlock()
	leave := sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		for key := range keys {
			m.running[key]--
		}
	})
	defer leave()
	<-time.After(takes) // by now the lane has settled the messages of earlier batches
	if m.ordered {
		m.mu.Lock()
		for _, member := range all {
			m.checkEarlierEnded(member.Record.id, all)
		}
		m.mu.Unlock()
	}
	var failed error
	hung := false
	for _, i := range answers {
		err, hangs := m.outcome(all[i].Record.id)
		hung = hung || hangs
		if err != nil {
			failed = err
		}
		if m.own && !hangs && !all[i].Answer(err) {
			m.t.Errorf("an answer for %s does not count", all[i].Record.id)
		}
	}
	if hung {
		<-b.Done()
		if stuck > engine.StuckAfter {
			const almost = engine.StuckAfter - time.Millisecond
			<-time.After(almost)
			leave() // the next batch runs beside it
			stuck -= almost
		}
		<-time.After(stuck)
		return b.Err()
	}
	if m.own {
		return nil
	}
	return failed
}

// failed reports whether a message, or an earlier one, has failed: then another one may have overtaken it.
func (m *batchModel) failed(ids ...string) bool {
	return !m.ordered && slices.ContainsFunc(ids, func(id string) bool { return m.runs[id] > 1 })
}

// checkEarlierEnded checks that all earlier messages of the key of id have ended, or are in its batch.
func (m *batchModel) checkEarlierEnded(id string, all members) {
	settled, dead := m.j.all()
	for i := range 100 {
		earlier := fmt.Sprintf("%s%02d", keyOf(id), i)
		if earlier >= id {
			return
		}
		_, died := dead[earlier]
		if !died && !slices.Contains(settled, earlier) && !slices.ContainsFunc(all, func(o *engine.BatchMember[*record]) bool { return o.Record.id == earlier }) {
			m.t.Errorf("%s runs before the end of %s", id, earlier)
		}
	}
}

// outcome returns the error of a run of a message, and whether it hangs.
func (m *batchModel) outcome(id string) (err error, hangs bool) { //nolint:revive // both are the outcome
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.bad[id] == 0 {
		return nil, false
	}
	m.bad[id]--
	return fmt.Errorf("%s: %w", id, errOurs), m.hangs[id]
}

// run publishes the messages, waits until all have ended, and checks their ends.
func (m *batchModel) run(ids []string, always map[string]bool) {
	t := m.t
	for _, id := range ids {
		m.j.in <- &record{id: id, key: keyOf(id)}
		m.mu.Lock()
		pause := max(0, m.rand.IntN(120)-90)
		m.mu.Unlock()
		if pause > 0 {
			<-time.After(time.Duration(pause) * time.Millisecond)
		}
	}
	<-time.After(2 * time.Hour)
	synctest.Wait()
	settled, dead := m.j.all()
	retries := max(0, m.policy.MaxRetries)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range ids {
		_, died := dead[id]
		if always[id] != died {
			t.Errorf("%s: in the DLQ %t, want %t: %d runs in batches of %v", id, died, always[id], m.runs[id], m.sizes[id])
		}
		if n := count(settled, id); !m.j.wroteTo(id) && n != 1 {
			t.Errorf("%s is settled %d times, want once", id, n)
		}
		earlier := 0
		for other := range m.runs {
			if m.ordered && keyOf(other) == keyOf(id) && other < id {
				earlier += retries + 2
			}
		}
		if m.runs[id] > retries+2+earlier {
			t.Errorf("%s ran %d times, want at most %d", id, m.runs[id], retries+2+earlier)
		}
		if sizes := m.sizes[id]; died && sizes[len(sizes)-1] != 1 && !m.own {
			t.Errorf("%s is in the DLQ after its last run in a batch of %d", id, sizes[len(sizes)-1])
		}
	}
	for key, got := range m.began {
		if !slices.IsSorted(got) {
			t.Errorf("the messages of key %s began as %v", key, got)
		}
	}
}

func count(all []string, id string) (n int) {
	for _, other := range all {
		if other == id {
			n++
		}
	}
	return n
}

// wroteTo reports whether a copy of the message was written: each copy is settled, too.
func (j *journal) wroteTo(id string) bool {
	return slices.ContainsFunc(j.written(), func(st redeliver.State) bool { return st.ID == id })
}

// Batches keep the order of keys and send only bad messages to the DLQ, in every order, with own answers and with one error for all,
// with few and with many keys.
func TestBatchesKeepKeysAndCondemnNobody(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { runBatchModel(t, seed) })
		})
	}
}

func runBatchModel(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	m := &batchModel{
		t: t, rand: r, ordered: r.IntN(2) == 0, own: r.IntN(2) == 0,
		policy: redeliver.Policy{MaxRetries: r.IntN(4), Backoff: redeliver.Fixed(time.Second), Timeout: 10 * time.Second},
		config: redeliver.BatchConfig{Size: 1 + r.IntN(12), Timeout: time.Duration(1+r.IntN(200)) * time.Millisecond, Concurrency: 1 + r.IntN(4)},
		bad:    map[string]int{}, hangs: map[string]bool{}, running: map[string]int{}, runs: map[string]int{}, began: map[string][]string{}, sizes: map[string][]int{},
	}
	if m.policy.MaxRetries == 0 {
		m.policy.MaxRetries = redeliver.NoRetries
	}
	if r.IntN(4) == 0 && m.policy.MaxRetries > 0 {
		m.policy.Immediate = 1
	}
	m.j = newJournal(m.policy)
	m.j.sub.MaxInFlight, m.j.sub.MaxRetriesInFlight = m.config.Size*(1+r.IntN(3)), 10
	inSource := m.ordered && r.IntN(2) == 0
	switch {
	case inSource: // as on a FIFO queue of SQS
		m.j.block, m.j.sub.WaitsInSource = true, true
		m.j.answerID = func(to, _ string) error {
			if to == "level" {
				return driver.ErrStay
			}
			return nil
		}
	case m.ordered:
		m.j.block, m.j.sub.KeepsPlace = true, true
	}
	var ids []string
	always := map[string]bool{}
	keys := 1 + r.IntN(5)
	for i := range 100 {
		id := fmt.Sprintf("%c%02d", 'a'+rune(i%keys), i/keys)
		ids = append(ids, id)
		switch n := r.IntN(40); {
		case n == 0:
			m.bad[id], always[id] = 1000, true
		case n <= 3 && m.policy.MaxRetries > 0:
			m.bad[id] = 1 + r.IntN(m.policy.MaxRetries)
			m.hangs[id] = (!m.ordered || inSource) && r.IntN(8) == 0 // with KeepsPlace a message that hangs may lose its place
		}
	}
	var bs batchRecorder
	m.j.start(t, bs.options(m.config, m.call))
	m.run(ids, always)
	if t.Failed() {
		t.Logf("ordered %t, own answers %t, %d keys, %+v, %+v", m.ordered, m.own, keys, m.config, m.policy)
	}
}
