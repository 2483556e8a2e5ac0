package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// MinMessageSize is the lowest MaximumMessageSize of a queue, in bytes.
const MinMessageSize = 1024

// The fields of redeliver's state to leave out for lack of room, in the queue and the DLQ. The DLQ always keeps reason,
// attempts and id.
var (
	dispensable      = []string{redeliver.HeaderTrace, redeliver.HeaderErrorType, redeliver.HeaderFirstError, redeliver.HeaderError, redeliver.HeaderPolicy}
	dispensableInDLQ = append(slices.Clone(dispensable),
		redeliver.HeaderDue, redeliver.HeaderOriginTimestamp, redeliver.HeaderLastFailed, redeliver.HeaderFirstFailed,
		redeliver.HeaderPostponed, redeliver.HeaderReplays, redeliver.HeaderReplayed, redeliver.HeaderOrigin, redeliver.HeaderGroup)
)

// Outgoing is a message that is ready to be sent.
type Outgoing struct {
	Body       string
	Attributes map[string]types.MessageAttributeValue
	Trace      string
	Group      string // left out if a standard queue does not accept it
	DedupID    string // for FIFO queues
	Delay      int32  // seconds; 0 means the queue's own delay
	Moved      bool   // redeliver moves it: the queue's own delay does not apply
}

// Size returns the size of the message as SQS counts it.
func (o *Outgoing) Size() int { return MessageSize(o.Body, o.Attributes) }

// PlainCopy returns the message as its publisher made it.
func (r *Record) PlainCopy() Outgoing {
	return Outgoing{
		Body: aws.ToString(r.Body), Attributes: r.copiedAttributes(),
		Trace: r.Attributes[TraceHeader], Group: r.Attributes[GroupID], Moved: true,
	}
}

// copyWithState returns the message for a place, with st in StateAttribute. copies is how often it was rewritten. ok is false if it
// does not fit into maxSize bytes.
func (r *Record) copyWithState(st *redeliver.State, at statekeys.Place, copies, maxSize int, dispensable []string) (o Outgoing, ok bool) {
	o = r.PlainCopy()
	c := Carried{Headers: driver.AppendStateHeaders(*st, nil), Part: r.part, copies: copies}
	if r.FirstID != st.ID {
		c.MessageID = r.FirstID
	}
	if o.Group != "" { // the copy gets a deduplication id of redeliver
		c.dedupID = r.Attributes[DedupID]
	}
	o.Attributes = make(map[string]types.MessageAttributeValue, len(r.copiedAttributes())+1)
	maps.Copy(o.Attributes, r.copiedAttributes())
	c.displaceAttributes(o.Attributes)
	free := maxSize - o.Size() - len(StateAttribute) - len(StringType) - r.Keys.size()
	packed, ok := c.packWithin(free, dispensable)
	if ok {
		o.Attributes[StateAttribute] = TextAttribute(r.Keys.Sign(at, packed, o.Body))
	}
	return o, ok
}

// displaceAttributes moves attributes that have no room beside StateAttribute into it, the UUID never.
func (c *Carried) displaceAttributes(attributes map[string]types.MessageAttributeValue) {
	displace := func(name string) {
		v := attributes[name]
		c.Attributes = append(c.Attributes, Displaced{Name: name, Type: aws.ToString(v.DataType), Value: AttributeBytes(v)})
		delete(attributes, name)
	}
	if _, ok := attributes[StateAttribute]; ok { // the message's own, not redeliver's state
		displace(StateAttribute)
	}
	if len(attributes) < MaxAttributes {
		return
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(attributes))) {
		if len(attributes) >= MaxAttributes && name != UUIDAttribute {
			displace(name)
		}
	}
}

// packWithin packs the state within maxSize bytes. It shortens the errors and leaves out dispensable fields as needed.
func (c *Carried) packWithin(maxSize int, dispensable []string) (packed string, ok bool) {
	packed = c.Pack()
	for i := 0; len(packed) > maxSize && i <= len(dispensable); i++ {
		if i == 0 {
			for j, h := range c.Headers {
				if h.Name == redeliver.HeaderError || h.Name == redeliver.HeaderFirstError {
					c.Headers[j].Value = limits.Cut(h.Value, 128)
				}
			}
		} else {
			c.Headers = slices.DeleteFunc(c.Headers, func(h driver.Header) bool { return h.Name == dispensable[i-1] })
		}
		packed = c.Pack()
	}
	return packed, len(packed) <= maxSize
}

