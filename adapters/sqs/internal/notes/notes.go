// Package notes keeps the attempts of the messages that wait in a FIFO queue. Such a message keeps its place, so it is not written
// again, and SQS counts only receives, also those of messages that wait behind another one. So a standard queue beside it has
// a [note] of each message that has failed.
//
// A process holds the notes of its messages: it receives them and hides them for as long as their messages, or a little less. So
// it can replace and delete them, and others receive few notes that are not theirs. When it dies, its notes become visible
// before its messages. The process that gets such a message looks for its note: see [Queue.Find].
//
// A message is identified by its MessageId, which never comes again. So a note that is left behind is harmless. It is
// deleted when its message must have expired.
package notes

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/statekeys"
	"github.com/redeliver/redeliver/internal/wait"
)

const (
	// lookWait is the wait of a receive. One without a wait does not ask all of SQS's servers.
	lookWait = time.Second
	// maxLooks is how often Find looks for a note of which others may hold.
	maxLooks = 2
	// maxHeldForOthers bounds how long one look hides notes that are not ours.
	maxHeldForOthers = 5 * time.Second
	// maxLookTime is how long a process looks for a note that it has written. Afterwards it leaves the note behind.
	maxLookTime = time.Minute
	minPause    = 200 * time.Millisecond
	maxPause    = 5 * time.Second

	requestWorkers = 4
	requestLinger  = 5 * time.Millisecond
)

// Options describe the notes of one FIFO queue.
type Options struct {
	Queue   *api.Queue // of the notes
	Group   string     // the FIFO queue
	Keys    wire.Keys
	Visible time.Duration        // the visibility timeout of the messages
	Timeout time.Duration        // of a request
	Kept    func() time.Duration // for how long the FIFO queue keeps a message; 0 means unknown
	// Send writes a note, and creates the queue again if it was deleted.
	Send func(o wire.Outgoing, done func(error))
}

// note is the note of one message. The queue's lock guards it.
type note struct {
	id    string // of its message
	state redeliver.State
	known bool // SQS has a note with this state
	ended bool

	receipt    string // of the newest note; "" if this process does not hold it
	noteID     string // its MessageId
	receivedAt time.Time
	until      time.Time // hidden, by the local clock
	lookUntil  time.Time // look for it until then, if it is not held
}

// find is one search for the notes of messages.
type find struct {
	missing map[string]bool
	looks   int
	err     error         // of the last look
	done    chan struct{} // closed at the end
}

// Queue reads and writes the notes for one reader of a FIFO queue. It is safe for concurrent use.
type Queue struct {
	Options
	hidden   time.Duration // how long a held note is hidden
	deletes  *api.Batcher[deletion]
	changes  *api.Batcher[change]
	requests sync.WaitGroup
	wake     chan struct{}

	mu    sync.Mutex
	notes map[string]*note // by message
	finds []*find
}

// deletion deletes a version of a note.
type deletion struct {
	receipt string
	done    func(error)
}

// change changes the visibility of a note.
type change struct {
	receipt string
	d       time.Duration
	done    func(error)
}

// New returns the notes. Nothing is read before Run.
func New(opt Options) *Queue {
	q := &Queue{Options: opt, hidden: max(time.Second, opt.Visible/3), wake: make(chan struct{}, 1), notes: make(map[string]*note)}
	q.deletes = api.NewBatcher(requestLinger, requestWorkers, 0, nil, q.deleteBatch)
	q.changes = api.NewBatcher(requestLinger, requestWorkers, 0, nil, q.changeBatch)
	return q
}

// Run reads the notes that are needed until ctx ends. Then it gives back those that it holds.
func (q *Queue) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { q.runHeartbeats(ctx) })
	q.runLooks(ctx)
	all.Wait()
	if q.hasEnded() { // they have been written, and not received
		lastCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*lookWait)
		q.look(lastCtx, nil)
		cancel()
	}
	q.mu.Lock()
	for id := range q.notes {
		q.releaseLocked(id, 0)
	}
	for _, f := range q.finds {
		close(f.done)
	}
	q.finds = nil
	q.mu.Unlock()
	q.requests.Wait()
}

