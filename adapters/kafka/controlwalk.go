package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// walkWindow is how many copies of one partition may be confirmed and their
	// originals not yet noted as settled: as many duplicates a crash may leave.
	walkWindow = 100
	// walkMargin is how long before a record comes due it is left to its lane.
	walkMargin = time.Second
	// tailEvery is how often a walker that has come to the end looks for what hopped
	// there meanwhile from a longer level, and tailPause how long it pauses after an error.
	tailEvery = 5 * time.Second
	tailPause = time.Second
)

// walker searches one partition of a delay topic, or of the way back, for what the
// commands take, from the committed offset on, beside the lane that reads it in order.
type walker struct {
	c *control
	a *ahead

	log     logReader
	refused map[int64]struct{} // copies of these the broker does not take
	failed  bool
}

// hit is a record that a command takes.
type hit struct {
	rec   fetched
	users []*sarama.RecordHeader
	state redeliver.State
	until time.Time // when its lane lets it go
	cmd   *deadletter.Command
	cause error // why it is cancelled; nil where it is released
}

// run searches while there are commands, anew when there are others, until ctx ends.
func (w *walker) run(ctx context.Context) {
	w.refused = make(map[int64]struct{})
	defer w.fails(nil)
	for ctx.Err() == nil {
		s := w.c.standing.Load()
		if s == nil {
			return
		}
		if err := w.obey(ctx, s); err != nil && ctx.Err() == nil {
			w.fails(err)
			w.nap(ctx, s, tailPause)
		}
	}
}

// fails notes whether the walker can go on.
func (w *walker) fails(err error) {
	if failed := err != nil; failed != w.failed {
		w.failed = failed
		w.c.hold(err)
	}
}

// errOthers ends a search: other commands stand now.
var errOthers = errors.New("there are other commands")

// nap waits; it is false when the commands have changed, or ctx has ended.
func (w *walker) nap(ctx context.Context, s *standing, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.over:
	case <-ctx.Done():
	}
	return false
}

// obey searches the partition for what the commands take: first for those that keep no
// rate, so that a slow one does not hold them up, then for all, and goes on with what
// hops there until other commands stand.
func (w *walker) obey(ctx context.Context, s *standing) error {
	client, err := w.c.connection(ctx)
	if err != nil {
		return err
	}
	w.log = logReader{client: client, topic: w.a.topic}
	if w.c.r.sub.Policy.Order == redeliver.PerKey {
		// A message is released or cancelled out of the line of its key only where
		// its lane has it in hand, and that is when it is due.
		s = w.keepLines(s)
	}
	if len(s.commands) == 0 {
		w.nap(ctx, s, time.Hour)
		return nil
	}
	// Where nothing can be noted nothing is copied: it would be done again and again.
	for i := range s.commands {
		w.c.tally(s.commands[i].ID, w.a.at, func(*progress) {})
	}
	if err := w.a.write(ctx); err != nil {
		return err
	}
	quick := &standing{over: s.over}
	for _, cmd := range s.commands {
		if cmd.Rate == 0 {
			quick.commands = append(quick.commands, cmd)
		}
	}
	at, ok := w.c.r.owned.markOf(w.a.topic, w.a.at.partition)
	if !ok { // its lane has ended
		w.nap(ctx, s, tailPause)
		return nil
	}
	end := at
	for _, part := range []*standing{quick, s} {
		if len(part.commands) == 0 || part == s && len(quick.commands) == len(s.commands) {
			continue
		}
		if end, err = w.search(ctx, part, at); err != nil {
			return ended(err)
		}
		for i := range part.commands {
			w.c.tally(part.commands[i].ID, w.a.at, func(p *progress) { p.Walked = true })
		}
	}
	w.fails(nil)
	for w.nap(ctx, s, tailEvery) {
		if end, err = w.search(ctx, s, end); err != nil {
			return ended(err)
		}
	}
	return nil
}

// ended is the error of a search, where it is one.
func ended(err error) error {
	if errors.Is(err, errOthers) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// keepLines says of commands what an order by key allows.
func (w *walker) keepLines(s *standing) *standing {
	for i := range s.commands {
		cmd := &s.commands[i]
		w.c.tally(cmd.ID, w.a.at, func(p *progress) {
			p.Note = "the Order of the policy is PerKey: what is cancelled goes to the DLQ when it is due"
			if cmd.Kind == deadletter.ReleaseWaiting {
				p.Note = "the Order of the policy is PerKey: nothing is released"
			}
		})
	}
	return &standing{over: s.over}
}

// search goes from an offset to the present end of the partition, and returns that.
func (w *walker) search(ctx context.Context, s *standing, from int64) (int64, error) {
	partition := w.a.at.partition
	start, end, err := w.log.bounds(ctx, partition)
	if err != nil {
		return from, err
	}
	if end < from { // it was deleted and made anew
		w.a.anew()
		clear(w.refused)
		from = start
	}
	pages := w.c.pages
	if slices.ContainsFunc(s.commands, func(c deadletter.Command) bool { return c.Rate > 0 }) {
		pages = w.c.slowPages
	}
	for from < end {
		select {
		case pages <- struct{}{}:
		case <-s.over:
			return from, errOthers
		case <-ctx.Done():
			return from, ctx.Err()
		}
		p, err := w.log.read(ctx, partition, from)
		if err == nil {
			err = w.page(ctx, s, &p, end)
		}
		<-pages
		if err != nil {
			return from, err
		}
		if p.end && p.next <= from {
			break // somebody's transaction is open
		}
		from = p.next
	}
	return min(from, end), nil
}

// page does what the commands say to the records of a page.
func (w *walker) page(ctx context.Context, s *standing, p *page, end int64) error {
	var hits []*hit
	most := func(c *deadletter.Command) int {
		if c.Rate <= 0 {
			return walkWindow
		}
		return min(walkWindow, max(1, int(w.share(c)/4))) // so that the rate is even
	}
	for i := range p.records {
		if p.records[i].offset >= end {
			break
		}
		h := w.look(s, &p.records[i])
		if h == nil {
			continue
		}
		if n := len(hits); n > 0 && (hits[0].cmd != h.cmd || n >= most(h.cmd)) {
			if err := w.carryOut(ctx, s, hits); err != nil {
				return err
			}
			hits = hits[:0]
		}
		hits = append(hits, h)
	}
	if len(hits) > 0 {
		return w.carryOut(ctx, s, hits)
	}
	return nil
}

// look says what is to become of a record; nil for one that stays.
func (w *walker) look(s *standing, rec *fetched) *hit {
	now := time.Now()
	if _, no := w.refused[rec.offset]; no || w.a.pass(rec.offset, rec.at) {
		return nil
	}
	users, ours := split(rec.headers)
	m := &sarama.ConsumerMessage{Key: rec.key, Value: rec.value, Headers: users, Timestamp: rec.at}
	stay := w.c.r.arrive(m, ours, w.c.r.levels[w.a.topic])
	if stay.Until.Sub(now) <= walkMargin {
		return nil // its lane has it, or is about to
	}
	seen := waitingMessage(&record{ConsumerMessage: m}, stay.State)
	seen.Time = rec.at
	cmd := s.choose(seen, w.a.at.level, now)
	if cmd == nil {
		return nil
	}
	return &hit{rec: *rec, users: users, state: *stay.State, until: stay.Until, cmd: cmd}
}
