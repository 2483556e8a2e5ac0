package kafkaname

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver/internal/check"
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

// A Setting is one of those with which our topics are created.
type Setting struct {
	Name                string
	Messages, Compacted string // what redeliver asks for: on levels, retry topics and DLQs; on control topics and DLQ states
	// Wished says that a topic is used whatever the value is. A value of another setting that breaks a promise is refused.
	Wished bool
	Why    string // what it prevents
}

// AllSettings has every setting of all our topics.
var AllSettings = []Setting{
	{Name: "cleanup.policy", Messages: "`delete`", Compacted: "`compact`", Why: "compaction would remove waiting messages; without it, commands, pauses and settled marks would be forgotten"},
	{Name: "retention.ms", Messages: "`-1`; on the DLQ `DLQ.Retention`", Why: "records that wait would be dropped. Accepted: 7 days, and 4 times the longest wait"},
	{Name: "retention.bytes", Messages: "`-1`", Why: "a full topic would drop waiting messages"},
	{Name: "message.timestamp.type", Messages: "`CreateTime`", Compacted: "control: `LogAppendTime`", Why: "one clock sets a due time and the time of the write; the broker's clock times a release"},
	{Name: "max.message.bytes", Messages: "twice the origin's", Why: "a record would be refused. Accepted: the origin's and 64 KiB, and a batch of the producer"},
	{Name: "min.insync.replicas", Messages: "the origin's", Compacted: "the origin's", Why: "fewer replicas would confirm a retry than its origin needs. Accepted: more"},
	{Name: "segment.bytes", Messages: "16 MiB, or the largest batch", Compacted: "16 MiB", Wished: true, Why: "settled records stay on disk for longer. Refused: less than a batch"},
	{Name: "unclean.leader.election.enable", Messages: "`false`", Compacted: "`false`", Wished: true, Why: "a replica that is behind could become the leader, and drop records"},
	{Name: "min.compaction.lag.ms", Compacted: "10 min", Wished: true, Why: "compaction could remove a claim within seconds after another one"},
}

// IsWished reports whether a topic may do without a setting.
func IsWished(name string) bool {
	return slices.ContainsFunc(AllSettings, func(s Setting) bool { return s.Name == name && s.Wished })
}

// Wishes describes the wished settings that an existing topic of ours has not. asked are the settings with which it would
// be created, have those that it has.
func Wishes(topic string, asked, have map[string]string) (wishes []string) {
	for _, s := range AllSettings {
		want, is := asked[s.Name], have[s.Name]
		if s.Wished && want != "" && is != "" && is != want {
			wishes = append(wishes, fmt.Sprintf("topic %s %s is %s, and redeliver would ask for %s (this refuses nothing): %s", topic, s.Name, is, want, s.Why))
		}
	}
	return wishes
}

// SettingsText returns settings as text, sorted by name: the needed ones, then those that a service may refuse.
func SettingsText(settings map[string]string) string {
	var needed, wished []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		if text := name + "=" + settings[name]; IsWished(name) {
			wished = append(wished, text)
		} else {
			needed = append(needed, text)
		}
	}
	if wished == nil {
		return strings.Join(needed, ", ")
	}
	return strings.Join(needed, ", ") + ", and unless the service refuses them " + strings.Join(wished, ", ")
}

// Refuse adds the problem of a setting, with the command that sets it to value.
func Refuse(ps *check.Problems, topic, setting, have, rule, value string) {
	ps.Add("topic "+topic+" "+setting, have, fmt.Sprintf(
		"%s. To set it: kafka-configs.sh --alter --entity-type topics --entity-name %s --add-config %s=%s", rule, topic, setting, value))
}

// CheckSettings adds the problems of the settings have of an existing topic of ours, except its retention time. asked are
// those with which it would be created. waits reports whether messages wait on it and come back. needed is the size of
// the largest batch that it must take.
func CheckSettings(ps *check.Problems, topic, origin string, waits bool, asked, have map[string]string, needed int) {
	no := func(setting, rule, value string) { Refuse(ps, topic, setting, have[setting], rule, value) }
	if have["cleanup.policy"] != "delete" {
		no("cleanup.policy", "must be delete: compaction would remove waiting messages", "delete")
	}
	if by := have["message.timestamp.type"]; waits && by != "CreateTime" && by != "" {
		no("message.timestamp.type", "must be CreateTime: a due time is compared with the time of the write by the writer's clock", "CreateTime")
	}
	if bytes := have["retention.bytes"]; bytes != "-1" && bytes != "" {
		no("retention.bytes", "must be -1: a full topic would drop waiting messages", "-1")
	}
	atLeast := func(setting string, needed int, why string) {
		if n, err := strconv.Atoi(have[setting]); err == nil && n < needed {
			no(setting, fmt.Sprintf("must be at least %d: %s", needed, why), strconv.Itoa(needed))
		}
	}
	needed = min(math.MaxInt32, needed)
	for _, setting := range []string{"max.message.bytes", "segment.bytes"} {
		atLeast(setting, needed, fmt.Sprintf("the largest record of %s and our headers, and a batch of our producer", origin))
	}
	if inSync, err := strconv.Atoi(asked["min.insync.replicas"]); err == nil {
		atLeast("min.insync.replicas", inSync, fmt.Sprintf("%s needs as many to confirm a record", origin))
	}
}

// CompactedSettings returns the settings of a control topic or DLQ state. timed says that the broker's clock must time its records.
func CompactedSettings(timed bool, minInSync string) map[string]string {
	s := map[string]string{
		"cleanup.policy": "compact",
		// The order of records decides a race for a claim. Compaction must not change it meanwhile.
		"min.compaction.lag.ms":          strconv.FormatInt((10 * time.Minute).Milliseconds(), 10),
		"segment.bytes":                  strconv.Itoa(16 << 20),
		"unclean.leader.election.enable": "false",
	}
	if timed {
		s["message.timestamp.type"] = "LogAppendTime"
	}
	if minInSync != "" {
		s["min.insync.replicas"] = minInSync
	}
	return s
}

// CheckPartition adds a problem if a control topic or DLQ state has more than one partition.
func CheckPartition(ps *check.Problems, topic string, partitions int) {
	if partitions != 1 {
		ps.Add("topic "+topic+" partitions", partitions, "must be 1: everybody must read it in the same order")
	}
}

// CheckCompacted adds the problems of the settings have of an existing control topic or DLQ state. timed says that the
// broker's clock must time its records.
func CheckCompacted(ps *check.Problems, topic string, timed bool, have map[string]string) {
	if policy := have["cleanup.policy"]; policy != "compact" {
		Refuse(ps, topic, "cleanup.policy", policy, "must be compact, or commands and pauses would be forgotten, and settled messages would be replayed again", "compact")
	}
	if by := have["message.timestamp.type"]; timed && by != "LogAppendTime" {
		Refuse(ps, topic, "message.timestamp.type", by, "must be LogAppendTime, so that the broker's clock times a command", "LogAppendTime")
	}
}
