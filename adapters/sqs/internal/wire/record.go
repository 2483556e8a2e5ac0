package wire

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
	"github.com/redeliver/redeliver/internal/statekeys"
)

// The system attributes that redeliver reads.
const (
	ReceiveCount  = string(types.MessageSystemAttributeNameApproximateReceiveCount)
	TraceHeader   = string(types.MessageSystemAttributeNameAWSTraceHeader)
	SentTimestamp = string(types.MessageSystemAttributeNameSentTimestamp)
	GroupID       = string(types.MessageSystemAttributeNameMessageGroupId)
	DedupID       = string(types.MessageSystemAttributeNameMessageDeduplicationId)
)

// Native is SQS's own message. The alias names the field that Record embeds.
type Native = types.Message

// Record is a message as the handler sees it first: without redeliver's attribute, and with the attributes that
// travelled inside it. It has no receipt handle, because only the source deletes messages.
type Record struct {
	Native
	CopyID  string // MessageId of the received copy
	FirstID string // MessageId of the first delivery, if known
	Keys    Keys
	Copies  int    // how often it was rewritten because it came back often
	part    string // of a body that is too large for the DLQ, such as 2/3
	// Of a message that is read from a DLQ: the state that it had there, and its attributes there, which copies keep.
	DeadLetter *redeliver.State
	copied     map[string]types.MessageAttributeValue
}

// NewRecord separates a message that was received in a place into the user's part and redeliver's part. The latter is nil if the message
// has no state for this queue, or none that the keys allow.
func NewRecord(m *types.Message, queue string, at statekeys.Place, keys Keys) (Record, *Carried) {
	r := Record{Native: *m, CopyID: aws.ToString(m.MessageId), FirstID: aws.ToString(m.MessageId), Keys: keys}
	r.ReceiptHandle = nil
	c := r.ReadState(at)
	if c == nil || !c.isFor(queue) {
		return r, nil
	}
	c.detach(&r.Native)
	if r.Attributes == nil {
		r.Attributes = make(map[string]string)
	}
	if c.dedupID != "" {
		r.Attributes[DedupID] = c.dedupID
	}
	return r, c
}

// ReadDeadLetter removes the state of a DLQ from a message that is read from there. It ignores the state of another
// DLQ. dlqOf returns the name of a queue's DLQ.
func (r *Record) ReadDeadLetter(queue string, dlqOf func(string) string) []redeliver.Finding {
	c := r.ReadState(statekeys.DeadLetter)
	if c == nil {
		return nil
	}
	dead, found := engine.DeadLetterState(c.Headers, func(origin, group string) bool {
		return origin == group && dlqOf(origin) == queue
	})
	if dead == nil {
		return nil
	}
	r.DeadLetter, r.copied = dead, r.MessageAttributes
	r.MessageAttributes = maps.Clone(r.MessageAttributes)
	c.detach(&r.Native)
	r.setFirstID(c, dead)
	return found
}

// SetFirstDelivery restores the MessageId and send time of the first delivery.
func (r *Record) SetFirstDelivery(c *Carried, st *redeliver.State) {
	r.Copies = c.copies
	r.setFirstID(c, st)
	if !st.Source.Timestamp.IsZero() {
		r.Attributes[SentTimestamp] = strconv.FormatInt(st.Source.Timestamp.UnixMilli(), 10)
	}
}

func (r *Record) setFirstID(c *Carried, st *redeliver.State) {
	_, named := UUIDOf(&r.Native)
	switch {
	case c.MessageID != "":
		r.FirstID = c.MessageID
	case !named && st.ID != "":
		r.FirstID = st.ID
	}
	r.MessageId = aws.String(r.FirstID)
}

// Get returns an attribute's value as text, or "".
func (r *Record) Get(name string) string {
	return string(AttributeBytes(r.MessageAttributes[name]))
}

// OwnExpiry returns the expiry that the message itself names.
func (r *Record) OwnExpiry() time.Time {
	if r.DeadLetter != nil {
		return time.Time{}
	}
	at, _ := limits.ParseTime(r.Get(redeliver.HeaderExpires))
	return at
}

// StateID returns the message's id. A message that is read from a DLQ has the one of the DLQ's state.
func (r *Record) StateID() string {
	if r.DeadLetter != nil && r.DeadLetter.ID != "" {
		return r.DeadLetter.ID
	}
	return IDOf(&r.Native)
}

// copiedAttributes returns the attributes that copies get.
func (r *Record) copiedAttributes() map[string]types.MessageAttributeValue {
	if r.copied != nil {
		return r.copied
	}
	return r.MessageAttributes
}

// UUIDOf returns Watermill's UUID of a message.
func UUIDOf(m *types.Message) (uuid string, ok bool) {
	a, ok := m.MessageAttributes[UUIDAttribute]
	if !ok || a.StringValue == nil || *a.StringValue == "" {
		return "", false
	}
	return *a.StringValue, true
}

// IDOf returns the id of a message: Watermill's UUID, or the MessageId.
func IDOf(m *types.Message) string {
	if uuid, ok := UUIDOf(m); ok {
		return engine.GivenID(uuid)
	}
	return limits.ShortID(aws.ToString(m.MessageId))
}

// SentAt returns when a message was sent, to the millisecond.
func SentAt(m *types.Message) time.Time {
	ms, err := strconv.ParseInt(m.Attributes[SentTimestamp], 10, 64)
	if err != nil || ms <= 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// ReceiveCountOf returns how often a message was delivered, including this time.
func ReceiveCountOf(m *types.Message) int {
	n, err := strconv.Atoi(m.Attributes[ReceiveCount])
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// ForeignAttributes reports attributes that have redeliver's names but belong to the message.
func ForeignAttributes(m *types.Message) []redeliver.Finding {
	var found []redeliver.Finding
	for name, v := range m.MessageAttributes {
		if name == StateAttribute || strings.HasPrefix(name, redeliver.HeaderPrefix) {
			found = engine.AppendForeignHeader(found, name, aws.ToString(v.StringValue),
				"was not written, or not signed, by redeliver for this queue; it is not believed")
		}
	}
	return found
}

// PublishedBody returns the body as its publisher had it.
func (r *Record) PublishedBody() []byte {
	text := aws.ToString(r.Native.Body)
	e, _ := EncodedOf(&r.Native)
	body, err := e.DecodeBody(text)
	if err != nil {
		return []byte(text)
	}
	return body
}
