package amqp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/wirename"
)

// Limits of names. AMQP allows 255 bytes for a queue. The longest suffix is ".retry.", a level and a shard.
const (
	maxQueue  = 255
	maxSuffix = 40
)

// Names configures the names of the queues beside a queue. A nil field means the default. The names
// must differ for every queue, because two queues must never share their retries.
type Names struct {
	// Retry is the queue from which a message comes back. Default "<queue>.retry". The name of a
	// delay queue is this name, a dot and its level: "<queue>.retry.10s". Further shards are
	// "<queue>.retry.10s.1".
	Retry func(queue string) string
	// DLQ is the dead-letter queue. Default "<queue>.dlq".
	DLQ func(queue string) string
}

// queueNames are the names of the queues beside a queue. Retry and DLQ are nil for the default names.
type queueNames struct {
	Retry func(queue string) string
	DLQ   func(queue string) string
}

func (n queueNames) retry(queue string) string {
	if n.Retry != nil {
		return n.Retry(queue)
	}
	return base(queue) + wirename.RetrySuffix
}

func (n queueNames) dlq(queue string) string {
	if n.DLQ != nil {
		return n.DLQ(queue)
	}
	return base(queue) + wirename.DLQSuffix
}

// suspects returns the queue of messages that may have killed their process.
func (n queueNames) suspects(queue string) string { return n.retry(queue) + ".suspects" }

// place returns the queue of crash counts of ordered messages.
func (n queueNames) place(queue string) string { return n.retry(queue) + ".place" }

// paused returns the queue whose message pauses the subscription.
func (n queueNames) paused(queue string) string { return n.retry(queue) + ".paused" }

func (n queueNames) delay(queue string, level time.Duration, shard int) string {
	name := n.retry(queue) + "." + delayqueue.LevelName(level)
	if shard > 0 {
		name += "." + strconv.Itoa(shard)
	}
	return name
}

// level parses the level in the name of a delay queue of queue.
func (n queueNames) level(queue, name string) (time.Duration, bool) {
	suffix, ok := strings.CutPrefix(name, n.retry(queue)+".")
	if !ok {
		return 0, false
	}
	if d, ok := delayqueue.ParseLevel(suffix); ok {
		return d, true
	}
	// A shard follows the last dot; 1.5s contains a dot too.
	at := max(0, strings.LastIndexByte(suffix, '.'))
	return delayqueue.ParseLevel(suffix[:at])
}

// check refuses names that collide, or that RabbitMQ would refuse.
func (n queueNames) check(ps *redeliver.Problems, queue string) {
	if n.Retry != nil {
		retry := n.retry(queue)
		checkQueue(ps, fmt.Sprintf("Names.Retry(%q)", queue), retry)
		if maxLength := maxQueue - maxSuffix + len(wirename.RetrySuffix); len(retry) > maxLength {
			ps.Add(fmt.Sprintf("Names.Retry(%q)", queue), len(retry), fmt.Sprintf("must be at most %d bytes long: redeliver appends the level to it", maxLength))
		}
		if retry == queue {
			ps.Add(fmt.Sprintf("Names.Retry(%q)", queue), retry, "must not be the queue itself")
		}
	}
	if n.DLQ != nil {
		dead := n.dlq(queue)
		checkQueue(ps, fmt.Sprintf("Names.DLQ(%q)", queue), dead)
		if retry := n.retry(queue); dead == queue || dead == retry || strings.HasPrefix(dead, retry+".") {
			ps.Add(fmt.Sprintf("Names.DLQ(%q)", queue), dead, "must be neither the queue itself, nor the name of another queue of redeliver's")
		}
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

// checkQueue refuses names that RabbitMQ would refuse.
func checkQueue(ps *redeliver.Problems, field, queue string) {
	switch {
	case queue == "":
		ps.Add(field, `""`, "must be the name of a queue: the broker deletes a queue that it names itself with its connection, and then nobody reads its retries")
	case len(queue) > maxQueue:
		ps.Add(field, fmt.Sprintf("%q...", limits.Cut(queue, 40)), fmt.Sprintf("is %d bytes long; a queue has at most %d", len(queue), maxQueue))
	case !utf8.ValidString(queue):
		ps.Add(field, fmt.Sprintf("%q", queue), "must be UTF-8")
	case strings.HasPrefix(queue, "amq."):
		ps.Add(field, fmt.Sprintf("%q", queue), "must not begin with amq., which is the broker's own")
	}
}

// hashed matches the end of a queue's name that was cut, see base.
var hashed = regexp.MustCompile("-[0-9a-f]{16}$")

// queueOf returns the queue that a DLQ's name belongs to.
func queueOf(dlq string) (queue string, ok bool) {
	queue = strings.TrimSuffix(dlq, wirename.DLQSuffix)
	const room = 4 // for the rest of a character at the cut
	cut := len(queue) > maxQueue-maxSuffix-room && hashed.MatchString(queue)
	return queue, queue != "" && !cut && base(queue) == queue
}
