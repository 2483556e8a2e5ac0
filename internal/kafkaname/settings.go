package kafkaname

import (
	"fmt"
	"math"
	"strconv"

	"github.com/redeliver/redeliver"
)

const (
	// HeaderRoom is by how many bytes our records may exceed the origin's, because of our headers and the frame of a
	// batch.
	HeaderRoom = 64 << 10

	minSegmentBytes = 16 << 20
)

// Settings returns the settings with which our topics are created. The origin's limit applies to batches that its
// producers have compressed, so a record may be larger here. batchBytes bounds the batches of our own producer.
func Settings(recordBytes, batchBytes int, minInSync string) map[string]string {
	maxBatchBytes := min(math.MaxInt32, max(recordBytes+HeaderRoom, 2*recordBytes, batchBytes+HeaderRoom))
	s := map[string]string{
		"cleanup.policy": "delete",
		// One clock must set both the due time and the time of the write.
		"message.timestamp.type": "CreateTime",
		"retention.ms":           "-1", "retention.bytes": "-1",
		// The active segment is never deleted, so keep it small. A batch must fit into it.
		"segment.bytes":                  strconv.Itoa(max(minSegmentBytes, maxBatchBytes)),
		"unclean.leader.election.enable": "false",
		"max.message.bytes":              strconv.Itoa(maxBatchBytes),
	}
	if minInSync != "" {
		s["min.insync.replicas"] = minInSync
	}
	return s
}

// CheckSettings adds the problems of the settings s of an existing topic of ours, except its retention time. waits
// reports whether messages wait on it and come back. needed is the size of the largest batch that it must take.
func CheckSettings(ps *redeliver.Problems, topic, origin string, waits bool, s map[string]string, needed int) {
	refuse := func(setting, rule string) { ps.Add("topic "+topic+" "+setting, s[setting], rule) }
	if s["cleanup.policy"] != "delete" {
		refuse("cleanup.policy", "must be delete: compaction would remove waiting messages")
	}
	if by := s["message.timestamp.type"]; waits && by != "CreateTime" && by != "" {
		refuse("message.timestamp.type", "must be CreateTime: a due time is compared with the time of the write by the writer's clock")
	}
	if bytes := s["retention.bytes"]; bytes != "-1" && bytes != "" {
		refuse("retention.bytes", "must be -1: a full topic would drop waiting messages")
	}
	needed = min(math.MaxInt32, needed)
	for _, setting := range []string{"max.message.bytes", "segment.bytes"} {
		if have, err := strconv.Atoi(s[setting]); err == nil && have < needed {
			refuse(setting, fmt.Sprintf("must be at least %d: the largest record of %s and our headers, and a batch of our producer", needed, origin))
		}
	}
}
