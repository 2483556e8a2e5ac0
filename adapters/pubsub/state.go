package pubsub

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// StateKey is the name of the metadata entry that has redeliver's state: a JSON
// object in printable ASCII, with the fields of redeliver's headers without their
// prefix, all of them texts. It is one entry, because Pub/Subs limit the number of
// entries and their content. It also has these fields:
//
//	until    on a delay topic: when the message leaves it
//	publish  "true" for a delayed publish, which goes to its topic when it is due
//	own      the message's own entry of that name, in base64
//
// The entry is believed only on topics that redeliver writes, and only if its group
// and origin are the subscription's. Any other entry of that name is the message's own.
const StateKey = "redeliver"

const (
	keyUntil   = "until"
	keyPublish = "publish"
	keyOwn     = "own"

	untilFormat = "2006-01-02T15:04:05.000Z"
)

// carried is the content of StateKey.
type carried struct {
	headers []driver.Header // redeliver's headers by their full names
	until   time.Time       // or zero
	publish bool
	own     *string
}

// pack returns the entry's value.
func (c *carried) pack() (string, error) {
	fields := make(map[string]string, len(c.headers)+3)
	for _, h := range c.headers {
		if h.Value != "" {
			fields[strings.TrimPrefix(h.Name, redeliver.HeaderPrefix)] = h.Value
		}
	}
	if !c.until.IsZero() {
		fields[keyUntil] = limits.CeilMilli(c.until).UTC().Format(untilFormat)
	}
	if c.publish {
		fields[keyPublish] = "true"
	}
	if c.own != nil {
		fields[keyOwn] = base64.StdEncoding.EncodeToString([]byte(*c.own)) // may be any bytes
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		return "", fmt.Errorf("writing the state: %w", err)
	}
	return escapeNonPrintable(string(raw)), nil
}

// escapeNonPrintable escapes all but printable ASCII in a JSON text.
func escapeNonPrintable(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// unpack reads the entry's value, except unknown fields and those that are not text. ok is false if the value is not a
// state.
func unpack(value string) (c carried, ok bool) {
	var fields map[string]any
	if json.Unmarshal([]byte(value), &fields) != nil || fields == nil {
		return c, false
	}
	for _, name := range driver.HeaderNames() {
		if s, is := fields[strings.TrimPrefix(name, redeliver.HeaderPrefix)].(string); is {
			c.headers = append(c.headers, driver.Header{Name: name, Value: s})
		}
	}
	if s, is := fields[keyUntil].(string); is {
		c.until, _ = time.Parse(untilFormat, s) // zero if invalid
	}
	c.publish = fields[keyPublish] == "true"
	if s, is := fields[keyOwn].(string); is {
		if own, err := base64.StdEncoding.DecodeString(s); err == nil {
			text := string(own)
			c.own = &text
		}
	}
	return c, true
}
