package adaptertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// batchOrders tests batches that have several messages of a key, in every order that the broker has.
func batchOrders() (tests []test) {
	for _, o := range []struct {
		order redeliver.Order
		needs string
	}{{redeliver.OrderFirstAttempts, "OrderFirstAttempts"}, {redeliver.OrderThroughRetries, "OrderThroughRetries"}, {redeliver.OrderBlocking, "OrderBlocking"}} {
		for _, own := range []bool{true, false} {
			answers := "OwnAnswers"
			if !own {
				answers = "OneErrorForAll"
			}
			tests = append(tests, test{
				name: fmt.Sprintf("BatchesWith%sKeepTheOrder%s", answers, o.order), needs: o.needs, body: batchOrder{o.order, own}.keepsKeys,
			})
		}
		tests = append(tests, test{
			name: fmt.Sprintf("BatchesOfAKilledProcessKeepTheOrder%s", o.order), needs: o.needs + " KeepsAttempts", body: batchOrder{o.order, true}.keepsKeysAfterKills,
		})
	}
	return tests
}

// batchOrder is an order, with answers for each message or for the whole batch.
type batchOrder struct {
	order redeliver.Order
	own   bool
}

const batchOrderRetries = 2

// batchFates says how often each message fails: every thirteenth always, every fifth once.
func batchFates(ids []string) map[string]int {
	fates := make(map[string]int)
	for i, id := range ids {
		switch {
		case i%13 == 12:
			fates[id] = 1000
		case i%5 == 4:
			fates[id] = 1
		}
	}
	return fates
}

// answer returns a batch function in which each message fails as often as its fate says. last gets the number of the last call in
// which a message succeeded.
func (o batchOrder) answer(fates, last map[string]int) BatchFunc {
	var mu sync.Mutex
	calls := 0
	return func(_ context.Context, mb *Batch) (failed error) {
		mu.Lock()
		defer mu.Unlock()
		calls++
		for i := range mb.Messages {
			m := mb.Messages[len(mb.Messages)-1-i] // answers are held until earlier messages have one
			id := m.State().ID
			var err error
			if fates[id] > 0 {
				fates[id]--
				err, failed = fmt.Errorf("%s: %w", id, errHandler), errHandler
			} else {
				last[id] = calls
			}
			if o.own {
				m.Answer(err)
			}
		}
		if o.own {
			return nil
		}
		return failed
	}
}

// waitsForFailed reports whether later messages of a key wait for one that has failed.
func (o batchOrder) waitsForFailed(b *fixture) bool {
	return o.order != redeliver.OrderFirstAttempts || b.h.KeepsPlaces
}

func (o batchOrder) config() (Config, redeliver.BatchConfig) {
	p := quickPolicy(batchOrderRetries)
	p.Order = o.order
	if o.order == redeliver.OrderBlocking {
		p.Levels = nil
	}
	return Config{Policy: p}, redeliver.BatchConfig{Size: 6, Timeout: 100 * time.Millisecond}
}

// messages returns messages of three keys, or of one if all messages wait for each other.
func (o batchOrder) messages(b *fixture) (msgs []Message, ids []string) {
	msgs, ids = inTurn(3, 13)
	if o.order == redeliver.OrderBlocking {
		msgs = b.underOneKey(msgs)
	}
	return msgs, ids
}

func (o batchOrder) keepsKeys(b *fixture) {
	cfg, config := o.config()
	msgs, ids := o.messages(b)
	fates := batchFates(ids)
	always := make(map[string]bool)
	for id, n := range fates {
		always[id] = n > 1
	}
	last := make(map[string]int)
	p := b.startBatch(cfg, config, o.answer(fates, last))
	b.put(msgs...)
	b.awaitEnds(ids...)
	o.checkEnds(b, ids, always, last)
	most := 0
	for _, ran := range p.ranBatches() {
		most = max(most, len(ran))
	}
	if most < 2 {
		b.Error("no batch had more than one message")
	}
	for i, id := range ids {
		maxRuns := batchOrderRetries + 1
		if o.waitsForFailed(b) { // and once for each earlier failure
			maxRuns += i * (batchOrderRetries + 1)
		}
		if n := len(b.ran(id)); n > maxRuns {
			b.Errorf("%s ran %d times, want at most %d", id, n, maxRuns)
		}
	}
}

// keepsKeysAfterKills kills two processes on their way.
func (o batchOrder) keepsKeysAfterKills(b *fixture) {
	cfg, config := o.config()
	cfg.Policy.MaxCrashes = 100
	msgs, ids := o.messages(b)
	fates := make(map[string]int)
	always := make(map[string]bool)
	for i, id := range ids {
		if i%13 == 12 {
			fates[id], always[id] = 1000, true
		}
	}
	last := make(map[string]int)
	fn := o.answer(fates, last)
	for kill := range 2 {
		p := b.startBatch(cfg, config, fn)
		if kill == 0 {
			b.put(msgs...)
		}
		b.await("some batches run", func() bool { return len(p.ranBatches()) >= 2+kill })
		p.kill()
	}
	b.startBatch(cfg, config, fn)
	b.awaitEnds(ids...)
	o.checkEnds(b, ids, always, last)
}

// checkEnds checks that only the messages that always fail are in the DLQ, and that messages that wait for failed ones succeeded in
// their order.
func (o batchOrder) checkEnds(b *fixture, ids []string, always map[string]bool, last map[string]int) {
	b.Helper()
	_, dead := b.ended()
	for _, id := range ids {
		if always[id] != (dead[id] > 0) {
			b.Errorf("%s is in the DLQ %d times, want it there %t", id, dead[id], always[id])
		}
	}
	before := make(map[string]string)
	for _, id := range ids {
		key := id[:1]
		if o.order == redeliver.OrderBlocking {
			key = ""
		}
		if always[id] || !o.waitsForFailed(b) && len(b.ran(id)) > 1 { // a message that has failed is overtaken
			continue
		}
		if other := before[key]; other != "" && last[other] > last[id] {
			b.Errorf("%s succeeded in call %d, after %s in call %d", other, last[other], id, last[id])
		}
		before[key] = id
	}
}