// Find returns the states in the notes of messages that have come. It returns when it has all of them, or when nobody seems to
// hold another one. The error says that it could not look. A note that it does not find costs attempts that are not counted.
func (q *Queue) Find(ctx context.Context, ids []string) (map[string]redeliver.State, error) {
	f := &find{missing: make(map[string]bool), done: make(chan struct{})}
	q.mu.Lock()
	for _, id := range ids {
		if q.notes[id] == nil {
			f.missing[id] = true
		}
	}
	if len(f.missing) > 0 {
		q.finds = append(q.finds, f)
	} else {
		close(f.done)
	}
	q.mu.Unlock()
	q.wakeUp()
	var cut error
	select {
	case <-f.done:
	case <-ctx.Done():
		cut = ctx.Err()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropFindLocked(f)
	found := make(map[string]redeliver.State)
	for _, id := range ids {
		if n := q.notes[id]; n != nil && n.known {
			found[id] = n.state
		}
	}
	return found, cmp.Or(f.err, cut)
}

// Write writes the state of a message, unless SQS has it, and calls done from another goroutine. Only one write of a message
// runs at a time.
func (q *Queue) Write(id string, st *redeliver.State, done func(error)) {
	q.mu.Lock()
	n := q.notes[id]
	if n == nil {
		n = &note{id: id}
		q.notes[id] = n
	}
	if n.known && Compare(&n.state, st) == 0 {
		q.mu.Unlock()
		go done(nil)
		return
	}
	state := *st
	q.mu.Unlock()
	rec := wire.Record{Keys: q.Keys, FirstID: st.ID}
	rec.Body = &id
	o, _ := rec.NoteCopy(&state, q.Queue.MaxSize) // there is room for it: a queue takes 1 KiB
	q.Send(o, func(err error) {
		q.mu.Lock()
		if err == nil && (!n.known || Compare(&n.state, &state) < 0) {
			q.replaceLocked(n, &state)
			n.lookUntil = time.Now().Add(maxLookTime)
		}
		q.mu.Unlock()
		q.wakeUp()
		done(err)
	})
}

// Compare compares the states of one message by age. An attempt follows another one, and a message that is postponed is due later.
func Compare(a, b *redeliver.State) int {
	return cmp.Or(cmp.Compare(a.Attempts, b.Attempts), a.Due.Compare(b.Due))
}

// replaceLocked makes a newer note that of its message, and deletes the older one.
func (q *Queue) replaceLocked(n *note, st *redeliver.State) {
	n.known, n.state = true, *st
	if n.receipt != "" {
		q.deleteLocked(n.receipt, func(error) {}) // a later look finds it again
		n.receipt = ""
	}
}

// Remove deletes the note of a message that has ended.
func (q *Queue) Remove(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.notes[id]
	if n == nil {
		return
	}
	n.ended, n.lookUntil = true, time.Now().Add(maxLookTime)
	if n.receipt != "" {
		q.endLocked(n, n.receipt)
		return
	}
	q.wakeUp()
}

// endLocked deletes the newest note of a message that has ended. If SQS does not delete it, the process looks for it again, no longer
// than it would have.
func (q *Queue) endLocked(n *note, receipt string) {
	until := n.lookUntil
	n.receipt, n.lookUntil = "", time.Time{}
	q.deleteLocked(receipt, func(err error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if err == nil && q.notes[n.id] == n {
			delete(q.notes, n.id)
			return
		}
		if until.After(n.lookUntil) { // the zero time if another deletion is under way
			n.lookUntil = until
		}
		q.wakeUp()
	})
}

// Release gives back the note of a message that is given back, or lost. Others get the message after d.
func (q *Queue) Release(id string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.releaseLocked(id, d)
}

func (q *Queue) releaseLocked(id string, d time.Duration) {
	n := q.notes[id]
	if n == nil || n.ended {
		return
	}
	delete(q.notes, id)
	if n.receipt != "" {
		q.changeLocked(n.receipt, d, func(error) {}) // after an error its visibility timeout ends
	}
}

// hasEnded reports whether this process does not hold the note of a message that has ended.
func (q *Queue) hasEnded() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, n := range q.notes {
		if n.ended && !n.lookUntil.IsZero() {
			return true
		}
	}
	return false
}

