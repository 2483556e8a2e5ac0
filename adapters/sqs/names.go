package sqs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

const (
	maxName    = 80 // SQS's limit, .fifo included
	maxSuffix  = len("-suspects")
	fifoSuffix = ".fifo"
)

// Names configures the names of redeliver's queues. A nil field means the default. The names must
// differ for every queue, and end with .fifo if the queue's name does.
type Names struct {
	// DLQ is the dead-letter queue. Default "<queue>-dlq"; for orders.fifo it is
	// orders-dlq.fifo.
	DLQ func(queue string) string
	// Suspects is the queue of messages that may have killed their process.
	// Default "<queue>-suspects"; for orders.fifo it is orders-suspects.fifo.
	Suspects func(queue string) string
}

func (n Names) dlq(queue string) string {
	if n.DLQ != nil {
		return n.DLQ(queue)
	}
	return siblingName(queue, "-dlq")
}

func (n Names) suspects(queue string) string {
	if n.Suspects != nil {
		return n.Suspects(queue)
	}
	return siblingName(queue, "-suspects")
}

// check refuses names that collide, or that SQS would refuse.
func (n Names) check(ps *redeliver.Problems, queue string) {
	dlq, suspects := n.dlq(queue), n.suspects(queue)
	if n.DLQ != nil {
		checkBeside(ps, fmt.Sprintf("Names.DLQ(%q)", queue), queue, dlq)
	}
	if n.Suspects != nil {
		checkBeside(ps, fmt.Sprintf("Names.Suspects(%q)", queue), queue, suspects)
	}
	if dlq == suspects {
		ps.Add(fmt.Sprintf("Names.Suspects(%q)", queue), suspects, "must not be the name of the DLQ")
	}
}

func checkBeside(ps *redeliver.Problems, field, queue, name string) {
	checkName(ps, field, name)
	switch {
	case name == queue:
		ps.Add(field, name, "must not be the queue itself")
	case isFIFO(name) != isFIFO(queue):
		ps.Add(field, name, "must end with .fifo where the queue does, and only there")
	}
}

// siblingName returns a queue's name with a suffix. If there is no room for the suffix, it cuts the name and adds a
// hash of the whole name.
func siblingName(queue, suffix string) string {
	stem, end := queue, ""
	if isFIFO(queue) {
		stem, end = strings.TrimSuffix(queue, fifoSuffix), fifoSuffix
	}
	if maxStem := maxName - maxSuffix - len(end); len(stem) > maxStem {
		sum := sha256.Sum256([]byte(queue))
		hash := "-" + hex.EncodeToString(sum[:8])
		stem = stem[:maxStem-len(hash)] + hash
	}
	return stem + suffix + end
}

func isFIFO(queue string) bool { return strings.HasSuffix(queue, fifoSuffix) }

// checkName refuses names that SQS would refuse.
func checkName(ps *redeliver.Problems, field, queue string) {
	stem := strings.TrimSuffix(queue, fifoSuffix)
	bad := stem == "" || len(queue) > maxName
	for _, r := range stem {
		bad = bad || !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_')
	}
	if bad {
		ps.Add(field, fmt.Sprintf("%q", limits.Cut(redeliver.Redact(queue), 2*maxName)),
			fmt.Sprintf("must be the name of a queue: up to %d letters, digits, hyphens and underscores, with .fifo at the end of a FIFO queue's", maxName))
	}
}

// address is a queue as a topic identifies it: by name, URL or ARN.
type address struct {
	name    string
	url     string // if the topic is a URL
	account string // of an ARN, or of a URL that has one
	region  string // of an ARN
}

// parseTopic reads a topic. It does not check the name.
func parseTopic(topic string) address {
	if parts := strings.SplitN(topic, ":", 6); len(parts) == 6 && parts[0] == "arn" && parts[2] == "sqs" {
		return address{name: parts[5], region: parts[3], account: parts[4]}
	}
	if u, err := url.Parse(topic); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
		steps := strings.Split(strings.Trim(u.Path, "/"), "/")
		a := address{name: steps[len(steps)-1], url: topic}
		if len(steps) > 1 {
			a.account = steps[len(steps)-2]
		}
		return a
	}
	return address{name: topic}
}
