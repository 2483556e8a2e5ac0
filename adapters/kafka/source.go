package kafka

import (
	"context"
	"hash/maphash"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// Bounds of what a source has in memory.
const (
	readAhead   = 4096 // records read that wait for a slot or their key
	resumeAhead = 1024 // places that are free before a full partition is read on
	holdSoft    = 1024 // waiting records above which the partition pauses
	holdHard    = 4096 // the same when the last one is due soon
	// soon: what is due so soon is read although many wait.
	soon = time.Second

	// Bounds of the bytes that all sources of a Subscribe have read ahead: keys, values and headers of what has not begun.
	// They bound large messages, as readAhead and holdSoft bound small ones.
	aheadBytes = 32 << 20 // of all: above it a partition pauses that has its own part of them
	aheadLeast = 1 << 20  // which is so much: the heavy ones must not stop the others

	// headerBytes is what a header takes in memory beside its name and value: its pointer and two slices.
	headerBytes = 64
)

// source is one partition in one session. It implements driver.Source, and is its gate.
//
// The files in the order of a record's life:
//
//	subscriber.go, consume.go, wrap.go   who reads, and has an engine
//	session.go                           a partition is claimed: from where it is read
//	source.go, arrive.go                 a record comes in hand, or was settled before
//	gate.go                              whether it may begin now:
//	  lines.go, keyturns.go                its key, with PerKey
//	  control.go                           commands
//	  caution.go                           what the last owner's death says of it
//	codec.go                             what the handler and the policy see of it
//	store.go, producer.go                its copy is written
//	settled.go, note.go, committer.go    it is settled, and that is committed
type source struct {
	r         *reader
	sess      sarama.ConsumerGroupSession
	claim     sarama.ConsumerGroupClaim
	topic     string
	partition int32
	level     *waitLevel // nil for the origin
	commits   *committer
	lane      driver.Lane[*sarama.ConsumerMessage]

	// Of the lane's goroutine.
	room     int         // for so many more the lane has room
	paused   bool        //
	inHand   int         // messages
	bytes    int         // of what has not begun
	lastDue  time.Time   // of what waits
	alarm    *time.Timer // for when the last is due soon
	before   []offsetRun // what earlier sessions have settled
	commands *commands   // that it obeys; nil for the origin
	released int64       // what was written until then is due, in Unix milliseconds
	keys     *keyTurns   // nil where a key does not wait for its failures
	narrow   bool        // some messages are too far ahead of the lowest unsettled one

	mu        sync.Mutex // the lane's goroutine writes, the committer reads
	from      int64      // where it began
	track     tracker
	settled   int64 // messages
	overflows bool  // the settlement set is longer than a commit holds
	care      *caution

	dirty, urgent, flying bool          // there is something to commit; at once; it is on its way
	wrote                 bool          // something was committed
	committed             int64         // the offset that was committed last
	stands                int64         // messages that were settled before that
	answer                error         // to the last commit
	ending                bool          // the next commit is the last
	standing              chan struct{} // closed when that stands, or never will
}

var (
	_ driver.Source[*sarama.ConsumerMessage] = (*source)(nil)
	_ engine.Gater[*sarama.ConsumerMessage]  = (*source)(nil)
)

func newSource(r *reader, sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, commits *committer, from int64) *source {
	s := &source{r: r, sess: sess, claim: claim, topic: claim.Topic(), partition: claim.Partition(), commits: commits, from: from}
	s.track.mark = from
	if w, ok := r.levels[s.topic]; ok {
		s.level, s.commands = &w, &commands{}
	}
	return s
}

// run reads the partition until it is revoked or the session ends, and then waits for what is in flight.
func (s *source) run() {
	cfg := s.r.client.cfg
	defer s.r.own(s.topic, s.partition)()
	unhear := func() {}
	defer func() { unhear() }()
	s.r.engine.RunLane(s.sess.Context(), s.r.values, s, engine.LaneOptions[*sarama.ConsumerMessage]{
		MaxAhead: readAhead + cfg.MaxInFlight + cfg.MaxRetriesInFlight, MaxHeld: holdHard, DrainTimeout: cfg.DrainTimeout,
		Gates: []engine.Gater[*sarama.ConsumerMessage]{s},
	}, func(l driver.Lane[*sarama.ConsumerMessage]) {
		s.lane = l
		s.commits.add(s)
		if s.level != nil {
			unhear = s.r.control.listen(func() { l.Post(s.obey) })
			l.Post(s.obey)
		}
		// Paused partitions stay paused across sessions.
		s.r.group.Resume(map[string][]int32{s.topic: {s.partition}})
	})
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *sarama.ConsumerMessage { return s.claim.Messages() }

// Lost implements [driver.Source]: the broker refuses the commits of a session that is over.
func (s *source) Lost() <-chan struct{} { return nil }

// Stop implements [driver.Source]: the claim ends by itself.
func (s *source) Stop() <-chan struct{} { return nil }

var seed = maphash.MakeSeed()

// Parse implements [driver.Source].
func (s *source) Parse(m *driver.Message[*sarama.ConsumerMessage]) error {
	rec, offset := m.Record, m.Record.Offset
	known := isSettled(s.before, offset)
	s.mu.Lock()
	m.Seq = s.track.add(offset)
	if known {
		s.dirty = s.track.settle(m.Seq) || s.dirty
		s.mu.Unlock()
		return driver.ErrSettled
	}
	if s.care.counted {
		_, m.Alone = s.care.note.suspects[offset]
	}
	s.mu.Unlock()
	m.Place = s.topic
	switch order := s.r.sub.Policy.Order; {
	case order == redeliver.Unordered, order == redeliver.PerKey: // which has lines, see keyTurns
	case order == redeliver.Blocking && s.level == nil:
		m.Key = 1
	case rec.Key != nil:
		// Two keys with one hash run one after another, which does no harm.
		m.Key = maphash.Bytes(seed, rec.Key) | 1
	}
	if s.level != nil {
		s.parseWaiting(m)
	} else {
		s.parseFirst(m)
	}
	s.weigh(m)
	s.inHand++
	return nil
}

// weigh adds a message to the bytes that were read ahead: what it takes in memory.
func (s *source) weigh(m *driver.Message[*sarama.ConsumerMessage]) {
	rec := m.Record
	size := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		if h != nil {
			size += len(h.Key) + len(h.Value) + headerBytes
		}
	}
	m.Size = size
	s.track.of(m.Seq).bytes = int32(size)
	s.bytes += size
	s.r.bytes.Add(int64(size))
}

// parseFirst reads a record of the origin.
func (s *source) parseFirst(m *driver.Message[*sarama.ConsumerMessage]) {
	dead, found := s.r.readDeadLetter(m.Record)
	if dead != nil {
		st := new(redeliver.State)
		s.r.codec().State(m, st)
		st.DeadLetter = dead
		if dead.ID != "" {
			st.ID = dead.ID
		}
		m.State = st
	}
	if s.r.sub.Sink != nil {
		if found = append(found, strangers(m.Record.Headers)...); found != nil {
			id := uuidOf(m.Record)
			if m.State != nil {
				id = m.State.ID
			}
			s.r.sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: id, Findings: found})
		}
	}
	if s.keys != nil {
		s.keys.first(m)
	}
}

