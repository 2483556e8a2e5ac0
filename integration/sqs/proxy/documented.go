package proxy

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"unicode/utf8"
)

// The limits that AWS documents, in the developer guide's "Amazon SQS message quotas" and each action's reference.
const (
	// DefaultLimit is the MaximumMessageSize that this module's adapters assume for a queue that reports none: that
	// of every queue until August 2025.
	DefaultLimit = 256 << 10

	maxAttributes = 10
	maxEntries    = 10
	maxDelay      = 900
	maxVisibility = 43200
	maxWait       = 20
	maxName       = 256 // of an attribute, and of its type
	maxID         = 128 // of a message group and a deduplication
)

var (
	entryID       = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)
	attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	groupID       = regexp.MustCompile("^[A-Za-z0-9!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]{1,128}$")
	attributeType = regexp.MustCompile(`^(String|Number|Binary)(\..+)?$`)
)

func badRequest(code, format string, args ...any) *problem {
	return &problem{http.StatusBadRequest, code, fmt.Sprintf(format, args...)}
}

// checkDocumented returns why SQS would refuse the call as a whole, or nil. Here a bad entry refuses its whole batch,
// although SQS would accept the others, because redeliver should send no bad entry.
func (c *Call) checkDocumented(limit int) *problem {
	if c.batch {
		if p := c.checkBatch(); p != nil {
			return p
		}
	}
	switch c.Action {
	case "SendMessage", "SendMessageBatch":
		sum := 0
		for _, e := range c.Entries {
			size, p := c.checkMessage(e, limit)
			if p != nil {
				return p
			}
			sum += size
		}
		if sum > limit {
			return badRequest("BatchRequestTooLong", "the messages of the batch have %d bytes together, at most %d", sum, limit)
		}
	case "ChangeMessageVisibility", "ChangeMessageVisibilityBatch":
		for _, e := range c.Entries {
			if p := checkRange(e, "VisibilityTimeout", 0, maxVisibility); p != nil {
				return p
			}
		}
	case "ReceiveMessage":
		for _, p := range []*problem{
			checkRange(c.In, "MaxNumberOfMessages", 1, 10), checkRange(c.In, "WaitTimeSeconds", 0, maxWait),
			checkRange(c.In, "VisibilityTimeout", 0, maxVisibility),
		} {
			if p != nil {
				return p
			}
		}
	}
	return nil
}

func (c *Call) checkBatch() *problem {
	if n := len(c.Entries); n == 0 {
		return badRequest("EmptyBatchRequest", "there are no entries")
	} else if n > maxEntries {
		return badRequest("TooManyEntriesInBatchRequest", "%d entries, at most %d", n, maxEntries)
	}
	seen := make(map[string]bool)
	for _, e := range c.Entries {
		id := text(e, "Id")
		if !entryID.MatchString(id) {
			return badRequest("InvalidBatchEntryId", "the id %q", id)
		}
		if seen[id] {
			return badRequest("BatchEntryIdsNotDistinct", "the id %q occurs twice", id)
		}
		seen[id] = true
	}
	return nil
}

// checkMessage returns a message's size and why SQS would refuse it.
func (c *Call) checkMessage(e map[string]any, limit int) (int, *problem) {
	body := text(e, "MessageBody")
	if body == "" {
		return 0, badRequest("MissingParameter", "the body is empty")
	}
	if !isValidText(body) {
		return 0, badRequest("InvalidMessageContents", "the body has characters that are not allowed")
	}
	if p := checkRange(e, "DelaySeconds", 0, maxDelay); p != nil {
		return 0, p
	}
	group, dedup := text(e, "MessageGroupId"), text(e, "MessageDeduplicationId")
	for name, id := range map[string]string{"MessageGroupId": group, "MessageDeduplicationId": dedup} {
		if id != "" && !groupID.MatchString(id) {
			return 0, badRequest("InvalidParameterValue", "%s %q: 1 to %d letters, digits and punctuation", name, id, maxID)
		}
	}
	if _, delayed := e["DelaySeconds"]; delayed && c.fifo() && e["DelaySeconds"] != 0.0 {
		return 0, badRequest("InvalidParameterValue", "DelaySeconds on a FIFO queue")
	}
	if c.fifo() && group == "" {
		return 0, badRequest("MissingParameter", "a FIFO queue requires a MessageGroupId")
	}
	if !c.fifo() && dedup != "" {
		return 0, badRequest("InvalidParameterValue", "MessageDeduplicationId on a standard queue")
	}
	attributes, _ := e["MessageAttributes"].(map[string]any)
	if len(attributes) > maxAttributes {
		return 0, badRequest("InvalidParameterValue", "%d attributes, at most %d", len(attributes), maxAttributes)
	}
	size := len(body)
	for name, v := range attributes {
		n, p := checkAttribute(name, v)
		if p != nil {
			return 0, p
		}
		size += n
	}
	if size > limit {
		return 0, badRequest("InvalidParameterValue", "body and attributes have %d bytes, at most %d", size, limit)
	}
	return size, nil
}

// checkAttribute returns an attribute's size and why SQS would refuse it.
func checkAttribute(name string, v any) (int, *problem) {
	lower := strings.ToLower(name)
	if len(name) > maxName || !attributeName.MatchString(name) || strings.HasPrefix(lower, "aws.") || strings.HasPrefix(lower, "amazon.") {
		return 0, badRequest("InvalidParameterValue", "the attribute's name %q", name)
	}
	m, _ := v.(map[string]any)
	kind := text(m, "DataType")
	if len(kind) > maxName || !attributeType.MatchString(kind) {
		return 0, badRequest("InvalidParameterValue", "the attribute %s is of type %q", name, kind)
	}
	var value string
	if strings.HasPrefix(kind, "Binary") {
		raw, err := base64.StdEncoding.DecodeString(text(m, "BinaryValue"))
		if err != nil {
			return 0, badRequest("InvalidParameterValue", "the attribute %s is no base64", name)
		}
		value = string(raw)
	} else if value = text(m, "StringValue"); !isValidText(value) {
		return 0, badRequest("InvalidParameterValue", "the attribute %s has characters that are not allowed", name)
	}
	if value == "" {
		return 0, badRequest("InvalidParameterValue", "the attribute %s is empty", name)
	}
	return len(name) + len(kind) + len(value), nil
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

func checkRange(m map[string]any, name string, least, most float64) *problem {
	v, ok := m[name].(float64)
	if ok && (v < least || v > most) {
		return badRequest("InvalidParameterValue", "%s is %v, must be from %v to %v", name, v, least, most)
	}
	return nil
}
