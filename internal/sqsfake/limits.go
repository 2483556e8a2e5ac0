package sqsfake

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The limits that AWS documents, in the developer guide's "Amazon SQS message quotas" and each action's reference.
const (
	// MaxMessageSize is the largest MaximumMessageSize, which queues have without one, and the limit of a batch.
	MaxMessageSize = 1 << 20

	maxAttributes = 10
	maxEntries    = 10
	maxDelay      = 900
	maxVisibility = 43200
	maxWait       = 20
	maxName       = 256 // of an attribute, and of its type
	maxID         = 128 // of a message group and a deduplication

	dedupTime     = 5 * time.Minute
	deletedTime   = time.Minute // until a queue's name can be used again
	purgeTime     = time.Minute // between two purges
	maxVisibleAge = maxVisibility * time.Second
)

var (
	entryID       = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	queueName     = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	groupID       = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]{1,128}$")
	attributeType = regexp.MustCompile(`^(String|Number|Binary)(\..+)?$`)
	number        = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
)

// Check returns why SQS would refuse the call, or nil. limit is the MaximumMessageSize of the queue. It is stricter than
// SQS in two points: a bad entry refuses its whole batch, and the messages of a batch have at most limit bytes together.
func (c *Call) Check(limit int) *Refusal {
	if c.Batch {
		if r := c.checkBatch(); r != nil {
			return r
		}
	}
	sum := 0
	for _, e := range c.Entries {
		var size int
		var r *Refusal
		switch strings.TrimSuffix(c.Action, "Batch") {
		case "SendMessage":
			size, r = c.checkMessage(e, limit)
		case "ChangeMessageVisibility":
			r = checkRange(e, "VisibilityTimeout", 0, maxVisibility)
		case "ReceiveMessage":
			r = checkReceive(e)
		default:
		}
		if r != nil {
			return r
		}
		if sum += size; sum > limit {
			return refuse("BatchRequestTooLong", "the messages of the batch have %d bytes together, at most %d", sum, limit)
		}
	}
	return nil
}

// checkBatch returns why SQS refuses a batch as a whole.
func (c *Call) checkBatch() *Refusal {
	if n := len(c.Entries); n == 0 {
		return refuse("EmptyBatchRequest", "There should be at least one entry in the request.")
	} else if n > maxEntries {
		return refuse("TooManyEntriesInBatchRequest", "Maximum number of entries per request are %d. You have sent %d.", maxEntries, n)
	}
	seen, size := make(map[string]bool), 0
	for _, e := range c.Entries {
		id := text(e, "Id")
		if !entryID.MatchString(id) {
			return refuse("InvalidBatchEntryId", "A batch entry id can only contain alphanumeric characters, hyphens and underscores. It can be at most 80 letters long.")
		}
		if seen[id] {
			return refuse("BatchEntryIdsNotDistinct", "Id %s repeated.", id)
		}
		seen[id] = true
		size += sizeOf(e)
	}
	if size > MaxMessageSize {
		return refuse("BatchRequestTooLong", "Batch requests cannot be longer than %d bytes. You have sent %d bytes.", MaxMessageSize, size)
	}
	return nil
}

func checkReceive(in map[string]any) *Refusal {
	for _, r := range []*Refusal{
		checkRange(in, "MaxNumberOfMessages", 1, 10), checkRange(in, "WaitTimeSeconds", 0, maxWait), checkRange(in, "VisibilityTimeout", 0, maxVisibility),
	} {
		if r != nil {
			return r
		}
	}
	return nil
}

