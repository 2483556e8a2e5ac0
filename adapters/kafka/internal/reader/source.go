package reader

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/commitmeta"
	"github.com/redeliver/redeliver/adapters/kafka/internal/perkey"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/adapters/kafka/internal/settle"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// Bounds of the records that a source holds in memory.
const (
	maxReadAhead  = 4096 // records that wait for a slot or their key
	minResumeRoom = 1024 // free places at which a full partition resumes
	softMaxHeld   = 1024 // waiting records at which a partition pauses
	maxHeld       = 4096 // the same if the last of them is due within dueSoon
	dueSoon       = time.Second

	// Bounds of the bytes that all sources of a Subscribe have read ahead. They bound large messages, as maxReadAhead
	// and softMaxHeld bound small ones.
	maxAheadBytes = 32 << 20 // total above which a partition with at least minAheadBytes pauses
	minAheadBytes = 1 << 20

	// headerBytes is the memory of a header beside its name and value: a pointer and two slices.
	headerBytes = 64
)

// source reads one partition in one session. It implements driver.Source and gates its own messages.
type source struct {
	r         *Reader
	session   *Session
	claim     sarama.ConsumerGroupClaim
	topic     string
	partition int32
	from      int64         // first offset of the session
	onLevel   bool          // messages wait on the topic; it is not the origin
	level     time.Duration // of the topic; 0 for the retry topic
	progress  *settle.Partition
	lane      driver.Lane[*sarama.ConsumerMessage]

	// Used only by the lane's goroutine.
	room        int // messages that the lane can still accept
	paused      bool
	heldCount   int                     // messages
	bytesAhead  int                     // of messages that have not begun
	lastDue     time.Time               // due time of the waiting message that was read last
	resumeTimer *time.Timer             // resumes the partition when lastDue is near
	records     settle.Ring[recordInfo] // numbered as in progress
	released    int64                   // messages written by this time (Unix milliseconds) are due
	keys        *perkey.Gate            // nil unless the Order is OrderThroughRetries
	spanFull    bool                    // messages wait because they are too far ahead of the lowest unsettled one
}

// recordInfo is the state of a record that is not settled.
type recordInfo struct {
	bytes   int32      // in memory, until it begins
	waiting *waitState // nil for a first delivery without a key queue
}

// queuedCopy returns the record's copy in a key queue, or nil.
func (r *recordInfo) queuedCopy() *perkey.Copy {
	if r.waiting == nil {
		return nil
	}
	return r.waiting.queued
}

var (
	_ driver.Source[*sarama.ConsumerMessage] = (*source)(nil)
	_ engine.Gater[*sarama.ConsumerMessage]  = (*source)(nil)
)

// newSource returns the source of a claim that is read from an offset. last is what the last owner of the partition
// left.
func newSource(session *Session, sess sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim, from int64, last claimMeta) *source {
	s := &source{r: session.reader, session: session, claim: claim, topic: claim.Topic(), partition: claim.Partition(), from: from}
	s.level, s.onLevel = session.levels[s.topic]
	s.progress = settle.NewPartition(session.commits, s.settleConfig(sess, last))
	return s
}

// run reads the partition until it is revoked or the session's ctx ends. Then it waits for messages in flight.
func (s *source) run(ctx context.Context) {
	if s.onLevel {
		defer s.r.sweeper.Add(s.topic, s.session.topicIDs[s.topic], s.partition, s.from)()
	}
	stopListening := func() {}
	defer func() { stopListening() }()
	s.r.engine.RunLane(ctx, s.r.values, s, engine.LaneOptions[*sarama.ConsumerMessage]{
		MaxAhead: maxReadAhead + s.r.Sub.MaxInFlight + s.r.Sub.MaxRetriesInFlight, MaxWaiting: maxHeld,
		DrainTimeout: s.r.DrainTimeout, MoveTimeout: s.r.RebalanceDrain, Hurry: s.session.hurry.Done(),
		Gaters: []engine.Gater[*sarama.ConsumerMessage]{s},
	}, func(l driver.Lane[*sarama.ConsumerMessage]) {
		s.lane = l
		s.progress.Start(l)
		if s.onLevel {
			stopListening = s.r.commands.Listen(func() { l.Post(s.applyReleases) })
			l.Post(s.applyReleases)
		}
		// Paused partitions stay paused across sessions.
		s.r.Group.Resume(map[string][]int32{s.topic: {s.partition}})
	})
}

