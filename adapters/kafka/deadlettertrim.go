package kafka

import (
	"context"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// trimEvery is how often a session gives back what is out, while it works.
const trimEvery = 10 * time.Second

// reach is what a session has seen of a partition with its own eyes: all from start
// to seen. Only there may records be deleted.
type reach struct{ start, seen int64 }

func (c *deadSession) begin(partition int32, start int64) { c.reach[partition] = reach{start, start} }

// saw is called for every record in order, settled or not.
func (c *deadSession) saw(partition int32, next int64) {
	if r, ok := c.reach[partition]; ok && next > r.seen {
		c.reach[partition] = reach{r.start, next}
	}
}

// trim gives the settled beginning of the DLQ back to the broker, and then, not
// before, forgets what became of it. A cluster that does not let us keeps the
// records: that costs disk, not messages, and is told.
func (c *deadSession) trim(ctx context.Context) {
	c.trimmed = time.Now()
	below := make(map[int32]int64)
	var forgotten []stateEntry
	c.q.mu.Lock()
	for p, r := range c.reach {
		upTo := r.start // what the broker has dropped by itself is forgotten, too
		if end := min(r.seen, c.q.ledger.prefix(p, r.start)); end > r.start && !c.q.foreign {
			upTo, below[p] = end, end
		}
		for _, s := range c.q.ledger.out[p] {
			if s.Through < upTo {
				forgotten = append(forgotten, tombstoneOf(placeKey(p, s.From)))
			}
		}
		for key := range c.q.ledger.state {
			at, ok := strings.CutPrefix(key, driver.MarkPrefix)
			if partition, offset, err := parsePlace(at); ok && err == nil && partition == p && offset < upTo {
				forgotten = append(forgotten, tombstoneOf(key))
			}
		}
	}
	c.q.mu.Unlock()
	if len(below)+len(forgotten) == 0 {
		return
	}
	var err error
	if len(below) > 0 {
		err = c.q.c.admin.sarama.DeleteRecords(c.q.info.DLQ, below)
	}
	if err == nil {
		for p, offset := range below {
			c.reach[p] = reach{offset, c.reach[p].seen}
		}
		err = c.note(ctx, forgotten)
	}
	if err != nil {
		c.q.c.cfg.Sink.Event(redeliver.SubscriptionChanged{
			Origin: c.q.info.Origin, Group: c.q.info.Group, Change: redeliver.ChangeDLQNotEmptied,
			Detail: "grant Delete on " + c.q.info.DLQ, Err: err,
		})
	}
}
