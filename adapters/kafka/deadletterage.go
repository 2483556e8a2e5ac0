package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/deadletter"
)

// headBytes is how much is fetched to see one record. A broker answers with a whole
// batch all the same.
const headBytes = 1 << 10

// Oldest implements [driver.DLQ]: the earliest of the records that come first in
// their partitions and are not settled.
func (q *deadQueue) Oldest(ctx context.Context) (at time.Time, ok bool, err error) {
	if err := q.refresh(ctx); err != nil {
		return at, false, err
	}
	for p := range q.width() {
		head, there, err := q.head(ctx, p)
		if err != nil {
			return at, false, err
		}
		if there && (!ok || head.Before(at)) {
			at, ok = head, true
		}
	}
	return at, ok, nil
}

// head is when the first record of a partition that is not settled was written.
func (q *deadQueue) head(ctx context.Context, partition int32) (at time.Time, there bool, err error) {
	next, end, err := q.bounds(ctx, partition)
	if err != nil {
		return at, false, err
	}
	for {
		q.mu.Lock()
		next = q.ledger.prefix(partition, next)
		q.mu.Unlock()
		if next >= end {
			return at, false, nil
		}
		p, err := q.log.readUpTo(ctx, partition, next, headBytes)
		if err != nil {
			return at, false, err
		}
		for _, rec := range p.records {
			q.mu.Lock()
			out := q.ledger.settled(partition, rec.offset, rec.at)
			q.mu.Unlock()
			if !out {
				return rec.at.UTC(), true, nil
			}
		}
		if p.end || p.next <= next {
			return at, false, nil // nothing that is committed
		}
		next = p.next
	}
}

// Retention implements [driver.DLQ]: the topic's retention.ms.
func (q *deadQueue) Retention(ctx context.Context) (time.Duration, error) {
	settings, err := q.settings(ctx)
	if err != nil || !strings.Contains(settings["cleanup.policy"], "delete") {
		return 0, err
	}
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("kafka: %w what retention.ms is of %s: %q", deadletter.ErrNotReported, q.info.DLQ, settings["retention.ms"])
	case ms < 0 || ms > int64(forEver/time.Millisecond):
		return 0, nil
	default:
		return max(time.Millisecond, time.Duration(ms)*time.Millisecond), nil
	}
}

// forEver is what a retention beyond which is none.
const forEver = 100 * 365 * 24 * time.Hour

// DropLimit implements [driver.DLQ]: retention.bytes, and compaction.
func (q *deadQueue) DropLimit(ctx context.Context) (string, error) {
	settings, err := q.settings(ctx)
	if err != nil {
		return "", err
	}
	var bounds []string
	policy := settings["cleanup.policy"]
	if bytes := settings["retention.bytes"]; strings.Contains(policy, "delete") && bytes != "" && !strings.HasPrefix(bytes, "-") {
		bounds = append(bounds, "retention.bytes="+bytes+" of a partition")
	}
	if strings.Contains(policy, "compact") {
		bounds = append(bounds, "cleanup.policy="+policy+": of one key the latest message is kept")
	}
	return strings.Join(bounds, ", "), nil
}

// settings are those of the DLQ's topic.
func (q *deadQueue) settings(ctx context.Context) (map[string]string, error) {
	all, err := until(ctx, aside, func() (map[string]map[string]string, error) { return q.c.admin.settings(q.info.DLQ) }, nil)
	return all[q.info.DLQ], err
}
