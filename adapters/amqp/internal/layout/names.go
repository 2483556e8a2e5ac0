package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/rules"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Limits of names. AMQP allows 255 bytes for a queue. The longest suffix is ".retry." and a level.
const (
	maxQueue  = 255
	maxSuffix = 40
)

// Names are the names of the queues beside a queue. Retry and DLQ are nil for the default names.
type Names struct {
	Retry func(queue string) string
	DLQ   func(queue string) string
}

func (n Names) RetryOf(queue string) string {
	if n.Retry != nil {
		return n.Retry(queue)
	}
	return base(queue) + wirename.RetrySuffix
}

func (n Names) DLQOf(queue string) string {
	if n.DLQ != nil {
		return n.DLQ(queue)
	}
	return base(queue) + wirename.DLQSuffix
}

// suspectsOf returns the queue of messages that may have killed their process.
func (n Names) suspectsOf(queue string) string { return n.RetryOf(queue) + ".suspects" }

// placeOf returns the queue of the notes about messages that keep their place.
func (n Names) placeOf(queue string) string { return n.RetryOf(queue) + ".place" }

// pausedOf returns the queue whose message pauses the subscription.
func (n Names) pausedOf(queue string) string { return n.RetryOf(queue) + ".paused" }

func (n Names) DelayOf(queue string, level time.Duration) string {
	return n.RetryOf(queue) + "." + delayqueue.LevelName(level)
}

// Level parses the level in the name of a delay queue of queue.
func (n Names) Level(queue, name string) (time.Duration, bool) {
	suffix, ok := strings.CutPrefix(name, n.RetryOf(queue)+".")
	if !ok {
		return 0, false
	}
	return delayqueue.ParseLevel(suffix)
}

// Check refuses names that collide, or that RabbitMQ would refuse.
func (n Names) Check(ps *check.Problems, queue string) {
	if n.Retry != nil {
		retry, field := n.RetryOf(queue), fmt.Sprintf("Names.Retry(%q)", queue)
		CheckQueue(ps, field, retry)
		rules.CheckRoom(ps, field, retry, maxQueue-maxSuffix+len(wirename.RetrySuffix))
		rules.CheckOwnName(ps, "queue", field, retry, queue)
	}
	if n.DLQ != nil {
		dead, field := n.DLQOf(queue), fmt.Sprintf("Names.DLQ(%q)", queue)
		CheckQueue(ps, field, dead)
		rules.CheckOwnName(ps, "queue", field, dead, queue, n.RetryOf(queue))
	}
}

// base returns the queue's name. If there is no room for the suffixes, it cuts the name and adds a hash of the whole.
func base(queue string) string {
	if len(queue) <= maxQueue-maxSuffix {
		return queue
	}
	sum := sha256.Sum256([]byte(queue))
	hash := "-" + hex.EncodeToString(sum[:8])
	return limits.Cut(queue, maxQueue-maxSuffix-len(hash)) + hash
}

// CheckQueue refuses names that RabbitMQ would refuse.
func CheckQueue(ps *check.Problems, field, queue string) {
	switch {
	case queue == "":
		ps.Add(field, `""`, "must be the name of a queue: the broker deletes a queue that it names itself with its connection, and then nobody reads its retries")
	case rules.CheckLength(ps, "queue", field, queue, maxQueue):
	case !utf8.ValidString(queue):
		ps.Add(field, fmt.Sprintf("%q", queue), "must be UTF-8")
	case strings.HasPrefix(queue, "amq."):
		ps.Add(field, fmt.Sprintf("%q", queue), "must not begin with amq., which is the broker's own")
	}
}

// hashed matches the end of a queue's name that was cut, see base.
var hashed = regexp.MustCompile("-[0-9a-f]{16}$")

// QueueOf returns the queue that a DLQ's name belongs to.
func QueueOf(dlq string) (queue string, ok bool) {
	queue = strings.TrimSuffix(dlq, wirename.DLQSuffix)
	const room = 4 // for the rest of a character at the cut
	cut := len(queue) > maxQueue-maxSuffix-room && hashed.MatchString(queue)
	return queue, queue != "" && !cut && base(queue) == queue
}