// WaitingCopy returns the copy that waits. ok is false if the message leaves no room for the state.
func (r *Record) WaitingCopy(st *redeliver.State, maxSize int) (o Outgoing, ok bool) {
	return r.copyWithState(st, statekeys.Waiting, 0, maxSize, dispensable)
}

// NoteCopy returns a note of a message that keeps its place. ok is false if there is no room for the state.
func (r *Record) NoteCopy(st *redeliver.State, maxSize int) (o Outgoing, ok bool) {
	return r.copyWithState(st, statekeys.Note, 0, maxSize, dispensable)
}

// RewrittenCopy returns the copy of a message that is rewritten because it came back often.
func (r *Record) RewrittenCopy(st *redeliver.State, maxSize int) (o Outgoing, ok bool) {
	return r.copyWithState(st, statekeys.Waiting, r.Copies+1, maxSize, dispensable)
}

// DeadCopy returns the copy for the DLQ with as much of the state as fits, or with none.
func (r *Record) DeadCopy(st *redeliver.State, maxSize int) Outgoing {
	if o, ok := r.copyWithState(st, statekeys.DeadLetter, 0, maxSize, dispensableInDLQ); ok {
		return o
	}
	return r.PlainCopy()
}

// DeadParts splits the message into copies of at most size bytes. Each has a part of the body, and all attributes
// unless they leave no room for a body, or bare is set.
func (r *Record) DeadParts(st *redeliver.State, size int, bare bool) (all []Outgoing) {
	rest := aws.ToString(r.Body)
	part := *r
	part.Body, part.part = aws.String(""), "1000/1000"
	o, ok := part.copyWithState(st, statekeys.DeadLetter, 0, size*3/4, dispensableInDLQ)
	if !ok || bare {
		own := r.copiedAttributes()
		part.copied, part.MessageAttributes = nil, make(map[string]types.MessageAttributeValue)
		for _, name := range []string{UUIDAttribute, EncodedAttribute} {
			if v, has := own[name]; has && attributeSize(name, v) < size/4 {
				part.MessageAttributes[name] = v
			}
		}
		o, _ = part.copyWithState(st, statekeys.DeadLetter, 0, size*3/4, dispensableInDLQ)
	}
	var bodies []string
	for room := (size - o.Size()) / 4 * 4; len(rest) > room; { // base64 comes in groups of four
		n := room
		for n > 1 && !utf8.RuneStart(rest[n]) {
			n--
		}
		bodies, rest = append(bodies, rest[:n]), rest[n:]
	}
	bodies = append(bodies, rest)
	for i, body := range bodies {
		part.Body, part.part = &body, fmt.Sprintf("%d/%d", i+1, len(bodies))
		all = append(all, part.DeadCopy(st, size))
	}
	return all
}

// MoveDedupID returns a deduplication id for one move of one message. Another move, or the move of another copy, gets
// a different one.
func MoveDedupID(what string, r *Record, st *redeliver.State) string {
	return hashedID(what, fmt.Appendf(nil, "%s %s %s %d %d", what, r.CopyID, st.ID, st.Attempts, st.Replays))
}

// ReplayDedupID is MoveDedupID for a replay. A replay of an edited body or attribute gets a different id.
func ReplayDedupID(r *Record, st *redeliver.State) string {
	const what = "replay"
	text := []byte(MoveDedupID(what, r, st) + " " + aws.ToString(r.Native.Body))
	for _, name := range slices.Sorted(maps.Keys(r.MessageAttributes)) {
		text = fmt.Appendf(text, " %q=%q", name, AttributeBytes(r.MessageAttributes[name]))
	}
	return hashedID(what, text)
}

func hashedID(what string, text []byte) string {
	sum := sha256.Sum256(text)
	return what + "-" + hex.EncodeToString(sum[:16])
}
