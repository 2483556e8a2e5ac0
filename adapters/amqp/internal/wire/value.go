package wire

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

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// The names of types that are not Go's.
const (
	bytesType   = "bytes"
	decimalType = "decimal"
	tableType   = "table"
	listType    = "list"
)

// KindOf returns the name of a value's type, which is that of its Go type for most.
func KindOf(v any) string {
	switch v.(type) {
	case []byte:
		return bytesType
	case amqp091.Decimal:
		return decimalType
	default:
		return fmt.Sprintf("%T", v)
	}
}

// DescribeValue returns a text of a value with everything inside it, and no other value has the same. ParseValue undoes it.
func DescribeValue(v any) string {
	text, err := json.Marshal(describe(v))
	if err != nil {
		panic(err) // lists and valid texts can always be encoded
	}
	return string(text)
}

// ParseValue undoes DescribeValue. ok is false for any other text.
func ParseValue(text string) (v any, ok bool) {
	var described []any
	if json.Unmarshal([]byte(text), &described) != nil {
		return nil, false
	}
	return parse(described)
}

// describe returns a value as a list for JSON: its type, and its text, or the values inside. A table has the names before their
// values. The bytes of a text are Latin-1 characters, because JSON has no others for bytes that are not UTF-8.
func describe(v any) (out []any) {
	switch v := v.(type) {
	case nil:
		return []any{""}
	case amqp091.Table:
		out = append(out, tableType)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			out = append(out, describe(name), describe(v[name]))
		}
		return out
	case []any:
		out = append(out, listType)
		for _, item := range v {
			out = append(out, describe(item))
		}
		return out
	default:
		return []any{KindOf(v), latin1(HeaderBytes(v))}
	}
}

// parse undoes describe. ok is false for any other list.
func parse(described []any) (v any, ok bool) {
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
		return ParseScalar(kind, raw)
	}
	items := make([]any, 0, len(described)-1)
	for _, inside := range described[1:] {
		list, _ := inside.([]any)
		item, valid := parse(list)
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

// ParseScalar parses the text of a value that is not compound.
func ParseScalar(kind string, text []byte) (v any, ok bool) {
	switch kind {
	case "string":
		return string(text), true
	case bytesType:
		return text, true
	case decimalType:
		return parseDecimal(string(text))
	}
	for _, zero := range []any{false, int8(0), int16(0), int32(0), int64(0), uint8(0), uint16(0), uint32(0), float32(0), float64(0), time.Time{}} {
		if v := reflect.New(reflect.TypeOf(zero)); fmt.Sprintf("%T", zero) == kind && ParseInto(v.Interface(), string(text)) {
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

// ParseInto parses text into the variable that to points to, and reports whether it could.
func ParseInto(to any, text string) bool {
	switch to := to.(type) {
	case *string:
		*to = text
		return true
	case *time.Time:
		at, ok := ParseTime(text)
		*to = at
		return ok
	default:
		n, _ := fmt.Sscan(text, to, new(string))
		return n == 1 // nothing follows the value
	}
}
