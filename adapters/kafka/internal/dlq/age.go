package dlq

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/deadletter"
)

// headFetchBytes is how much is fetched to see one record. A broker answers with a whole batch in any case.
const headFetchBytes = 1 << 10

// Oldest implements [driver.DLQ]. It looks at the first unsettled record of each partition.
func (q *Queue) Oldest(ctx context.Context) (at time.Time, ok bool, err error) {
	if err := q.refresh(ctx); err != nil {
		return at, false, err
	}
	for p := range q.partitionCount() {
		head, found, err := q.oldestIn(ctx, p)
		if err != nil {
			return at, false, err
		}
		if found && (!ok || head.Before(at)) {
			at, ok = head, true
		}
	}
	return at, ok, nil
}

// oldestIn returns the time of the first unsettled record of a partition.
func (q *Queue) oldestIn(ctx context.Context, partition int32) (at time.Time, found bool, err error) {
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
		p, err := q.log.ReadUpTo(ctx, partition, next, headFetchBytes)
		if err != nil {
			return at, false, err
		}
		for _, rec := range p.Records {
			q.mu.Lock()
			removed := q.ledger.isRemoved(partition, rec.Offset, rec.Time)
			q.mu.Unlock()
			if !removed {
				return rec.Time.UTC(), true, nil
			}
		}
		if p.End || p.Next <= next {
			return at, false, nil // no committed record
		}
		next = p.Next
	}
}

// Retention implements [driver.DLQ]. It returns retention.ms of the topic.
func (q *Queue) Retention(ctx context.Context) (time.Duration, error) {
	settings, err := q.settings(ctx)
	if err != nil || !strings.Contains(settings["cleanup.policy"], "delete") {
		return 0, err
	}
	ms, err := strconv.ParseInt(settings["retention.ms"], 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("kafka: %w what retention.ms of %s is: %q", deadletter.ErrNotReported, q.Where.DLQ, settings["retention.ms"])
	case ms < 0 || ms > int64(maxRetention/time.Millisecond):
		return 0, nil
	default:
		return max(time.Millisecond, time.Duration(ms)*time.Millisecond), nil
	}
}

// maxRetention is the retention above which records count as kept forever.
const maxRetention = 100 * 365 * 24 * time.Hour

// DropLimit implements [driver.DLQ]. It names retention.bytes and compaction.
func (q *Queue) DropLimit(ctx context.Context) (string, error) {
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

// settings returns the settings of the DLQ's topic.
func (q *Queue) settings(ctx context.Context) (map[string]string, error) {
	all, err := cluster.Call(ctx, func() (map[string]map[string]string, error) { return q.Admin.Settings(q.Where.DLQ) })
	return all[q.Where.DLQ], err
}
