package kafka

import (
	"context"

	"github.com/redeliver/redeliver"
)

// checkElsewhere notes what is wrong with where a replay goes, and with who reads the
// DLQ, where a DLQ is somebody else's.
func checkElsewhere(ps *redeliver.Problems, cfg DeadLetterConfig, foreign bool, dlq string) {
	const theirs = "is only for a DLQ that somebody else fills: name that in DLQ"
	switch {
	case cfg.Back == "":
	case !foreign:
		ps.Add("Back", cfg.Back, theirs)
	case cfg.Back == dlq:
		ps.Add("Back", cfg.Back, "must not be the DLQ itself")
	default:
		checkTopic(ps, "Back", cfg.Back)
	}
	switch {
	case cfg.ReadBy == "":
	case !foreign:
		ps.Add("ReadBy", cfg.ReadBy, theirs)
	default:
		checkGroup(ps, "ReadBy", cfg.ReadBy)
	}
}

// bounds are those of the log, but for what ReadBy has dealt with.
func (q *deadQueue) bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	start, end, err = q.log.bounds(ctx, partition)
	if err != nil || q.info.ReadBy == "" {
		return start, end, err
	}
	found, err := q.c.admin.committed(q.info.ReadBy, map[string][]int32{q.info.DLQ: {partition}})
	if err != nil {
		return 0, 0, err
	}
	read, err := found.of(q.info.DLQ, partition)
	return min(max(start, read), end), end, err
}
