package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
)

// checkElsewhere notes what is wrong with where a replay goes, and with who reads the
// DLQ, where a DLQ is somebody else's.
func checkForeign(ps *redeliver.Problems, cfg DeadLetterConfig, foreign bool, dlq string) {
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

// dealt is what ReadBy has committed of partitions, below 0 where that is nothing.
func (q *deadQueue) readByOffsets(partitions ...int32) ([]int64, error) {
	read := make([]int64, len(partitions))
	found, err := q.client.admin.groupOffsets(q.info.ReadBy, map[string][]int32{q.info.DLQ: partitions})
	unknown := errors.Is(err, sarama.ErrGroupIDNotFound) // as some brokers say it
	if err != nil && !unknown {
		return nil, err
	}
	for i, p := range partitions {
		if read[i] = -1; unknown {
			continue
		}
		if read[i], err = found.offset(q.info.DLQ, p); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// bounds are those of the log, but for what ReadBy has dealt with.
func (q *deadQueue) bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	if q.info.ReadBy == "" {
		return q.log.bounds(ctx, partition)
	}
	read, err := q.readByOffsets(partition) // before the log: what is committed meanwhile is not beyond its end
	if err != nil {
		return 0, 0, err
	}
	if start, end, err = q.log.bounds(ctx, partition); err != nil {
		return start, end, err
	}
	if read[0] > end { // it says nothing of what lies there
		return 0, 0, fmt.Errorf("kafka: group %s has committed %d in %s/%d, which ends at %d: was the topic made anew? leave out ReadBy, or reset the group's offset",
			q.info.ReadBy, read[0], q.info.DLQ, partition, end)
	}
	return max(start, read[0]), end, nil
}

// checkRead refuses a ReadBy that can only be a mistake: who has committed nothing, here or
// elsewhere, would have dealt with nothing, and all of it would be replayed. A group that
// has committed elsewhere may have handled nothing here yet.
func (q *deadQueue) checkReadBy(ctx context.Context) error {
	if q.info.ReadBy == "" {
		return nil
	}
	all := make([]int32, q.partitions)
	for i := range all {
		all[i] = int32(i)
	}
	read, err := q.readByOffsets(all...)
	if err != nil {
		return err
	}
	hasRecords := false
	for _, p := range all {
		start, end, err := q.bounds(ctx, p)
		if err != nil {
			return err
		}
		hasRecords = hasRecords || end > start
	}
	if !hasRecords || slices.Max(read) >= 0 {
		return nil
	}
	if found, err := q.client.admin.groupOffsets(q.info.ReadBy, nil); err == nil { // a group that nobody knows is an error here
		for _, partitions := range found.response.Blocks {
			for _, block := range partitions {
				if block.Offset >= 0 {
					return nil
				}
			}
		}
	}
	return fmt.Errorf("kafka: group %s has committed nothing in %s: is that its name, or have its offsets expired? one that has handled nothing there can be left out", q.info.ReadBy, q.info.DLQ)
}

// lies tells a partition that the origin does not have, so that no message can have stood
// there. One that the origin has is believed even before the key: the origin's producers
// may place keys otherwise than we do, as those of Java do.
func (q *deadQueue) isOutsideOrigin(partition int32) bool {
	partitions, err := q.conn.Partitions(q.info.Origin)
	return err == nil && int(partition) >= len(partitions)
}
