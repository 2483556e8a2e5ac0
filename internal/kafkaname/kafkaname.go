// Package kafkaname has the names of redeliver's topics on Kafka, which must be the same in all adapters and the
// command.
package kafkaname

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/rules"
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
		rules.RefuseName(ps, "topic", field, topic)
	case rules.CheckLength(ps, "topic", field, topic, MaxTopic):
	case strings.ContainsFunc(topic, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '_' || r == '-')
	}):
		ps.Add(field, fmt.Sprintf("%q", topic), "must be letters, digits, dot, underscore and hyphen only")
	}
}

// CheckGroup refuses group ids that Kafka would refuse.
func CheckGroup(ps *check.Problems, field, group string) {
	rules.RequireGroup(ps, field, group)
	rules.CheckLength(ps, "group", field, group, maxGroup)
}

// DeleteCommand returns Kafka's command that deletes a topic.
func DeleteCommand(brokers []string, topic string) string {
	return "kafka-topics.sh --bootstrap-server " + shell.Quote(strings.Join(brokers, ",")) + " --delete --topic " + shell.Quote(topic)
}