// checkMessage returns a message's size and why SQS refuses it.
func (c *Call) checkMessage(e map[string]any, limit int) (int, *Refusal) {
	body := text(e, "MessageBody")
	if body == "" {
		return 0, refuse("MissingParameter", "The request must contain the parameter MessageBody.")
	}
	if !isValidText(body) {
		return 0, refuse("InvalidMessageContents", "Invalid characters found in the message body.")
	}
	if r := checkRange(e, "DelaySeconds", 0, maxDelay); r != nil {
		return 0, r
	}
	group, dedup := text(e, "MessageGroupId"), text(e, "MessageDeduplicationId")
	for name, id := range map[string]string{"MessageGroupId": group, "MessageDeduplicationId": dedup} {
		if id != "" && !groupID.MatchString(id) {
			return 0, refuse("InvalidParameterValue", "Value %s for parameter %s is invalid. Reason: it can only include alphanumeric and punctuation characters. 1 to %d in length.", id, name, maxID)
		}
	}
	if seconds, _ := e["DelaySeconds"].(float64); seconds > 0 && c.fifo() {
		return 0, refuse("InvalidParameterValue", "Value %v for parameter DelaySeconds is invalid. Reason: The request include parameter that is not valid for this queue type.", seconds)
	}
	if c.fifo() && group == "" {
		return 0, refuse("MissingParameter", "The request must contain the parameter MessageGroupId.")
	}
	if !c.fifo() && dedup != "" {
		return 0, refuse("InvalidParameterValue", "Value %s for parameter MessageDeduplicationId is invalid. Reason: The request includes a parameter that is not valid for this queue type.", dedup)
	}
	attributes, _ := e["MessageAttributes"].(map[string]any)
	if len(attributes) > maxAttributes {
		return 0, refuse("InvalidParameterValue", "Number of message attributes [%d] exceeds the allowed maximum [%d].", len(attributes), maxAttributes)
	}
	for name, v := range attributes {
		if r := checkAttribute(name, v); r != nil {
			return 0, r
		}
	}
	size := sizeOf(e)
	if size > limit {
		return 0, refuse("InvalidParameterValue", "One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", limit)
	}
	return size, nil
}

// sizeOf returns the size of a message that is sent: of its body and attributes.
func sizeOf(e map[string]any) int {
	size := len(text(e, "MessageBody"))
	attributes, _ := e["MessageAttributes"].(map[string]any)
	for name, v := range attributes {
		m, _ := v.(map[string]any)
		a, _ := parseAttribute(m)
		size += len(name) + len(a.Type) + len(a.Value)
	}
	return size
}

// parseAttribute decodes a message attribute, and reports whether its value is valid base64.
func parseAttribute(m map[string]any) (a Attribute, ok bool) {
	a.Type = text(m, "DataType")
	if !strings.HasPrefix(a.Type, "Binary") {
		a.Value = []byte(text(m, "StringValue"))
		return a, true
	}
	raw, err := base64.StdEncoding.DecodeString(text(m, "BinaryValue"))
	a.Value = raw
	return a, err == nil
}

// checkAttribute returns why SQS refuses an attribute.
func checkAttribute(name string, v any) *Refusal {
	lower := strings.ToLower(name)
	if len(name) > maxName || !attributeName.MatchString(name) || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
		return refuse("InvalidParameterValue", "Message (user) attribute name %q is invalid.", name)
	}
	m, _ := v.(map[string]any)
	a, ok := parseAttribute(m)
	isText := !strings.HasPrefix(a.Type, "Binary")
	switch {
	case len(a.Type) > maxName || !attributeType.MatchString(a.Type):
		return refuse("InvalidParameterValue", "The message attribute '%s' has an invalid message attribute type, %q.", name, a.Type)
	case !ok:
		return refuse("InvalidParameterValue", "The message attribute '%s' is no base64.", name)
	case len(a.Value) == 0:
		return refuse("InvalidParameterValue", "The message attribute '%s' must contain non-empty message attribute value.", name)
	case isText && !isValidText(string(a.Value)):
		return refuse("InvalidParameterValue", "Invalid characters found in the message attribute '%s'.", name)
	case strings.HasPrefix(a.Type, "Number") && !number.Match(a.Value):
		return refuse("InvalidParameterValue", "Can't cast the value of message (user) attribute '%s' to a number.", name)
	}
	return nil
}

// isValidText reports whether SQS accepts a text: #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to
// #x10FFFF.
func isValidText(s string) bool {
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	return utf8.ValidString(s)
}

func checkRange(m map[string]any, name string, least, most float64) *Refusal {
	v, ok := m[name].(float64)
	if ok && (v < least || v > most) {
		return refuse("InvalidParameterValue", "Value %v for parameter %s is invalid. Reason: Must be between %v and %v, if provided.", v, name, least, most)
	}
	return nil
}

// seconds returns a number of seconds of a request, or the default.
func seconds(m map[string]any, name, otherwise string) time.Duration {
	if v, ok := m[name].(float64); ok {
		return time.Duration(v * float64(time.Second))
	}
	n, _ := strconv.Atoi(otherwise)
	return time.Duration(n) * time.Second
}
