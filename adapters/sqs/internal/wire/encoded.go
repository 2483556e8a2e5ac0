package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/internal/wirename"
)

const (
	// UUIDAttribute carries a Watermill message's UUID.
	UUIDAttribute = wirename.WatermillUUID
	// EncodedAttribute describes the parts of a message that were encoded because SQS refuses them.
	EncodedAttribute = "_redeliver_encoded"
)

// Encoded is the content of EncodedAttribute.
type Encoded struct {
	Body     string            `json:"body,omitempty"` // "base64", or "empty" for an empty body, which is written as one space
	Metadata map[string]string `json:"metadata,omitempty"`
}

// EncodedOf reads EncodedAttribute. ok is false if another program wrote it.
func EncodedOf(m *types.Message) (e Encoded, ok bool) {
	a, there := m.MessageAttributes[EncodedAttribute]
	if !there || a.StringValue == nil || json.Unmarshal([]byte(*a.StringValue), &e) != nil {
		return Encoded{}, false
	}
	return e, true
}

// EncodeBody returns a body as SQS accepts it.
func (e *Encoded) EncodeBody(body []byte) string {
	switch text := string(body); {
	case text == "":
		e.Body = "empty"
		return " "
	case !IsValidText(text):
		e.Body = "base64"
		return base64.StdEncoding.EncodeToString(body)
	default:
		e.Body = ""
		return text
	}
}

// DecodeBody undoes EncodeBody.
func (e *Encoded) DecodeBody(text string) ([]byte, error) {
	switch e.Body {
	case "":
		return []byte(text), nil
	case "empty":
		return []byte{}, nil
	case "base64":
		body, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("the body is said to be base64 by the attribute %s: %w", EncodedAttribute, err)
		}
		return body, nil
	default:
		return nil, fmt.Errorf("the attribute %s says that the body is %.40q, which is unknown", EncodedAttribute, e.Body)
	}
}

// AddTo adds EncodedAttribute if anything is encoded.
func (e *Encoded) AddTo(attributes map[string]types.MessageAttributeValue) {
	if len(e.Metadata) > 0 || e.Body != "" {
		attributes[EncodedAttribute] = TextAttribute(jsonText(e))
	}
}
