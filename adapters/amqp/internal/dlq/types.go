package dlq

import (
	"strings"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
)

// compound begins the type of a table or a list. After it is everything inside, because the text for people says nothing about the
// types inside.
const compound = "compound "

// typeOf returns the type of a header's value as a file has it. It is empty for text, which needs none, and for null.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if utf8.ValidString(v) {
			return ""
		}
		return wire.KindOf(v) // without a type, such bytes are of the type bytes
	case amqp091.Table, []any:
		return compound + wire.DescribeValue(v)
	default:
		return wire.KindOf(v)
	}
}

// parseTyped restores the value of a header from a file. It is text if it does not have the form of its type, and so is a compound
// value that was changed in the file.
func parseTyped(kind string, text []byte) any {
	if contents, ok := strings.CutPrefix(kind, compound); ok {
		if v, ok := wire.ParseValue(contents); ok && string(wire.HeaderBytes(v)) == string(text) {
			return v
		}
		return string(text)
	}
	if v, ok := wire.ParseScalar(kind, text); ok {
		return v
	}
	return string(text)
}
