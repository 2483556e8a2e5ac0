package settle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/crash"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// A record that a commit once listed as settled is listed, or below the offset, in every later commit, or an event has
// named it before. Two members take a partition over from each other, in order or by a kill, while commits are refused,
// late and too large. The test parses the real text of each commit that the broker accepts.
func TestASettledRecordStaysListed(t *testing.T) {
	t.Parallel()
	histories := 10_000
	if testing.Short() {
		histories = 1000
	}
	var total coordinator
	for seed := range histories {
		synctest.Test(t, func(t *testing.T) { // timeouts and intervals take no time
			c := runHistory(uint64(seed))
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.problem != "" {
				t.Fatalf("history %d: %s", seed, c.problem)
			}
			total.commits += c.commits
			total.lists += c.lists
			total.refusals += c.refusals
			total.events += c.events
		})
	}
	t.Logf("%d commits, %d of them list settled records, %d were refused; %d events", total.commits, total.lists, total.refusals, total.events)
	if total.lists < 10*histories || total.refusals < 5*histories || total.events < histories/20 {
		t.Errorf("%d commits with a list, %d refusals and %d events in %d histories prove little", total.lists, total.refusals, total.events, histories)
	}
}

// coordinator is the group's coordinator in one history of a partition. It keeps what is committed, and checks it.
type coordinator struct {
	mu                               sync.Mutex
	random                           *rand.Rand
	member                           *member // the present owner
	offset                           int64
	text                             string
	small                            bool           // it does not always accept all metadata
	maxBytes                         int            // of metadata
	fault                            error          // of the next commits
	listed                           map[int64]bool // records that a commit has listed
	settled                          map[int64]bool // records that were settled
	log                              []int64        // offsets
	problem                          string         // the first broken rule
	commits, lists, refusals, events int
}

var (
	errLate = errors.New("the commit takes effect after 12 s")
	errLost = errors.New("the commit takes effect, and its answer is lost")
)

func (c *coordinator) setFault(fault error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault = fault; c.small {
		c.maxBytes = []int{4096, 50, 70, 100, 130, 300, 1000}[c.random.IntN(7)]
	}
}

// commit takes the commits of a member.
func (c *coordinator) commit(m *member, all []cluster.OffsetCommit) []error {
	c.mu.Lock()
	fault := c.fault
	if errors.Is(fault, errLate) {
		c.mu.Unlock()
		<-time.After(12 * time.Second)
		c.mu.Lock()
		fault = nil
	}
	defer c.mu.Unlock()
	one := all[0]
	switch {
	case c.member != m:
		return []error{sarama.ErrIllegalGeneration}
	case fault != nil && !errors.Is(fault, errLost):
		c.refusals++
		return []error{fault}
	case len(one.Metadata) > c.maxBytes:
		c.refusals++
		return []error{sarama.ErrOffsetMetadataTooLarge}
	}
	c.accept(m, one)
	return []error{fault}
}

// accept commits an offset, and checks the rule.
func (c *coordinator) accept(m *member, one cluster.OffsetCommit) {
	c.commits++
	c.offset, c.text = one.Offset, one.Metadata
	meta := commitmeta.Parse(one.Metadata)
	if one.Metadata != "" && (!meta.Known() || !meta.IsOf(one.Offset)) {
		c.problem = fmt.Sprintf("the metadata %q of offset %d cannot be read", one.Metadata, one.Offset)
	}
	if len(meta.Settled) > 0 {
		c.lists++
	}
	for _, o := range c.log {
		passed, isListed := o < one.Offset, meta.Settled.Contains(o)
		switch {
		case (passed || isListed) && !c.settled[o]:
			c.problem = fmt.Sprintf("offset %d is not settled, and %d is committed with %q", o, one.Offset, one.Metadata)
		case c.listed[o] && !passed && !isListed && o < m.named:
			c.problem = fmt.Sprintf("offset %d was listed, and is not in the commit of %d with %q; reported are those from %d on", o, one.Offset, one.Metadata, m.named)
		}
		c.listed[o] = isListed
	}
}

// member owns the partition for one session.
type member struct {
	c         *coordinator
	committer *Committer
	p         *Partition
	named     int64 // it has reported that offsets from here on are not listed

	mu     sync.Mutex
	posted []func()

	next             int // index of the record that it reads next
	waiting, running []*message
}

var namedText = regexp.MustCompile(`^orders/0: up to \d+ messages, .* from (\d+) on,`)

// Event implements [redeliver.Sink].
func (m *member) Event(e redeliver.Event) {
	changed, ok := e.(redeliver.SubscriptionChanged)
	if !ok || changed.Change != ChangeRunAgain {
		return
	}
	if found := namedText.FindStringSubmatch(changed.Detail); found != nil {
		from, _ := strconv.ParseInt(found[1], 10, 64)
		m.c.mu.Lock()
		defer m.c.mu.Unlock()
		m.named = min(m.named, from)
		m.c.events++
		if !m.c.small {
			m.c.problem = "the broker accepts all metadata, and it is reported that " + changed.Detail
		}
	}
}

