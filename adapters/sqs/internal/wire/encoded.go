package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"unicode/utf8"

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
	// Bytes are entries of the metadata whose name or value is not UTF-8, as pairs of both. JSON has them in base64.
	Bytes [][2][]byte `json:"bytes,omitempty"`
	// UUID is Watermill's UUID if SQS does not accept it as a text.
	UUID []byte `json:"uuid,omitempty"`
	// Attributes are attributes of other types than String, for which a message had no room.
	Attributes []Displaced `json:"attributes,omitempty"`
}

// EncodedOf reads EncodedAttribute. ok is false if another program wrote it.
func EncodedOf(m *types.Message) (e Encoded, ok bool) {
	a, there := m.MessageAttributes[EncodedAttribute]
	if !there || a.StringValue == nil || json.Unmarshal([]byte(*a.StringValue), &e) != nil {
		return Encoded{}, false
	}
	return e, true
}

// Add adds an entry of the metadata.
func (e *Encoded) Add(name, value string) {
	if !utf8.ValidString(name) || !utf8.ValidString(value) {
		e.Bytes = append(e.Bytes, [2][]byte{[]byte(name), []byte(value)})
		return
	}
	if e.Metadata == nil {
		e.Metadata = make(map[string]string)
	}
	e.Metadata[name] = value
}

// AllMetadata returns the entries of the metadata that are encoded.
func (e *Encoded) AllMetadata() map[string]string {
	if len(e.Bytes) == 0 {
		return e.Metadata
	}
	all := make(map[string]string, len(e.Metadata)+len(e.Bytes))
	maps.Copy(all, e.Metadata)
	for _, entry := range e.Bytes {
		all[string(entry[0])] = string(entry[1])
	}
	return all
}

// IsEmpty reports whether nothing is encoded.
func (e *Encoded) IsEmpty() bool {
	return e.Body == "" && len(e.Metadata)+len(e.Bytes)+len(e.UUID)+len(e.Attributes) == 0
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
	if !e.IsEmpty() {
		attributes[EncodedAttribute] = TextAttribute(jsonText(e))
	}
}