// Messages implements [driver.Source].
func (s *source) Messages() <-chan *sarama.ConsumerMessage { return s.claim.Messages() }

// Lost implements [driver.Source]. It returns nil: the broker refuses commits of a session that is over.
func (s *source) Lost() <-chan struct{} { return nil }

// Stop implements [driver.Source]. It returns nil: a claim needs no stop.
func (s *source) Stop() <-chan struct{} {
	s.progress.Drains()
	return nil
}

var seed = maphash.MakeSeed()

// Parse implements [driver.Source].
func (s *source) Parse(m *driver.Message[*sarama.ConsumerMessage]) error {
	err := s.progress.Add(m)
	s.records.Add(recordInfo{})
	if err != nil {
		if s.keys != nil && !s.onLevel {
			s.keys.Skip(m.Record)
		}
		return err
	}
	rec := m.Record
	m.Place = s.topic
	unread := engine.CheckHeaderCount(len(rec.Headers), s.onLevel)
	if unread != nil {
		rec.Headers = record.CutHeaders(rec.Headers)
	}
	switch order := s.r.Sub.Policy.Order; {
	case order == redeliver.OrderNone:
	case order == redeliver.OrderThroughRetries && (s.onLevel || !s.r.Sub.HasBatches()): // see package perkey
	case order == redeliver.OrderBlocking && !s.onLevel:
		m.Key = 1
	case rec.Key != nil:
		// If two keys have one hash, they run one after another, which does no harm.
		m.Key = maphash.Bytes(seed, rec.Key) | 1
	}
	if s.onLevel {
		s.parseWaiting(m)
	} else {
		s.parseFirst(m)
	}
	if unread != nil {
		s.makeStub(m, unread)
	}
	s.addBytes(m)
	s.heldCount++
	return nil
}

// makeStub makes a message go to the DLQ without its headers and its body.
func (s *source) makeStub(m *driver.Message[*sarama.ConsumerMessage], why error) {
	st, rec := new(redeliver.State), m.Record
	s.r.codec().State(m, st)
	engine.MakeStub(m, st, rec.Value, why)
	rec.Headers, rec.Value = nil, nil
}

// addBytes counts the memory of a message as read ahead.
func (s *source) addBytes(m *driver.Message[*sarama.ConsumerMessage]) {
	rec := m.Record
	size := len(rec.Key) + len(rec.Value)
	for _, h := range rec.Headers {
		if h != nil {
			size += len(h.Key) + len(h.Value) + headerBytes
		}
	}
	m.Size = size
	s.records.At(m.Seq).bytes = int32(size)
	s.bytesAhead += size
	s.r.bytesAhead.Add(int64(size))
}

// parseFirst parses a record of the origin.
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
	if s.r.Sub.Sink != nil {
		if found = append(found, record.ForeignHeaders(m.Record.Headers)...); found != nil {
			id := record.ID(m.Record)
			if m.State != nil {
				id = m.State.ID
			}
			s.r.Sub.Emit(redeliver.HeadersIgnored{Topic: s.topic, ID: id, Findings: found})
		}
	}
	if head := s.progress.HeadOf(m); head.Known() {
		s.inherit(m, &head)
	}
	if s.keys != nil {
		if c := s.keys.PlaceFirst(m); c != nil {
			s.records.At(m.Seq).waiting = &waitState{queued: c}
			// A suspect must not overtake others before the lane has asked about its key. crash.Gate sets Alone again.
			m.Alone = false
		}
	}
}

// inherit gives a message the state that an earlier owner of the partition noted when the message failed and kept its
// place. If the order is another one now, it waits in its place all the same.
func (s *source) inherit(m *driver.Message[*sarama.ConsumerMessage], head *commitmeta.Head) {
	st := new(redeliver.State)
	s.r.codec().State(m, st)
	head.Restore(st)
	if latest := limits.CeilMilli(time.Now().UTC().Add(limits.MaxBlock)); st.Due.After(latest) { // the clock of the last owner is wrong
		st.Due = latest
	}
	m.State, m.Retry, m.InPlace, m.Until = st, true, true, st.Due
}

