package sqs

import (
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/limits"
)

// The system attributes that redeliver reads.
const (
	receiveCount  = string(types.MessageSystemAttributeNameApproximateReceiveCount)
	sentTimestamp = string(types.MessageSystemAttributeNameSentTimestamp)
	groupID       = string(types.MessageSystemAttributeNameMessageGroupId)
	dedupID       = string(types.MessageSystemAttributeNameMessageDeduplicationId)
)

// native is SQS's own message. The alias names the field that record embeds.
type native = types.Message

// record is a message as the handler sees it first: without redeliver's attribute, and with the attributes that
// travelled inside it. It has no receipt handle, because only the source deletes messages.
type record struct {
	native
	current   string // MessageId of the received copy
	messageID string // of the first delivery, if known
	marshaler Marshaler
	keys      stateKeys
	// How often it was rewritten because it came back often, and the number for the next copy.
	copies, copiesNext int
	part               string // of a body that is too large for the DLQ, such as 2/3
	// Of a message that is read from a DLQ: the state that it had there, and its attributes there, which copies keep.
	deadLetter *redeliver.State
	copied     map[string]types.MessageAttributeValue
}

// Get returns an attribute's value as text, or "".
func (r *record) Get(name string) string {
	return string(attributeBytes(r.MessageAttributes[name]))
}

// ownExpiry returns the expiry that the message itself names.
func (r *record) ownExpiry() time.Time {
	if r.deadLetter != nil {
		return time.Time{}
	}
	at, _ := limits.ParseTime(r.Get(redeliver.HeaderExpires))
	return at
}

// newRecord separates a received message into the user's part and redeliver's part, nil if it is not trusted.
func newRecord(m *types.Message, queue string, marshaler Marshaler, keys stateKeys) (record, *carried) {
	r := record{native: *m, current: aws.ToString(m.MessageId), marshaler: marshaler, keys: keys}
	r.ReceiptHandle, r.messageID = nil, r.current
	c := detachState(&r.native, queue, keys)
	if c == nil {
		return r, nil
	}
	if r.Attributes == nil {
		r.Attributes = make(map[string]string)
	}
	if c.dedupID != "" {
		r.Attributes[dedupID] = c.dedupID
	}
	return r, c
}

// readDeadLetter removes the state of a DLQ from a message that is read from there. It ignores the state of another
// DLQ.
func (r *record) readDeadLetter(queue string, names Names) []redeliver.Finding {
	a, ok := r.MessageAttributes[StateAttribute]
	if !ok || a.StringValue == nil || !r.keys.verify(*a.StringValue, aws.ToString(r.Body)) {
		return nil
	}
	c, ok := unpack(*a.StringValue)
	if !ok {
		return nil
	}
	dead, found := engine.DeadLetterState(c.headers, func(origin, group string) bool {
		return origin == group && names.dlq(origin) == queue
	})
	if dead == nil {
		return nil
	}
	r.deadLetter, r.copied = dead, r.MessageAttributes
	r.MessageAttributes = maps.Clone(r.MessageAttributes)
	c.detach(&r.native)
	if c.messageID != "" {
		r.messageID = c.messageID
	} else if _, named := uuidOf(&r.native); !named && dead.ID != "" {
		r.messageID = dead.ID
	}
	r.MessageId = aws.String(r.messageID)
	return found
}

// stateID returns the message's id. A message that is read from a DLQ has the one of the DLQ's state.
func (r *record) stateID() string {
	if r.deadLetter != nil && r.deadLetter.ID != "" {
		return r.deadLetter.ID
	}
	return idOf(&r.native)
}

// copiedAttributes returns the attributes that copies get.
func (r *record) copiedAttributes() map[string]types.MessageAttributeValue {
	if r.copied != nil {
		return r.copied
	}
	return r.MessageAttributes
}

// setFirstDelivery restores the MessageId and send time of the first delivery.
func (r *record) setFirstDelivery(c *carried, st *redeliver.State) {
	_, named := uuidOf(&r.native)
	switch {
	case c.messageID != "":
		r.messageID = c.messageID
	case !named && st.ID != "":
		r.messageID = st.ID
	}
	r.MessageId = aws.String(r.messageID)
	if !st.Source.Timestamp.IsZero() {
		r.Attributes[sentTimestamp] = strconv.FormatInt(st.Source.Timestamp.UnixMilli(), 10)
	}
}

// uuidOf returns Watermill's UUID of a message.
func uuidOf(m *types.Message) (uuid string, ok bool) {
	a, ok := m.MessageAttributes[UUIDAttribute]
	if !ok || a.StringValue == nil || *a.StringValue == "" {
		return "", false
	}
	return *a.StringValue, true
}

// idOf returns the id of a message: Watermill's UUID, or the MessageId.
func idOf(m *types.Message) string {
	if uuid, ok := uuidOf(m); ok {
		return engine.GivenID(uuid)
	}
	return limits.ShortID(aws.ToString(m.MessageId))
}

// sentAt returns when a message was sent, to the millisecond.
func sentAt(m *types.Message) time.Time {
	ms, err := strconv.ParseInt(m.Attributes[sentTimestamp], 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// receiveCountOf returns how often a message was delivered, including this time.
func receiveCountOf(m *types.Message) int {
	n, err := strconv.Atoi(m.Attributes[receiveCount])
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// foreignAttributes reports attributes that have redeliver's names but belong to the message.
func foreignAttributes(m *types.Message) []redeliver.Finding {
	var found []redeliver.Finding
	for name, v := range m.MessageAttributes {
		if name == StateAttribute || strings.HasPrefix(name, redeliver.HeaderPrefix) {
			found = engine.AppendForeignHeader(found, name, aws.ToString(v.StringValue),
				"was not written, or not signed, by redeliver for this queue; it is not believed")
		}
	}
	return found
}

// publishedBody returns the body as its publisher had it.
func (r *record) publishedBody() []byte {
	text := aws.ToString(r.native.Body)
	e, _ := encodedOf(&r.native)
	body, err := e.decodeBody(text)
	if err != nil {
		return []byte(text)
	}
	return body
}
