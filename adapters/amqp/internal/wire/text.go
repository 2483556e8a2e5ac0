package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// TextOf returns a header's value as text. ok is false for tables, arrays and nil.
func TextOf(v any) (text string, ok bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	case bool:
		return strconv.FormatBool(v), true
	case time.Time:
		return timeText(v), true
	case byte, int8, int16, uint16, int32, uint32, int64, float32, float64, int:
		return fmt.Sprint(v), true
	case amqp091.Decimal:
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(v.Scale)), nil)
		return new(big.Rat).SetFrac(big.NewInt(int64(v.Value)), unit).FloatString(int(v.Scale)), true
	default:
		return "", false
	}
}

// timeText returns a time as RFC 3339, or as Unix seconds if RFC 3339 has no text for it. AMQP's times have 64 bits of seconds, and a
// producer that writes milliseconds is in the year 55,000.
func timeText(t time.Time) string {
	if s := t.Unix(); s < firstSecond || s > lastSecond {
		return strconv.FormatInt(s, 10)
	}
	return t.UTC().Format(time.RFC3339)
}

// The years 0 to 9999 in Unix seconds.
const (
	firstSecond = -62_167_219_200
	lastSecond  = 253_402_300_799
)

// ParseTime undoes the text of a time.
func ParseTime(text string) (time.Time, bool) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	s, err := strconv.ParseInt(text, 10, 64)
	return time.Unix(s, 0), err == nil
}

// HeaderBytes returns a header's value as bytes: text and bytes unchanged, numbers as text, tables and arrays as
// JSON.
func HeaderBytes(v any) []byte {
	switch v := v.(type) {
	case nil:
		return nil
	case []byte:
		return v
	}
	if text, ok := TextOf(v); ok {
		return []byte(text)
	}
	text, err := json.Marshal(replaceTimes(v, func(t time.Time) any { return timeText(t) }))
	if err != nil {
		return fmt.Append(nil, v)
	}
	return text
}

// replaceTimes returns a header's value with its times replaced, because their text depends on the host's zone.
func replaceTimes(v any, by func(time.Time) any) any {
	switch v := v.(type) {
	case time.Time:
		return by(v)
	case amqp091.Table:
		t := make(amqp091.Table, len(v))
		for name, item := range v {
			t[name] = replaceTimes(item, by)
		}
		return t
	case []any:
		items := make([]any, len(v))
		for i, item := range v {
			items[i] = replaceTimes(item, by)
		}
		return items
	default:
		return v
	}
}

// ValueText formats the value of an argument, also an empty one.
func ValueText(v any) string {
	if text, ok := v.(string); ok && text == "" {
		return `""`
	}
	return fmt.Sprint(v)
}

// ArgsText formats the arguments of a queue.
func ArgsText(args amqp091.Table) string {
	parts := make([]string, 0, len(args))
	for _, k := range slices.Sorted(maps.Keys(args)) {
		parts = append(parts, k+"="+ValueText(args[k]))
	}
	return strings.Join(parts, ", ")
}
