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
)

const (
	maxAttributes  = 10
	traceHeader    = "AWSTraceHeader"
	minMessageSize = 1024 // the lowest MaximumMessageSize that a queue may have
)

// Redeliver's own fields that a message can do without: where it waits, and in
// the DLQ, where reason, attempts and id are left at last.
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
	group      string // of a FIFO queue
	dedup      string
	delay      int32 // seconds; 0 is what the queue says
	moved      bool  // by redeliver: the delay of the queue is not for it
}

// size is what SQS counts.
func (o *outgoing) size() int {
	n := len(o.body)
	for name, v := range o.attributes {
		n += attributeSize(name, v)
	}
	return n
}

func attributeSize(name string, v types.MessageAttributeValue) int {
	return len(name) + len(aws.ToString(v.DataType)) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
}

// plainCopy is the message as its publisher made it.
func (r *record) plainCopy() outgoing {
	return outgoing{
		body: aws.ToString(r.Body), attributes: r.attributes(),
		trace: r.Attributes[traceHeader], group: r.Attributes[groupID],
	}
}

// copyWithState is the message with st in an attribute of ours. A copy for the queue where
// it waits keeps within limit, or ok is false.
func (r *record) copyWithState(st *redeliver.State, limit int, dispensable []string) (o outgoing, ok bool) {
	o = r.plainCopy()
	c := carried{headers: st.AppendHeaders(nil), copies: r.copiesNext, part: r.part}
	if r.messageID != st.ID {
		c.messageID = r.messageID
	}
	if o.group != "" { // the copy's deduplication id is ours
		c.dedupID = r.Attributes[dedupID]
	}
	o.attributes = make(map[string]types.MessageAttributeValue, len(r.attributes())+1)
	maps.Copy(o.attributes, r.attributes())
	c.displaceAttributes(o.attributes)
	free := limit - o.size() - len(StateAttribute) - len(stringType) - r.keys.size()
	packed, ok := c.packWithin(free, dispensable)
	if ok {
		o.attributes[StateAttribute] = textAttribute(r.keys.sign(packed, o.body))
	}
	return o, ok
}

// displaceAttributes takes out of a message's attributes what cannot stand beside ours.
func (c *carried) displaceAttributes(attributes map[string]types.MessageAttributeValue) {
	displaceOne := func(name string) {
		c.attributes = append(c.attributes, displace(name, attributes[name]))
		delete(attributes, name)
	}
	if _, ok := attributes[StateAttribute]; ok { // the message's own, of which nothing is believed
		displaceOne(StateAttribute)
	}
	for len(attributes) >= maxAttributes {
		displaceOne(slices.MaxFunc(slices.Collect(maps.Keys(attributes)), func(a, b string) int {
			return cmp.Or(attributeRank(a)-attributeRank(b), cmp.Compare(a, b))
		}))
	}
}

// attributeRank has the UUID stay where every consumer finds it.
func attributeRank(name string) int {
	if name == UUIDAttribute {
		return 0
	}
	return 1
}

// packWithin packs within most bytes, and leaves out as much of ours as that takes.
func (c *carried) packWithin(maxSize int, dispensable []string) (packed string, ok bool) {
	if packed = c.pack(); len(packed) <= maxSize {
		return packed, true
	}
	for i, h := range c.headers {
		if h.Name == redeliver.HeaderError {
			c.headers[i].Value = redeliver.Cut(h.Value, 128)
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

// waitingCopy is the copy that waits. ok is false when the message leaves no room for
// our state.
func (r *record) waitingCopy(st *redeliver.State, limit int) (o outgoing, ok bool) {
	return r.copyWithState(st, limit, dispensable)
}

// rewrittenCopy is the copy of a message that is written anew because it has come back often.
func (r *record) rewrittenCopy(st *redeliver.State, limit int) (o outgoing, ok bool) {
	own := *r
	own.copiesNext = r.copies + 1
	return own.copyWithState(st, limit, dispensable)
}

// deadCopy is the copy for the DLQ, which takes everything that came: with as much of
// ours as fits, at worst with nothing.
func (r *record) deadCopy(st *redeliver.State, limit int) outgoing {
	if o, ok := r.copyWithState(st, limit, dispensableInDLQ); ok {
		return o
	}
	return r.plainCopy()
}

// deadParts is the message in copies of at most size bytes: each has a part of the
// body, and all attributes unless they leave no room for a body.
func (r *record) deadParts(st *redeliver.State, size int) (all []outgoing) {
	rest := aws.ToString(r.native.Body)
	part := *r
	part.native.Body, part.part = aws.String(""), "1000/1000"
	o, ok := part.copyWithState(st, size*3/4, dispensableInDLQ)
	if !ok {
		own := r.attributes()
		part.copied, part.MessageAttributes = nil, make(map[string]types.MessageAttributeValue)
		for _, name := range []string{UUIDAttribute, EncodedAttribute} {
			if v, has := own[name]; has && attributeSize(name, v) < size/4 {
				part.MessageAttributes[name] = v
			}
		}
		o, _ = part.copyWithState(st, size*3/4, dispensableInDLQ)
	}
	var bodies []string
	for room := (size - o.size()) / 4 * 4; len(rest) > room; { // base64 comes in fours
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

// moveDedupID is a deduplication id for one move of one message: another move of it,
// or a move of another copy, must not be taken for this one.
func moveDedupID(what string, r *record, st *redeliver.State) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %s %d %d", what, r.current, st.ID, st.Attempts, st.Replays))
	return what + "-" + hex.EncodeToString(sum[:16])
}