func (q *Queue) wakeUp() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// runLooks looks for notes while some are needed, until ctx ends.
func (q *Queue) runLooks(ctx context.Context) {
	pause := minPause
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-q.wake:
		case <-ctx.Done():
			return
		}
		finds, wanted := q.needed()
		switch {
		case !wanted:
			pause = minPause
			continue
		case q.look(ctx, finds):
			pause = minPause
		default:
			pause = min(2*pause, maxPause)
		}
		timer.Reset(pause/2 + rand.N(pause)) // others look, too, and hide what they get
	}
}

// needed returns the searches, and reports whether any note is needed.
func (q *Queue) needed() (finds []*find, wanted bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for id, n := range q.notes {
		if n.receipt != "" {
			continue
		}
		if now.Before(n.lookUntil) {
			wanted = true
		} else if n.ended && !n.lookUntil.IsZero() {
			delete(q.notes, id)
		}
	}
	finds = append(finds, q.finds...)
	return finds, wanted || len(finds) > 0
}

// look receives notes until nothing more is needed or nothing more comes. It gives back those of others. It reports whether it
// has found one that was needed.
func (q *Queue) look(ctx context.Context, finds []*find) (found bool) {
	var foreign []string
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, receipt := range foreign {
			q.changeLocked(receipt, 0, func(error) {})
		}
	}()
	for began := time.Now(); ctx.Err() == nil && time.Since(began) < min(q.hidden, maxHeldForOthers); {
		receiveWait := lookWait
		if len(foreign) > 0 && len(finds) == 0 {
			receiveWait = 0
		}
		msgs, at, err := q.receive(ctx, receiveWait)
		if err != nil {
			looks := 0
			if api.IsRefusal(err) {
				looks = maxLooks
			}
			q.endFinds(finds, looks, err)
			return found
		}
		q.mu.Lock()
		for i := range msgs {
			if q.takeLocked(&msgs[i], at) {
				found = true
			} else {
				foreign = append(foreign, aws.ToString(msgs[i].ReceiptHandle))
			}
		}
		q.mu.Unlock()
		looks := 0
		if len(msgs) == 0 {
			if looks = 1; len(finds) > 0 && !q.othersHold(ctx, len(foreign)) {
				looks = maxLooks
			}
		}
		q.endFinds(finds, looks, nil)
		if _, wanted := q.needed(); len(msgs) == 0 || !wanted {
			return found
		}
	}
	return found
}

// receive is not cut short: SQS could still deliver notes to it, which would be hidden from all.
func (q *Queue) receive(ctx context.Context, receiveWait time.Duration) ([]types.Message, time.Time, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), receiveWait+q.Timeout)
	defer cancel()
	msgs, err := q.Queue.Receive(ctx, api.MaxBatch, receiveWait, q.hidden)
	return msgs, time.Now(), err
}

