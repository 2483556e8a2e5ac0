package dlq

import (
	"context"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/record"
	"github.com/redeliver/redeliver/internal/deadletter/driver"
)

// trimInterval is how often a working session deletes settled records.
const trimInterval = 10 * time.Second

// seenRange is the range of a partition that a session has read itself. Records are deleted only there.
type seenRange struct{ start, seen int64 }

func (c *session) startPartition(partition int32, start int64) {
	c.seen[partition] = seenRange{start, start}
}

// markSeen is called for every record in order, settled or not.
func (c *session) markSeen(partition int32, next int64) {
	if r, ok := c.seen[partition]; ok && next > r.seen {
		c.seen[partition] = seenRange{r.start, next}
	}
}

// trim deletes the settled beginning of the DLQ, and then forgets the outcomes of those records. It reports a
// failure, which costs disk space, but no messages.
func (c *session) trim(ctx context.Context) {
	c.lastTrim = time.Now()
	below := make(map[int32]int64)
	var forgotten []produce.Entry
	c.q.mu.Lock()
	for p, r := range c.seen {
		upTo := r.start // outcomes of records that the broker has deleted are forgotten, too
		if end := min(r.seen, c.q.ledger.prefix(p, r.start)); end > r.start && !c.q.Foreign {
			upTo, below[p] = end, end
		}
		for _, s := range c.q.ledger.removed[p] {
			if s.Through < upTo {
				forgotten = append(forgotten, produce.Tombstone(string(record.Position(p, s.From))))
			}
		}
		for key := range c.q.ledger.state {
			at, ok := strings.CutPrefix(key, driver.MarkPrefix)
			if partition, offset, err := record.ParsePosition(at); ok && err == nil && partition == p && offset < upTo {
				forgotten = append(forgotten, produce.Tombstone(key))
			}
		}
	}
	c.q.mu.Unlock()
	if len(below)+len(forgotten) == 0 {
		return
	}
	var err error
	if len(below) > 0 {
		err = c.q.Admin.Sarama.DeleteRecords(c.q.Where.DLQ, below)
	}
	if err == nil {
		for p, offset := range below {
			c.seen[p] = seenRange{offset, c.seen[p].seen}
		}
		err = c.writeState(ctx, forgotten)
	}
	if err != nil {
		c.q.Sink.Event(redeliver.SubscriptionChanged{
			Origin: c.q.Where.Origin, Group: c.q.Where.Group, Change: redeliver.ChangeDeadLettersNotDeleted,
			Detail: "grant Delete on " + c.q.Where.DLQ, Err: err,
		})
	}
}
