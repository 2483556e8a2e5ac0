package wire

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// MaxAttributes is SQS's limit of the attributes of one message.
const MaxAttributes = 10

// The types of attributes that redeliver writes.
const (
	StringType = "String"
	BinaryType = "Binary"
)

// Attribute returns an attribute of a type, which may be a custom one, such as "Binary.png".
func Attribute(kind string, value []byte) types.MessageAttributeValue {
	v := types.MessageAttributeValue{DataType: aws.String(kind)}
	if base, _, _ := strings.Cut(kind, "."); base == BinaryType {
		v.BinaryValue = value
	} else {
		v.StringValue = aws.String(string(value))
	}
	return v
}

// TextAttribute returns an attribute of type String.
func TextAttribute(value string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String(StringType), StringValue: aws.String(value)}
}

// AttributeBytes returns the value of an attribute of any type.
func AttributeBytes(v types.MessageAttributeValue) []byte {
	if v.StringValue != nil {
		return []byte(*v.StringValue)
	}
	return v.BinaryValue
}

// MessageSize returns the size of a message as SQS counts it.
func MessageSize(body string, attributes map[string]types.MessageAttributeValue) int {
	n := len(body)
	for name, v := range attributes {
		n += attributeSize(name, v)
	}
	return n
}

func attributeSize(name string, v types.MessageAttributeValue) int {
	return len(name) + len(aws.ToString(v.DataType)) + len(aws.ToString(v.StringValue)) + len(v.BinaryValue)
}

// IsAttribute reports whether SQS accepts an attribute of this name, type and value.
func IsAttribute(d Displaced) bool {
	kind, _, _ := strings.Cut(d.Type, ".")
	return isAttributeName(d.Name) && len(d.Type) <= 256 && (kind == StringType || kind == "Number" || kind == BinaryType) &&
		len(d.Value) > 0 && (kind == BinaryType || IsValidText(string(d.Value)))
}

// isAttributeName reports whether SQS accepts a name for an attribute.
func isAttributeName(name string) bool {
	if name == "" || len(name) > 256 {
		return false
	}
	for _, r := range name {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_' || r == '.') {
			return false
		}
	}
	lower := strings.ToLower(name)
	return !strings.HasPrefix(lower, "aws.") && !strings.HasPrefix(lower, "amazon.") &&
		name[0] != '.' && name[len(name)-1] != '.' && !strings.Contains(name, "..")
}

// IsMetadataName reports whether SQS accepts a name for an attribute and redeliver does not use it.
func IsMetadataName(name string) bool {
	return isAttributeName(name) && name != UUIDAttribute && name != EncodedAttribute && name != StateAttribute
}

// IsValidText reports whether SQS accepts a text.
func IsValidText(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			return false
		}
	}
	return true
}

// notAccepted escapes the characters that JSON allows and SQS does not.
var notAccepted = strings.NewReplacer("\ufffe", `\ufffe`, "\uffff", `\uffff`)

// jsonText returns an object as JSON that SQS accepts, with its fields in order. Its texts must be UTF-8.
func jsonText(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // texts and bytes never fail
	}
	return notAccepted.Replace(strings.TrimSuffix(b.String(), "\n"))
}