// othersHold reports whether others may hold notes, while this process holds as many that are not its own.
func (q *Queue) othersHold(ctx context.Context, foreign int) bool {
	ctx, cancel := context.WithTimeout(ctx, q.Timeout)
	defer cancel()
	counts, err := q.Queue.Count(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	own := foreign
	for _, n := range q.notes {
		if n.receipt != "" {
			own++
		}
	}
	return err != nil || counts.All() > int64(own)
}

// endFinds counts looks without a note, and ends the searches that have all, or have looked often enough.
func (q *Queue) endFinds(finds []*find, looks int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, f := range finds {
		f.err = err
		if f.looks += looks; len(f.missing) > 0 && f.looks < maxLooks {
			continue
		}
		if q.dropFindLocked(f) {
			close(f.done)
		}
	}
}

// dropFindLocked drops a search, and reports whether it was under way.
func (q *Queue) dropFindLocked(f *find) bool {
	i := slices.Index(q.finds, f)
	if i >= 0 {
		q.finds = slices.Delete(q.finds, i, i+1)
	}
	return i >= 0
}

// takeLocked takes a note that was received, if it is needed, or deletes it. It returns false if it belongs to others.
func (q *Queue) takeLocked(m *types.Message, at time.Time) bool {
	receipt, noteID := aws.ToString(m.ReceiptHandle), aws.ToString(m.MessageId)
	id, st, ok := q.parse(m)
	if sent := wire.SentAt(m); !ok || q.Kept() > 0 && !sent.IsZero() && at.Sub(sent) > q.Kept() { // its message has expired
		q.deleteLocked(receipt, func(error) {})
		return true
	}
	n := q.notes[id]
	for _, f := range q.finds {
		if f.missing[id] {
			delete(f.missing, id)
			if n == nil {
				n = &note{id: id}
				q.notes[id] = n
			}
		}
	}
	if n == nil {
		return false
	}
	age := 1
	if n.known {
		age = Compare(&st, &n.state)
	}
	switch {
	case age > 0:
		q.replaceLocked(n, &st)
	case age < 0, n.receipt != "" && n.noteID != noteID: // it is older, or was written twice
		q.deleteLocked(receipt, func(error) {})
		return true
	}
	if n.ended {
		q.endLocked(n, receipt)
		return true
	}
	n.receipt, n.noteID, n.receivedAt, n.until = receipt, noteID, at, at.Add(q.hidden)
	return true
}

// parse reads a note. ok is false if it is none that the keys allow.
func (q *Queue) parse(m *types.Message) (id string, st redeliver.State, ok bool) {
	_, c := wire.NewRecord(m, q.Group, statekeys.Note, q.Keys)
	if c == nil || aws.ToString(m.Body) == "" {
		return "", st, false
	}
	st, _ = driver.ParseHeaders(q.Group, c.Headers)
	return aws.ToString(m.Body), st, true
}

// runHeartbeats keeps the held notes hidden until ctx ends: beyond the time when their messages are due.
func (q *Queue) runHeartbeats(ctx context.Context) {
	for wait.For(ctx, q.hidden/5) == nil {
		q.mu.Lock()
		now := time.Now()
		for _, n := range q.notes {
			if n.receipt == "" {
				continue
			}
			if !now.Before(n.until) { // others may have it
				n.receipt, n.lookUntil = "", now.Add(maxLookTime)
				q.wakeUp()
				continue
			}
			end := now
			if n.state.Due.After(now) {
				end = n.state.Due
			}
			end = end.Add(q.hidden)
			if latest := n.receivedAt.Add(12*time.Hour - 2*time.Second); end.After(latest) {
				end = latest
			}
			if end.Sub(n.until) > q.hidden*2/5 {
				q.extendLocked(n, now, end)
			}
		}
		q.mu.Unlock()
	}
}

// extendLocked hides a note until end.
func (q *Queue) extendLocked(n *note, now, end time.Time) {
	receipt, d := n.receipt, end.Sub(now).Truncate(time.Second)
	q.changeLocked(receipt, d, func(err error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case n.receipt != receipt:
		case err == nil:
			n.until = now.Add(d)
		case api.IsStaleReceipt(err):
			n.receipt, n.lookUntil = "", time.Now().Add(maxLookTime)
			q.wakeUp()
		}
	})
}

func (q *Queue) deleteLocked(receipt string, done func(error)) {
	q.requests.Add(1)
	q.deletes.Add(deletion{receipt, done})
}

func (q *Queue) deleteBatch(all []deletion) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Timeout)
	defer cancel()
	receipts := make([]string, len(all))
	for i, d := range all {
		receipts[i] = d.receipt
	}
	results, _ := q.Queue.DeleteReceipts(ctx, receipts) // the queue's OnResult reports errors
	for i, d := range all {
		d.done(results[i])
		q.requests.Done()
	}
}

func (q *Queue) changeLocked(receipt string, d time.Duration, done func(error)) {
	q.requests.Add(1)
	q.changes.Add(change{receipt, d, done})
}

func (q *Queue) changeBatch(all []change) {
	ctx, cancel := context.WithTimeout(context.Background(), q.Timeout)
	defer cancel()
	hidings := make([]api.Hiding, len(all))
	for i, c := range all {
		hidings[i] = api.Hiding{Receipt: c.receipt, Seconds: int32(max(0, c.d) / time.Second)}
	}
	results, _ := q.Queue.HideReceipts(ctx, hidings) // the queue's OnResult reports errors
	for i, c := range all {
		c.done(results[i])
		q.requests.Done()
	}
}
