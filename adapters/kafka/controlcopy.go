package kafka

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

// share is this process's part of a command's rate: that of the levels' partitions that
// it reads. Those of its partitions that have nothing leave theirs to the others.
func (w *walker) share(cmd *deadletter.Command) float64 {
	mine, all := 0, 0
	counts := func(level time.Duration) bool {
		return len(cmd.Filter.Levels) == 0 || slices.Contains(cmd.Filter.Levels, delayqueue.LevelName(level))
	}
	w.c.mu.Lock()
	for a := range w.c.aheads {
		if counts(a.at.level) {
			mine++
		}
	}
	w.c.mu.Unlock()
	for topic, level := range w.c.r.levels {
		if counts(level.level) {
			ps, err := w.log.client.Partitions(topic)
			if err != nil {
				all++ // at least; the rate is a little more than it should be
			}
			all += len(ps)
		}
	}
	return cmd.Rate * float64(max(1, mine)) / float64(max(1, mine, all))
}

// carryOut releases or cancels hits of one command: copied and confirmed first, then
// settled, then noted.
func (w *walker) carryOut(ctx context.Context, s *standing, hits []*hit) error {
	cmd := hits[0].cmd
	if cmd.Rate > 0 && !w.nap(ctx, s, w.c.pace(cmd.ID, len(hits), w.share(cmd))) {
		return errOthers
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.over:
		return errOthers
	default:
	}
	taken := w.a.take(hits, time.Now())
	// What is on its way is waited for, and what is confirmed is noted, although the
	// partition may be revoked meanwhile: it would be there twice.
	last, cancel := outlive(ctx, w.c.r.lastWords())
	defer cancel()
	done, where, err := w.copy(last, taken)
	w.a.settle(taken, done)
	w.c.tally(cmd.ID, w.a.at, func(p *progress) {
		if cmd.Kind == deadletter.CancelWaiting {
			p.Cancelled += int64(len(done))
		} else {
			p.Released += int64(len(done))
		}
	})
	for _, h := range done {
		w.a.told(h, where)
	}
	return errors.Join(err, w.insist(last, w.a.write))
}

// outlive is a context that ends so long after ctx: nothing that is on its way is given
// up before, however long it takes. The producer answers for every record, and who does
// not wait for that writes it once more.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	last, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-last.Done():
		}
	})
	return last, func() { stop(); cancel() }
}

// insist notes what is done, whatever the commands are by now, until last ends.
func (w *walker) insist(last context.Context, note func(context.Context) error) error {
	failed := false
	for {
		err := note(last)
		if err == nil {
			if failed {
				w.fails(nil)
			}
			return nil
		}
		if last.Err() == nil {
			failed = true
			w.fails(err)
		}
		if !w.nap(last, &standing{}, tailPause) {
			return err
		}
	}
}

// copy writes hits to where they go, and returns those that are confirmed. A record
// that the broker will never take there stays where it is.
func (w *walker) copy(ctx context.Context, hits []*hit) (done []*hit, where string, err error) {
	r := w.c.r
	now := time.Now()
	waits := make([]*confirm, len(hits))
	for i, h := range hits {
		where = w.send(h, now)
		var m sarama.ProducerMessage
		(&record{ConsumerMessage: &sarama.ConsumerMessage{Key: h.rec.key, Value: h.rec.value, Headers: h.users}}).produce(&m, where, &h.state)
		partition := anyPartition
		if h.state.Source.Known {
			partition = h.state.Source.Partition
		}
		c, serr := r.client.producer.start(ctx, &m, partition)
		if serr != nil {
			err = errors.Join(err, serr)
			continue
		}
		waits[i] = c
	}
	for i, h := range hits {
		if waits[i] == nil {
			continue
		}
		switch werr := refused(waits[i].wait(ctx)); {
		case werr == nil:
			done = append(done, h)
		case errors.Is(werr, delayqueue.ErrRefused):
			w.refused[h.rec.offset] = struct{}{}
			w.c.tally(h.cmd.ID, w.a.at, func(p *progress) {
				p.Refused++
				p.Note = redeliver.Cut(werr.Error(), 200)
			})
		default:
			err = errors.Join(err, werr)
		}
	}
	return done, where, err
}

// send gives a hit the state with which it goes on, and says where.
func (w *walker) send(h *hit, now time.Time) (topic string) {
	r := w.c.r
	if h.cmd.Kind == deadletter.CancelWaiting {
		h.cause = h.cmd.Cancelled()
		h.state = r.sub.Decide(h.state, h.cause, now).State
		return r.layout.find(deadTopic, 0).name
	}
	h.state.Due, h.state.Policy = redeliver.CeilMilli(now.UTC()), r.layout.fingerprint
	return r.layout.find(retryTopic, 0).name
}