// lift takes a message off the bytes that were read ahead: it begins, or is gone.
func (s *source) lift(m *driver.Message[*sarama.ConsumerMessage]) {
	r := s.track.of(m.Seq)
	was := s.paused && !s.isLight()
	s.bytes -= int(r.bytes)
	s.r.bytes.Add(-int64(r.bytes))
	r.bytes = 0
	if was && s.isLight() {
		s.lane.Post(s.balance)
	}
}

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*sarama.ConsumerMessage]) {
	s.mu.Lock()
	s.lift(m)
	moved := s.track.settle(m.Seq)
	s.settled++
	s.dirty = true
	s.mu.Unlock()
	s.inHand--
	if moved && s.narrow {
		s.narrow = false
		s.lane.Post(func() {}) // those ask again that were too far ahead
	}
	if moved && s.paused {
		s.balance() // the lane may have as much room as before
	}
}

// Return implements [driver.Source]: the message stays unsettled, and is read again.
func (s *source) Return(m *driver.Message[*sarama.ConsumerMessage], _ time.Duration, _ bool) {
	s.mu.Lock()
	s.lift(m)
	s.care.gone(m, false)
	s.mu.Unlock()
	s.inHand--
	if s.keys != nil {
		s.keys.giveUp(m)
	}
}

// Commit implements [driver.Source]: the committer looks by itself.
func (s *source) Commit() {}

// Flush implements [driver.Source].
func (s *source) Flush(ctx context.Context) {
	if s.alarm != nil {
		s.alarm.Stop()
	}
	s.mu.Lock()
	s.care.depart()
	s.mu.Unlock()
	s.commitLast(ctx)
	s.commits.remove(s)
	s.r.bytes.Add(-int64(s.bytes))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.care.close()
}

// mark is what may be committed. The caller holds mu, or is the lane's goroutine.
func (s *source) mark() int64 { return max(s.track.mark, s.from) }

// Accept implements [driver.Source].
func (s *source) Accept(n int) {
	s.room = n
	s.balance()
}

// balance pauses the partition when enough of it is in hand, and has it read on when there is room, with some distance: a
// partition is not to pause and resume for every record.
//
// A full source pauses, and goes on taking what comes all the same, which is a fetch or two: a partition whose records nobody
// takes holds up the fetches of all others from the same broker, and a cooperative revocation shows only behind them.
func (s *source) balance() {
	pauses, now := s.paused, time.Now()
	switch {
	case !s.paused:
		pauses = s.room == 0 || s.isHeavy() || s.span() >= maxSpan || s.level != nil && s.inHand >= holdSoft && (s.inHand >= holdHard || s.lastDue.Sub(now) >= soon)
	case s.room >= resumeAhead && s.isLight() && s.span() <= maxSpan*7/8:
		pauses = s.level != nil && s.inHand > holdSoft/4 && (s.inHand >= holdHard*7/8 || s.lastDue.Sub(now) >= soon)
	}
	if s.keys != nil && (s.room == 0 || s.isHeavy()) {
		s.keys.makeRoom()
	}
	if pauses != s.paused {
		s.paused = pauses
		partition := map[string][]int32{s.topic: {s.partition}}
		if pauses {
			s.r.group.Pause(partition)
		} else {
			s.r.group.Resume(partition)
		}
	}
	if wait := s.lastDue.Sub(now) - soon; s.paused && s.level != nil && wait > 0 {
		s.lookIn(wait)
	}
}

// lookIn has the source look whether it is to read on after a while.
func (s *source) lookIn(wait time.Duration) {
	if s.alarm == nil {
		s.alarm = time.AfterFunc(wait, func() { s.lane.Post(s.balance) })
		return
	}
	s.alarm.Reset(wait)
}

// span is how many records lie between the lowest unsettled one and the end of what was read.
func (s *source) span() int { return int(s.track.next - s.track.first) }

// isHeavy reports whether the source must not read on because of the bytes, and isLight whether one that was heavy may.
func (s *source) isHeavy() bool { return s.bytes >= aheadLeast && s.r.bytes.Load() >= aheadBytes }
func (s *source) isLight() bool { return s.bytes <= aheadLeast/2 || s.r.bytes.Load() <= aheadBytes/2 }
