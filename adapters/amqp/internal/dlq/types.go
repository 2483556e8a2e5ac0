package dlq

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
)

// The names of types that are not Go's. A compound value has its type and all its contents in one text, after one of the last
// two and a space, because its text for people says nothing about the types inside.
const (
	textType    = "string"
	bytesType   = "bytes"
	decimalType = "decimal"
	tableType   = "table"
	listType    = "list"
)

// typeOf returns the type of a header's value as a file has it. It is empty for text, which needs none, and for null.
func typeOf(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		if utf8.ValidString(v) {
			return ""
		}
		return textType // without a type, such bytes are of the type bytes
	case amqp091.Table, []any:
		value := describeValue(v)
		contents, err := json.Marshal(value[1:])
		if err != nil {
			return ""
		}
		return value[0].(string) + " " + string(contents)
	default:
		return kindOf(v)
	}
}

func kindOf(v any) string {
	switch v.(type) {
	case []byte:
		return bytesType
	case amqp091.Decimal:
		return decimalType
	default:
		return fmt.Sprintf("%T", v)
	}
}

// describeValue returns a value as a list for JSON: its type, and its text, or the values inside. A table has the names before their
// values. The bytes of a text are Latin-1 characters, because JSON has no others for bytes that are not UTF-8.
func describeValue(v any) (out []any) {
	switch v := v.(type) {
	case nil:
		return []any{""}
	case amqp091.Table:
		out = append(out, tableType)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, describeValue(name), describeValue(v[name]))
		}
		return out
	case []any:
		out = append(out, listType)
		for _, item := range v {
			out = append(out, describeValue(item))
		}
		return out
	default:
		return []any{kindOf(v), latin1(wire.HeaderBytes(v))}
	}
}

// parseValue undoes describeValue. ok is false for any other list.
func parseValue(described []any) (v any, ok bool) {
	if len(described) == 0 {
		return nil, false
	}
	kind, _ := described[0].(string)
	if kind != tableType && kind != listType {
		if kind == "" || len(described) != 2 {
			return nil, kind == "" && len(described) == 1
		}
		text, isText := described[1].(string)
		raw, isBytes := fromLatin1(text)
		if !isText || !isBytes {
			return nil, false
		}
		return parseScalar(kind, raw)
	}
	items := make([]any, 0, len(described)-1)
	for _, inside := range described[1:] {
		list, _ := inside.([]any)
		item, valid := parseValue(list)
		if !valid {
			return nil, false
		}
		items = append(items, item)
	}
	if kind == listType {
		return items, true
	}
	table := make(amqp091.Table, len(items)/2)
	for pair := range slices.Chunk(items, 2) {
		name, isName := pair[0].(string)
		if !isName || len(pair) < 2 {
			return nil, false
		}
		table[name] = pair[1]
	}
	return table, true
}

func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

func fromLatin1(text string) (b []byte, ok bool) {
	b = []byte{}
	for _, r := range text {
		if r > math.MaxUint8 {
			return nil, false
		}
		b = append(b, byte(r))
	}
	return b, true
}

// parseTyped restores the value of a header from a file. It is text if it does not have the form of its type, and so is a compound
// value that was changed in the file.
func parseTyped(kind string, text []byte) any {
	if name, contents, ok := strings.Cut(kind, " "); ok && (name == tableType || name == listType) {
		var inside []any
		if json.Unmarshal([]byte(contents), &inside) == nil {
			if v, ok := parseValue(append([]any{name}, inside...)); ok && string(wire.HeaderBytes(v)) == string(text) {
				return v
			}
		}
		return string(text)
	}
	if v, ok := parseScalar(kind, text); ok {
		return v
	}
	return string(text)
}

// parseScalar parses the text of a value that is not compound.
func parseScalar(kind string, text []byte) (v any, ok bool) {
	switch kind {
	case textType:
		return string(text), true
	case bytesType:
		return text, true
	case decimalType:
		return parseDecimal(string(text))
	}
	for _, zero := range []any{false, int8(0), int16(0), int32(0), int64(0), uint8(0), uint16(0), uint32(0), float32(0), float64(0), time.Time{}} {
		if v := reflect.New(reflect.TypeOf(zero)); fmt.Sprintf("%T", zero) == kind && parseInto(v.Interface(), string(text)) {
			return v.Elem().Interface(), true
		}
	}
	return nil, false
}

// parseDecimal parses a decimal such as -0.05. Its scale is the number of its decimal places.
func parseDecimal(text string) (v any, ok bool) {
	whole, places, _ := strings.Cut(text, ".")
	value, err := strconv.ParseInt(whole+places, 10, 32)
	return amqp091.Decimal{Scale: uint8(len(places)), Value: int32(value)}, err == nil && len(places) <= math.MaxUint8
}

// parseInto parses text into the variable that to points to, and reports whether it could.
func parseInto(to any, text string) bool {
	switch to := to.(type) {
	case *string:
		*to = text
		return true
	case *time.Time:
		at, ok := wire.ParseTime(text)
		*to = at
		return ok
	default:
		n, _ := fmt.Sscan(text, to, new(string))
		return n == 1 // nothing follows the value
	}
}
