// Package limits has the bounds of headers and of waits with OrderBlocking, and functions that keep texts and times within them.
package limits

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds of headers. All of redeliver's headers together stay below MaxHeaderBytes, names included.
const (
	MaxErrorText   = 512       // bytes of redeliver-error and redeliver-first-error
	MaxErrorType   = 256       // bytes of redeliver-error-type
	MaxName        = 512       // bytes of an id, a group, an origin
	MaxHeaderBytes = 4096      // bytes of all headers
	MaxAttempts    = 1_000_000 // the largest number of attempts or replays that is believed in a header
	MaxHeaders     = 10_000    // headers of a Kafka record that is read; one with more is undecodable
	MaxTail        = 64        // of such a record's headers, the last ones that are looked at: redeliver's are at the end
)

// Bounds and default of the waits with OrderBlocking. They are those of suspendCurrentQueueTimeMillis in RocketMQ's ordered consumer.
const (
	MinBlock     = 10 * time.Millisecond
	MaxBlock     = 30 * time.Second
	DefaultBlock = time.Second
)

// Cut returns s as valid UTF-8 of at most maxBytes bytes, cut at a character.
func Cut(s string, maxBytes int) string {
	if len(s) > maxBytes {
		end := max(0, maxBytes)
		for end > 0 && end > maxBytes-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "?") // not longer than s: "?" has one byte
}

// CutMiddle is Cut, but leaves out the middle of s and keeps more of its end: an error wraps its cause.
func CutMiddle(s string, maxBytes int) string {
	const gap = "…"
	if room := maxBytes - len(gap); len(s) > maxBytes && room > 0 {
		head := Cut(s, room/3)
		begin := len(s) - (room - len(head))
		for begin < len(s) && !utf8.RuneStart(s[begin]) {
			begin++
		}
		s = head + gap + s[begin:]
	}
	return Cut(s, maxBytes)
}

// ShortID returns an id for a header: id itself, or a hash of it if it is longer than MaxName or not UTF-8.
func ShortID(id string) string {
	if len(id) <= MaxName && utf8.ValidString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ParseTime reads an RFC 3339 time of the years 1 to 9999. ok is false for any other text.
func ParseTime(value string) (t time.Time, ok bool) {
	if value == "" { // as in most messages; the error of time.Parse would cost an allocation
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, value)
	if err != nil || !inRange(t) {
		return time.Time{}, false
	}
	return t.UTC(), true
}

// AppendTime appends t in UTC as RFC 3339 with milliseconds. It appends nothing for a time that ParseTime does not
// accept. Only RFC3339 has a fast path in the standard library, so the milliseconds are added here.
func AppendTime(b []byte, t time.Time) []byte {
	t = t.UTC().Truncate(time.Millisecond)
	if !inRange(t) {
		return b
	}
	b = t.AppendFormat(b, time.RFC3339)
	ms := t.Nanosecond() / int(time.Millisecond)
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// inRange reports whether t can be written as an RFC 3339 time and is not zero.
func inRange(t time.Time) bool {
	year := t.UTC().Year()
	return year >= 1 && year <= 9999 && !t.IsZero()
}

// Plausible reports whether t, which another program wrote, can be the time when it published something. Before 1971 are the times of
// programs without a clock, and of those that write seconds as milliseconds; after 9999 those of programs that write milliseconds as
// seconds.
func Plausible(t time.Time) bool {
	s := t.Unix()
	return s >= 31_536_000 && s <= 253_402_300_799
}

// CeilMilli rounds t up to the millisecond. A header has whole milliseconds, and a due time that was rounded down would be early.
func CeilMilli(t time.Time) time.Time {
	if r := t.Truncate(time.Millisecond); r.Before(t) {
		return r.Add(time.Millisecond)
	}
	return t
}

// DurationText returns a duration as text for people: "366 days", "1h30m".
func DurationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= 2*day && d%day == 0 {
		return strconv.Itoa(int(d/day)) + " days"
	}
	return ShortDuration(d)
}

// ShortDuration returns d.String() without minutes and seconds that are 0: 90 s is "1m30s", an hour "1h".
func ShortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// RangeRule returns the rule that value breaks because it is not from minValue to maxValue, or "". A maxValue of 0 means no bound. The
// rule says that 0 means the default, so the caller must have replaced a 0 by the default.
func RangeRule[T int | time.Duration](value, minValue, maxValue T) string {
	switch {
	case value >= minValue && (maxValue == 0 || value <= maxValue):
		return ""
	case maxValue != 0:
		return fmt.Sprintf("must be from %v to %v, or 0 for the default", minValue, maxValue)
	case minValue > 0:
		return fmt.Sprintf("must be at least %v, or 0 for the default", minValue)
	default:
		return "must not be negative; 0 for the default"
	}
}