// join makes a member the owner of the partition.
func (c *coordinator) join(owner string, limit *Limit) *member {
	m := &member{c: c, named: math.MaxInt64}
	c.mu.Lock()
	c.member = m
	committed, meta, end := c.offset, commitmeta.Parse(c.text).At(c.offset), c.log[len(c.log)-1]+1
	c.mu.Unlock()
	m.committer = NewCommitter(CommitterConfig{
		Commit:   func(_ sarama.ConsumerGroupSession, all []cluster.OffsetCommit) []error { return c.commit(m, all) },
		Interval: 200 * time.Millisecond, FencedAfter: time.Second, Limit: limit,
	})
	from := max(0, committed)
	for m.next = 0; m.next < len(c.log) && c.log[m.next] < from; {
		m.next++
	}
	m.p = NewPartition(m.committer, Config{
		Topic: "orders", Committed: committed, Settled: meta.Settled, Meta: meta,
		Crash: crash.Config{
			Sub:   &engine.Subscription{Policy: redeliver.Policy{MaxCrashes: 3}, Turn: engine.NewTurn(), Sink: m},
			Owner: owner, TopicID: "7Zl2hRiCRuqDSlzQ1RMKxw", From: from, LogEnd: end, MaxInFlight: 10, Slots: 10, ReportUncounted: func(error) {},
		},
	})
	m.p.Start(m)
	return m
}

// Post implements [driver.Lane].
func (m *member) Post(f func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.posted = append(m.posted, f)
	return true
}

func (m *member) Revise(func(*message))           {}
func (m *member) Abandon(*message, error)         {}
func (m *member) ReturnUnrun(func(*message) bool) {}

// runPosted runs posted functions, as the lane does between messages.
func (m *member) runPosted() {
	for {
		m.mu.Lock()
		all := m.posted
		m.posted = nil
		m.mu.Unlock()
		if len(all) == 0 {
			return
		}
		for _, f := range all {
			f()
		}
	}
}

// step reads up to n records, lets those begin that may, and settles some of those that run. stuck never ends.
func (m *member) step(n int, stuck int64) {
	c := m.c
	for ; n > 0 && m.next < len(c.log); n-- {
		one := &message{Record: &sarama.ConsumerMessage{Offset: c.log[m.next], Timestamp: time.Now()}}
		m.next++
		if m.p.Add(one) == nil {
			m.waiting = append(m.waiting, one)
		}
	}
	m.runPosted()
	m.waiting = slices.DeleteFunc(m.waiting, func(one *message) bool {
		if m.p.IsTooFar(one.Seq) || m.p.Begin(one) != engine.Begins {
			return false
		}
		m.running = append(m.running, one)
		return true
	})
	m.running = slices.DeleteFunc(m.running, func(one *message) bool {
		if one.Record.Offset == stuck || c.random.IntN(3) == 0 {
			return false
		}
		m.p.HandlerEnded(one)
		m.p.Ended(one, engine.Ending{Kind: engine.Acked})
		c.mu.Lock()
		c.settled[one.Record.Offset] = true
		c.mu.Unlock()
		m.p.Settle(one.Seq)
		return true
	})
}

// leave ends the session in order.
func (m *member) leave() {
	m.p.Finish(context.Background())
	m.committer.Stop()
	m.runPosted()
}

// die ends the session without another commit that succeeds.
func (m *member) die() {
	m.c.mu.Lock()
	if m.c.member == m {
		m.c.member = nil
	}
	m.c.mu.Unlock()
	m.p.mu.Lock()
	m.p.crashes.Finish(false) // ends its goroutines
	m.p.mu.Unlock()
	m.committer.Stop()
}

// runHistory makes a history of sessions.
func runHistory(seed uint64) *coordinator {
	random := rand.New(rand.NewPCG(seed, 49))
	c := &coordinator{random: random, offset: -1, maxBytes: 4096, listed: make(map[int64]bool), settled: make(map[int64]bool)}
	gaps, n := []int64{1, 1, 1, 1, 2, 5}, 100
	switch random.IntN(50) {
	case 0, 1:
		gaps = []int64{1 << 40, 1 << 30, 1} // commits have room for few
		n = 2000
	case 2:
		n = 3000
	}
	for offset := int64(0); len(c.log) < n; offset += gaps[random.IntN(len(gaps))] {
		c.log = append(c.log, offset)
	}
	c.small = random.IntN(3) == 0
	faults := []error{nil, nil, nil, nil, errLate, errLost, sarama.ErrOffsetsLoadInProgress, sarama.ErrRequestTimedOut, sarama.ErrGroupAuthorizationFailed}
	owners, limits := []string{"aaaaaaaa", "bbbbbbbb"}, []*Limit{{}, {}}
	pauses := slices.Repeat([]time.Duration{10 * time.Millisecond, 210 * time.Millisecond, 500 * time.Millisecond}, 24)
	pauses = append(pauses, 11*time.Second) // longer than all timeouts but limitMemory
	var zombie *member
	for range 2 + random.IntN(5) {
		who := random.IntN(2)
		m := c.join(owners[who], limits[who])
		stuck := c.log[random.IntN(n)]
		if random.IntN(2) == 0 {
			stuck = m.p.cfg.Crash.From // the lowest
		}
		for range 1 + random.IntN(6) {
			c.setFault(faults[random.IntN(len(faults))])
			m.step(random.IntN(n/3), stuck)
			if zombie != nil {
				zombie.step(random.IntN(5), stuck)
			}
			<-time.After(pauses[random.IntN(len(pauses))])
			synctest.Wait()
			m.runPosted()
		}
		if random.IntN(20) == 0 {
			c.setFault(nil)
			<-time.After(limitMemory)
		}
		if zombie != nil {
			zombie.die()
			zombie = nil
		}
		switch random.IntN(4) {
		case 0:
			zombie = m // it does not know yet that it is no longer the owner
		case 1:
			m.die()
		default:
			m.leave()
		}
		c.mu.Lock()
		broken := c.problem != ""
		c.mu.Unlock()
		if broken {
			break
		}
	}
	if zombie != nil {
		zombie.die()
	}
	c.setFault(nil)
	c.mu.Lock()
	c.member = nil
	c.mu.Unlock()
	<-time.After(time.Minute) // commits that are late
	return c
}

var _ driver.Lane[*sarama.ConsumerMessage] = (*member)(nil)