// removeBytes stops counting a message as read ahead, because it begins or has left the lane.
func (s *source) removeBytes(m *driver.Message[*sarama.ConsumerMessage]) {
	r := s.records.At(m.Seq)
	wasHeavy := s.paused && !s.isLight()
	s.bytesAhead -= int(r.bytes)
	s.r.bytesAhead.Add(-int64(r.bytes))
	r.bytes = 0
	if wasHeavy && s.isLight() {
		s.lane.Post(s.balance)
	}
}

// Settle implements [driver.Source].
func (s *source) Settle(m *driver.Message[*sarama.ConsumerMessage]) {
	s.removeBytes(m)
	s.records.At(m.Seq).waiting = nil
	moved := s.records.RemoveBelow(s.progress.Settle(m.Seq))
	s.heldCount--
	if moved && s.spanFull {
		s.spanFull = false
		s.lane.Post(func() {}) // ask again for the messages that were too far ahead
	}
	if moved && s.paused {
		s.balance() // the lane's room alone may not have changed
	}
}

// Return implements [driver.Source]. The message stays unsettled and will be read again.
func (s *source) Return(m *driver.Message[*sarama.ConsumerMessage], _ time.Duration, _ bool) {
	s.removeBytes(m)
	s.progress.Returned(m, s.r.Sub.KeepsPlace)
	s.heldCount--
	if s.keys != nil {
		s.keys.Returned(s.records.At(m.Seq).queuedCopy())
	}
}

// Commit implements [driver.Source]. It does nothing: the committer polls for changes.
func (s *source) Commit() {}

// Flush implements [driver.Source].
func (s *source) Flush(ctx context.Context) {
	if s.resumeTimer != nil {
		s.resumeTimer.Stop()
	}
	s.progress.Finish(ctx)
	s.r.bytesAhead.Add(-int64(s.bytesAhead))
}

// Accept implements [driver.Source].
func (s *source) Accept(n int) {
	s.room = n
	s.balance()
}

// balance pauses the partition when it holds enough, and resumes it when there is room. The two thresholds differ, so
// that a partition does not pause and resume for every record.
//
// A paused source still accepts records that have been fetched, which are one or two fetches. Unread records of a
// partition would block the fetches of all other partitions of the same broker, and a cooperative revocation would wait
// behind them.
func (s *source) balance() {
	pauses, now := s.paused, time.Now()
	switch {
	case !s.paused:
		pauses = s.room == 0 || s.isHeavy() || s.progress.Span() >= settle.MaxSpan || s.holdsMany(softMaxHeld, maxHeld, now)
	case s.room >= minResumeRoom && s.isLight() && s.progress.Span() <= settle.MaxSpan*7/8:
		pauses = s.holdsMany(softMaxHeld/4+1, maxHeld*7/8, now)
	}
	switch {
	case s.keys == nil:
	case s.isHeavy():
		s.keys.ParkWaiting(1)
	case s.room == 0:
		s.keys.ParkWaiting(maxReadAhead / 2)
	}
	if pauses != s.paused {
		s.paused = pauses
		partition := map[string][]int32{s.topic: {s.partition}}
		if pauses {
			s.r.Group.Pause(partition)
		} else {
			s.r.Group.Resume(partition)
		}
	}
	if wait := s.lastDue.Sub(now) - dueSoon; s.paused && s.onLevel && wait > 0 {
		s.balanceAfter(wait)
	}
}

// holdsMany reports whether the source holds at least hardMax waiting records, or softMax and the last of them is not
// due soon.
func (s *source) holdsMany(softMax, hardMax int, now time.Time) bool {
	return s.onLevel && (s.heldCount >= hardMax || s.heldCount >= softMax && s.lastDue.Sub(now) >= dueSoon)
}

// balanceAfter calls balance after a while.
func (s *source) balanceAfter(wait time.Duration) {
	if s.resumeTimer == nil {
		s.resumeTimer = time.AfterFunc(wait, func() { s.lane.Post(s.balance) })
		return
	}
	s.resumeTimer.Reset(wait)
}

// isHeavy reports whether the source must pause because of its bytes.
func (s *source) isHeavy() bool {
	return s.bytesAhead >= minAheadBytes && s.r.bytesAhead.Load() >= maxAheadBytes
}

// isLight reports whether the bytes of the source let it resume.
func (s *source) isLight() bool {
	return s.bytesAhead <= minAheadBytes/2 || s.r.bytesAhead.Load() <= maxAheadBytes/2
}
