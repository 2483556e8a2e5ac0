package sqs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

const (
	maxAttributes  = 10
	traceHeader    = "AWSTraceHeader"
	minMessageSize = 1024 // the lowest MaximumMessageSize of a queue
)

// The fields of redeliver's state to leave out for lack of room, in the queue and the DLQ. The DLQ always keeps reason,
// attempts and id.
var (
	dispensable      = []string{redeliver.HeaderTrace, redeliver.HeaderErrorType, redeliver.HeaderError, redeliver.HeaderPolicy}
	dispensableInDLQ = append(slices.Clone(dispensable),
		redeliver.HeaderDue, redeliver.HeaderOriginTimestamp, redeliver.HeaderLastFailed, redeliver.HeaderFirstFailed,
		redeliver.HeaderPostponed, redeliver.HeaderReplays, redeliver.HeaderReplayed, redeliver.HeaderOrigin, redeliver.HeaderGroup)
)

// outgoing is a message that is ready to be sent.
type outgoing struct {
	body       string
	attributes map[string]types.MessageAttributeValue
	trace      string
	group      string // for FIFO queues
	dedup      string
	delay      int32 // seconds; 0 means the queue's own delay
	moved      bool  // redeliver moves it: the queue's own delay does not apply
}

// size returns the size of the message as SQS counts it.
func (o *outgoing) size() int { return messageSize(o.body, o.attributes) }

func messageSize(body string, attributes map[string]types.MessageAttributeValue) int {
	n := len(body)
	for name, v := range attributes {
		n += attributeSize(name, v)
	}
	return n
}

func attributeSize(name string, v types.MessageAttributeValue) int {
	return len(name) + len(aws.ToString(v.DataType)) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
}

// plainCopy returns the message as its publisher made it.
func (r *record) plainCopy() outgoing {
	return outgoing{
		body: aws.ToString(r.Body), attributes: r.copiedAttributes(),
		trace: r.Attributes[traceHeader], group: r.Attributes[groupID],
	}
}

// copyWithState returns the message with st in StateAttribute. ok is false if it does not fit into maxSize bytes.
func (r *record) copyWithState(st *redeliver.State, maxSize int, dispensable []string) (o outgoing, ok bool) {
	o = r.plainCopy()
	c := carried{headers: st.AppendHeaders(nil), copies: r.copiesNext, part: r.part}
	if r.messageID != st.ID {
		c.messageID = r.messageID
	}
	if o.group != "" { // the copy gets a deduplication id of redeliver
		c.dedupID = r.Attributes[dedupID]
	}
	o.attributes = make(map[string]types.MessageAttributeValue, len(r.copiedAttributes())+1)
	maps.Copy(o.attributes, r.copiedAttributes())
	c.displaceAttributes(o.attributes)
	free := maxSize - o.size() - len(StateAttribute) - len(stringType) - r.keys.size()
	packed, ok := c.packWithin(free, dispensable)
	if ok {
		o.attributes[StateAttribute] = textAttribute(r.keys.sign(packed, o.body))
	}
	return o, ok
}

// displaceAttributes moves attributes that have no room beside StateAttribute into it.
func (c *carried) displaceAttributes(attributes map[string]types.MessageAttributeValue) {
	displaceOne := func(name string) {
		c.attributes = append(c.attributes, displace(name, attributes[name]))
		delete(attributes, name)
	}
	if _, ok := attributes[StateAttribute]; ok { // the message's own, not redeliver's state
		displaceOne(StateAttribute)
	}
	for len(attributes) >= maxAttributes {
		displaceOne(slices.MaxFunc(slices.Collect(maps.Keys(attributes)), func(a, b string) int {
			return cmp.Or(attributeRank(a)-attributeRank(b), cmp.Compare(a, b))
		}))
	}
}

// attributeRank is lowest for the UUID, which moves last.
func attributeRank(name string) int {
	if name == UUIDAttribute {
		return 0
	}
	return 1
}

// packWithin packs the state within maxSize bytes. It leaves out dispensable fields as needed.
func (c *carried) packWithin(maxSize int, dispensable []string) (packed string, ok bool) {
	if packed = c.pack(); len(packed) <= maxSize {
		return packed, true
	}
	for i, h := range c.headers {
		if h.Name == redeliver.HeaderError {
			c.headers[i].Value = limits.Cut(h.Value, 128)
		}
	}
	for _, name := range dispensable {
		if packed = c.pack(); len(packed) <= maxSize {
			return packed, true
		}
		c.headers = slices.DeleteFunc(c.headers, func(h redeliver.Header) bool { return h.Name == name })
	}
	packed = c.pack()
	return packed, len(packed) <= maxSize
}

func textAttribute(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(stringType), StringValue: aws.String(value)}
}

// waitingCopy returns the copy that waits. ok is false if the message leaves no room for the state.
func (r *record) waitingCopy(st *redeliver.State, maxSize int) (o outgoing, ok bool) {
	return r.copyWithState(st, maxSize, dispensable)
}

// rewrittenCopy returns the copy of a message that is rewritten because it came back often.
func (r *record) rewrittenCopy(st *redeliver.State, maxSize int) (o outgoing, ok bool) {
	own := *r
	own.copiesNext = r.copies + 1
	return own.copyWithState(st, maxSize, dispensable)
}

// deadCopy returns the copy for the DLQ with as much of the state as fits, or with none.
func (r *record) deadCopy(st *redeliver.State, maxSize int) outgoing {
	if o, ok := r.copyWithState(st, maxSize, dispensableInDLQ); ok {
		return o
	}
	return r.plainCopy()
}

// deadParts splits the message into copies of at most size bytes. Each has a part of the body, and all attributes
// unless they leave no room for a body, or bare is set.
func (r *record) deadParts(st *redeliver.State, size int, bare bool) (all []outgoing) {
	rest := aws.ToString(r.native.Body)
	part := *r
	part.native.Body, part.part = aws.String(""), "1000/1000"
	o, ok := part.copyWithState(st, size*3/4, dispensableInDLQ)
	if !ok || bare {
		own := r.copiedAttributes()
		part.copied, part.MessageAttributes = nil, make(map[string]types.MessageAttributeValue)
		for _, name := range []string{UUIDAttribute, EncodedAttribute} {
			if v, has := own[name]; has && attributeSize(name, v) < size/4 {
				part.MessageAttributes[name] = v
			}
		}
		o, _ = part.copyWithState(st, size*3/4, dispensableInDLQ)
	}
	var bodies []string
	for room := (size - o.size()) / 4 * 4; len(rest) > room; { // base64 comes in groups of four
		n := room
		for n > 1 && !utf8.RuneStart(rest[n]) {
			n--
		}
		bodies, rest = append(bodies, rest[:n]), rest[n:]
	}
	bodies = append(bodies, rest)
	for i, body := range bodies {
		part.native.Body, part.part = &body, fmt.Sprintf("%d/%d", i+1, len(bodies))
		all = append(all, part.deadCopy(st, size))
	}
	return all
}

// moveDedupID returns a deduplication id for one move of one message. Another move, or the move of another copy, gets
// a different one.
func moveDedupID(what string, r *record, st *redeliver.State) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d", what, r.current, st.ID, st.Attempts, st.Replays))
	return what + "-" + hex.EncodeToString(sum[:16])
}
