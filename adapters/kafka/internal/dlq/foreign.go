package dlq

import (
	"context"
	"fmt"
	"slices"
)

// readByOffsets returns the offsets that ReadBy has committed. They are negative if there are none.
func (q *Queue) readByOffsets(partitions ...int32) ([]int64, error) {
	read := make([]int64, len(partitions))
	found, err := q.Admin.GroupOffsetsIfAny(q.Where.ReadBy, map[string][]int32{q.Where.DLQ: partitions})
	if err != nil {
		return nil, err
	}
	for i, p := range partitions {
		if read[i], err = found.Offset(q.Where.DLQ, p); err != nil {
			return nil, err
		}
	}
	return read, nil
}

// bounds returns the bounds of the log, without the records that ReadBy has handled.
func (q *Queue) bounds(ctx context.Context, partition int32) (start, end int64, err error) {
	if q.Where.ReadBy == "" {
		return q.log.Bounds(ctx, partition)
	}
	read, err := q.readByOffsets(partition) // before the log's bounds, so that a commit meanwhile is not beyond its end
	if err != nil {
		return 0, 0, err
	}
	if start, end, err = q.log.Bounds(ctx, partition); err != nil {
		return start, end, err
	}
	if read[0] > end { // the offset does not belong to these records
		return 0, 0, fmt.Errorf("kafka: group %s has committed %d in %s/%d, which ends at %d: was the topic created again? leave out ReadBy, or reset the group's offset",
			q.Where.ReadBy, read[0], q.Where.DLQ, partition, end)
	}
	return max(start, read[0]), end, nil
}

// checkReadBy refuses a ReadBy that is probably wrong: a group that has committed no offset anywhere. A replay would
// repeat records that the right group has handled. A group with offsets elsewhere may have handled nothing here yet.
func (q *Queue) checkReadBy(ctx context.Context) error {
	if q.Where.ReadBy == "" {
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
	if found, err := q.Admin.GroupOffsets(q.Where.ReadBy, nil); err == nil && found.Any() { // an unknown group is an error here
		return nil
	}
	return fmt.Errorf("kafka: group %s has committed nothing in %s: is that its name, or have its offsets expired? one that has handled nothing there can be left out", q.Where.ReadBy, q.Where.DLQ)
}

// isOutsideOrigin reports whether the origin has no such partition, so that no message can come from it. A partition
// that exists is used even if the key would choose another: other producers of the origin, such as those in Java, place
// keys differently.
func (q *Queue) isOutsideOrigin(partition int32) bool {
	partitions, err := q.Connection.Partitions(q.Where.Origin)
	return err == nil && int(partition) >= len(partitions)
}
