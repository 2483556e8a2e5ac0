package kafka

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Limits of names. Kafka allows topics of 249 bytes of [a-zA-Z0-9._-]. Our longest suffix is ".retry." and a level.
const (
	maxTopic  = 249
	maxSuffix = 32
	maxGroup  = 255
)

// Names configures the names of a subscription's topics. A nil field means the default. The names
// must differ for every pair of topic and group, because two subscriptions must never share a
// topic.
type Names struct {
	// Retry is the topic from which a message comes back to its group. Default
	// "<topic>.<group>.retry". The name of a delay topic is this name, a dot and its level:
	// "<topic>.<group>.retry.10s".
	Retry func(topic, group string) string
	// DLQ is the dead-letter topic. Default "<topic>.<group>.dlq".
	DLQ func(topic, group string) string
	// Control is the topic with the commands to the group's consumers, see [Client.Waiting].
	// Default "<topic>.<group>.control".
	Control func(topic, group string) string
}

func (n Names) retry(topic, group string) string {
	if n.Retry != nil {
		return n.Retry(topic, group)
	}
	return baseName(topic, group) + wirename.RetrySuffix
}

func (n Names) dlq(topic, group string) string {
	if n.DLQ != nil {
		return n.DLQ(topic, group)
	}
	return baseName(topic, group) + wirename.DLQSuffix
}

func (n Names) control(topic, group string) string {
	if n.Control != nil {
		return n.Control(topic, group)
	}
	return baseName(topic, group) + ".control"
}

func (n Names) delay(topic, group string, level time.Duration) string {
	return n.retry(topic, group) + "." + delayqueue.LevelName(level)
}

// level returns the level in the name of the subscription's delay topic.
func (n Names) level(topic, group, name string) (time.Duration, bool) {
	suffix, ok := strings.CutPrefix(name, n.retry(topic, group)+".")
	if !ok {
		return 0, false
	}
	return delayqueue.ParseLevel(suffix)
}

// check refuses names that Kafka would refuse, and names that would mix up topics: a retry topic that is also the DLQ
// would retry dead letters forever.
func (n Names) check(ps *redeliver.Problems, topic, group string) {
	retry, dead := n.retry(topic, group), n.dlq(topic, group)
	if n.Retry != nil {
		field := fmt.Sprintf("Names.Retry(%q, %q)", topic, group)
		checkTopic(ps, field, retry)
		if maxLen := maxTopic - maxSuffix + len(wirename.RetrySuffix); len(retry) > maxLen && len(retry) <= maxTopic {
			ps.Add(field, len(retry), fmt.Sprintf("must be at most %d bytes long: redeliver appends the level to it", maxLen))
		}
		if retry == topic {
			ps.Add(field, retry, "must not be the topic itself")
		}
	}
	if n.DLQ != nil {
		field := fmt.Sprintf("Names.DLQ(%q, %q)", topic, group)
		checkTopic(ps, field, dead)
		if dead == topic || dead == retry || strings.HasPrefix(dead, retry+".") {
			ps.Add(field, dead, "must be neither the topic itself, nor the name of another topic of redeliver's")
		}
	}
	if n.Control != nil {
		field, name := fmt.Sprintf("Names.Control(%q, %q)", topic, group), n.control(topic, group)
		checkTopic(ps, field, name)
		if name == topic || name == retry || name == dead || strings.HasPrefix(name, retry+".") {
			ps.Add(field, name, "must be neither the topic itself, nor the name of another topic of redeliver's")
		}
	}
}

// checkShared refuses names that another subscription of the client uses.
func (l *layout) checkShared(ps *redeliver.Problems, other *layout) {
	theirs := append(slices.Clip(other.topics), other.control)
	for _, t := range append(slices.Clip(l.topics), l.control) {
		if other.origin != l.origin && t.name != "" && slices.ContainsFunc(theirs, func(o ownTopic) bool { return o.name == t.name }) {
			ps.Add("Names", t.name, fmt.Sprintf("must differ for every topic: %s and %s would share it", other.origin, l.origin))
		}
	}
}

// baseName returns "<topic>.<group>" with the group escaped. If that leaves no room for the suffixes, it is cut, and
// ends in a hash of topic and group.
func baseName(topic, group string) string {
	name := topic + "." + escapeGroup(group)
	if len(name) <= maxTopic-maxSuffix {
		return name
	}
	sum := sha256.Sum256([]byte(topic + "\x00" + group))
	hash := "-" + hex.EncodeToString(sum[:8])
	return name[:maxTopic-maxSuffix-len(hash)] + hash
}

// escapeGroup writes a group reversibly as a part of a topic's name. The dot and every byte that is illegal there
// become _xx. An underscore that would read as such an escape is escaped, too.
func escapeGroup(group string) string {
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

// unescapeGroup reverses escapeGroup.
func unescapeGroup(name string) string {
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

// checkTopic refuses names that Kafka would refuse.
func checkTopic(ps *redeliver.Problems, field, topic string) {
	switch {
	case topic == "" || topic == "." || topic == "..":
		ps.Add(field, fmt.Sprintf("%q", topic), "must be the name of a topic")
	case len(topic) > maxTopic:
		ps.Add(field, fmt.Sprintf("%q...", limits.Cut(topic, 40)), fmt.Sprintf("is %d bytes long; a topic has at most %d", len(topic), maxTopic))
	case strings.ContainsFunc(topic, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '.' || r == '_' || r == '-')
	}):
		ps.Add(field, fmt.Sprintf("%q", topic), "must be letters, digits, dot, underscore and hyphen only")
	}
}

func checkGroup(ps *redeliver.Problems, field, group string) {
	switch {
	case group == "":
		ps.Add(field, `""`, "it is required: a retry comes back to the group that failed it")
	case len(group) > maxGroup:
		ps.Add(field, fmt.Sprintf("%q...", limits.Cut(group, 40)), fmt.Sprintf("is %d bytes long; at most %d are allowed", len(group), maxGroup))
	}
}
