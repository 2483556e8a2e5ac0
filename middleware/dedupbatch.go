package middleware

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

// DedupBatch is [Dedup] for batches: of [Batch], and of ConsumeBatch of every adapter:
//
//	dedup, err := middleware.DedupBatch(middleware.DedupConfigOf[redeliver.Message]{Store: store})
//	...
//	batch := redeliver.BatchConfig{Size: 100, Dedup: dedup}
//	err = kafka.ConsumeBatch(ctx, client, config, topics, batch, index)
//
// A message that was handled before is acked, and the batch function does not get it. Each other message is marked when its own
// answer is a success and takes effect. Of copies in one batch the function gets the first one. The others are acked if it succeeds,
// and run again if it fails.
//
// While the store does not answer, the messages of the batch are postponed. Messages of other subscribers are not deduplicated.
func DedupBatch(config DedupConfigOf[redeliver.Message]) (redeliver.BatchDedup, error) {
	d, err := newDeduplicator(config)
	if err != nil {
		return nil, err
	}
	return batchDeduplicator{d}, nil
}

// errCopyFailed does not wrap the failure, which may say when that copy runs again, or that it does not.
var errCopyFailed = errors.New("dedup: another copy of the message failed in the same batch")

type batchDeduplicator struct {
	*deduplicator[redeliver.Message]
}

// batchClaim is a message of a batch that no other batch runs at the same time.
type batchClaim struct {
	*engine.Batched
	key    string
	run    *dedupRun
	copies []*engine.Batched // in the same batch
	seen   bool
	err    error // why it must not run
}

// Begin implements [redeliver.BatchDedup].
func (d batchDeduplicator) Begin(ctx context.Context, all []redeliver.BatchedMessage) (rest []redeliver.BatchedMessage, end func(), err error) {
	claims := make(map[string]*batchClaim)
	left := make(map[redeliver.BatchedMessage]bool) // not for the function
	for _, one := range all {
		m, ok := one.(*engine.Batched)
		if !ok {
			continue
		}
		key := d.keyOf(m)
		switch first := claims[key]; {
		case key == "":
		case first == nil:
			claims[key] = &batchClaim{Batched: m, key: key}
		default:
			first.copies = append(first.copies, m)
			d.skip(m)
			left[m] = true
		}
	}
	err = d.ask(ctx, claims)
	var refused atomic.Bool
	for _, c := range claims {
		switch {
		case c.seen || c.err != nil:
			left[c.Batched] = true
			d.answer(c)
			continue
		case err != nil:
			d.leave(c.key, c.run)
			continue
		}
		c.OnEnd(func(handled bool) {
			if handled && !c.Delivery().Declined() && !refused.Load() { // the wait for a store that hangs is not repeated
				err := catch(func() error { return d.mark(c.Delivery(), c.key) })
				refused.Store(err != nil)
				d.markOutage.report(c.Delivery(), redeliver.ChangeDedupMarksLost, redeliver.ChangeDedupMarksRecovered, err)
			}
			d.leave(c.key, c.run)
		})
	}
	if err == nil { // otherwise messages without an id might overtake earlier ones of their key
		rest = slices.DeleteFunc(slices.Clone(all), func(m redeliver.BatchedMessage) bool { return left[m] })
	}
	return rest, func() { answerCopies(claims) }, err
}

// keyOf returns the key of a message in the store. It is empty for a message that is not deduplicated.
func (d batchDeduplicator) keyOf(batched *engine.Batched) string {
	delivery := batched.Delivery()
	if delivery == nil {
		return ""
	}
	var m redeliver.Message
	if d.ID != nil {
		m = batched.Message()
	}
	key, err := d.key(delivery, "", m)
	if err != nil {
		reportOnce(&d.derivedReported, delivery, redeliver.ChangeDedupRefused, err)
	}
	return key
}

// skip records that the function does not get a message, and calls Skipped if the message is acked.
func (d batchDeduplicator) skip(m *engine.Batched) {
	m.Delivery().SkipHandler()
	if d.Skipped != nil {
		m.OnEnd(func(handled bool) {
			if handled { // a panic changes nothing: the message has its answer
				_ = catch(func() error { d.Skipped(m.Message()); return nil })
			}
		})
	}
}

// ask waits until no other copy of the messages runs, and asks the store about them. Batches enter their messages in the order of
// the keys, so that no two of them wait for each other. It returns an error if the store does not answer.
func (d batchDeduplicator) ask(ctx context.Context, claims map[string]*batchClaim) error {
	var all sync.WaitGroup
	var failed atomic.Pointer[error]
	for _, key := range slices.Sorted(maps.Keys(claims)) {
		c := claims[key]
		if c.run, c.err = d.enter(c.Delivery(), key); c.err != nil {
			continue
		}
		ask := func() {
			err := catch(func() (err error) {
				c.seen, err = d.seen(ctx, key)
				return err
			})
			if err != nil {
				failed.Store(&err)
			}
			d.seenOutage.report(c.Delivery(), redeliver.ChangeDedupStoreLost, redeliver.ChangeDedupStoreRecovered, err)
		}
		if d.local {
			ask()
		} else {
			all.Go(ask)
		}
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return redeliver.Postpone(fmt.Errorf("dedup: asking the store: %w", *err))
	}
	return nil
}

// answer answers a message that the function does not get, and its copies.
func (d batchDeduplicator) answer(c *batchClaim) {
	if c.seen {
		d.skip(c.Batched)
	}
	if c.run != nil {
		d.leave(c.key, c.run)
	}
	for _, m := range append([]*engine.Batched{c.Batched}, c.copies...) {
		m.Answer(c.err)
	}
}

// answerCopies answers the copies of messages that have an answer of their own. The others end as these do.
func answerCopies(claims map[string]*batchClaim) {
	for _, c := range claims {
		ok, err := c.OwnAnswer()
		if !ok {
			continue
		}
		if err != nil {
			err = redeliver.Postpone(errCopyFailed)
		}
		for _, m := range c.copies {
			m.Answer(err)
		}
	}
}

// catch turns a panic into an error: outside of the batch function's goroutine it would end the process.
func catch(call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &redeliver.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return call()
}
