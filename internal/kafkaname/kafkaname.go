// Package kafkaname has the names of redeliver's topics on Kafka, which must be the same in all adapters and the
// command.
package kafkaname

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/shell"
)

// Limits of names. A topic has at most 249 bytes of [a-zA-Z0-9._-]. Our longest suffix is ".retry." and a level.
const (
	MaxTopic  = 249
	MaxSuffix = 32
	maxGroup  = 255
)

// Base returns "<topic>.<group>" with the group escaped. A name that leaves no room for suffixes is cut, and
// ends in a hash of topic and group.
func Base(topic, group string) string {
	name := topic + "." + EscapeGroup(group)
	if len(name) <= MaxTopic-MaxSuffix {
		return name
	}
	sum := sha256.Sum256([]byte(topic + "\x00" + group))
	hash := "-" + hex.EncodeToString(sum[:8])
	return name[:MaxTopic-MaxSuffix-len(hash)] + hash
}

// Delay returns the name of a level's topic. retry is the name of the retry topic.
func Delay(retry string, level time.Duration) string {
	return retry + "." + delayqueue.LevelName(level)
}

// Level returns the level of a topic on which messages wait; 0 for the retry topic itself.
func Level(retry, topic string) (level time.Duration, ok bool) {
	if topic == retry {
		return 0, true
	}
	suffix, found := strings.CutPrefix(topic, retry+".")
	if !found {
		return 0, false
	}
	return delayqueue.ParseLevel(suffix)
}

// EscapeGroup writes a group reversibly as a part of a topic's name. The dot and every byte that is illegal there
// become _xx. An underscore that looks like such an escape is escaped, too.
func EscapeGroup(group string) string {
	var b strings.Builder
	for i := range len(group) {
		c := group[i]
		switch {
		case c == '_' && !(i+2 < len(group) && isHex(group[i+1]) && isHex(group[i+2])),
			c == '-', c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "_%02x", c)
		}
	}
	return b.String()
}

// UnescapeGroup reverses EscapeGroup.
func UnescapeGroup(name string) string {
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] == '_' && i+2 < len(name) && isHex(name[i+1]) && isHex(name[i+2]) {
			if c, err := hex.DecodeString(name[i+1 : i+3]); err == nil {
				b.Write(c)
				i += 2
				continue
			}
		}
		b.WriteByte(name[i])
	}
	return b.String()
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }

// CheckTopic refuses names that Kafka would refuse.
func CheckTopic(ps *check.Problems, field, topic string) {
	switch {
	case topic == "" || topic == "." || topic == "..":
		ps.Add(field, fmt.Sprintf("%q", topic), "must be the name of a topic")
	case len(topic) > MaxTopic:
		ps.Add(field, fmt.Sprintf("%q...", limits.Cut(topic, 40)), fmt.Sprintf("is %d bytes long; a topic has at most %d", len(topic), MaxTopic))
	case strings.ContainsFunc(topic, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '_' || r == '-')
	}):
		ps.Add(field, fmt.Sprintf("%q", topic), "must be letters, digits, dot, underscore and hyphen only")
	}
}

// CheckTopics refuses a list of topics that is empty, names one twice, or has a name that Kafka would refuse.
func CheckTopics(ps *check.Problems, topics []string) {
	if len(topics) == 0 {
		ps.Add("topics", "empty", "it is required: at least one topic")
	}
	for i, topic := range topics {
		field := fmt.Sprintf("topics[%d]", i)
		CheckTopic(ps, field, topic)
		if slices.Contains(topics[:i], topic) {
			ps.Add(field, fmt.Sprintf("%q", topic), "must not be listed twice")
		}
	}
}

// CheckGroup refuses group ids that Kafka would refuse.
func CheckGroup(ps *check.Problems, field, group string) {
	switch {
	case group == "":
		ps.Add(field, `""`, "it is required: a retry comes back to the group that failed it")
	case len(group) > maxGroup:
		ps.Add(field, fmt.Sprintf("%q...", limits.Cut(group, 40)), fmt.Sprintf("is %d bytes long; at most %d are allowed", len(group), maxGroup))
	}
}

// DeleteCommand returns Kafka's command that deletes a topic.
func DeleteCommand(brokers []string, topic string) string {
	return "kafka-topics.sh --bootstrap-server " + shell.Quote(strings.Join(brokers, ",")) + " --delete --topic " + shell.Quote(topic)
}
