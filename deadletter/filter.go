package deadletter

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
)

// Filter selects dead letters. All fields that are set must match; the zero Filter matches all. It
// is plain data, because a task records its filter.
type Filter struct {
	// Fingerprints are results of [Fingerprint]. The message must have one of them.
	Fingerprints []string `json:"fingerprints,omitempty"`
	// IDs are ids of messages. The message must have one of them.
	IDs []string `json:"ids,omitempty"`
	// Positions are positions in the DLQ. The message must have one of them.
	Positions []Position `json:"positions,omitempty"`
	// Key is the message's key, exactly. Nil means any key or none; an empty key that is not nil
	// means an empty key.
	Key []byte `json:"key,omitzero"`
	// Headers maps names of user headers to the values that they must have.
	Headers HeaderValues `json:"headers,omitempty"`
	// After and Before bound the time of [Message.Failed]: After <= failed < Before. Zero means no
	// bound. A message without a time is not within any bound.
	After  time.Time `json:"after,omitzero"`
	Before time.Time `json:"before,omitzero"`
	// Reasons are reasons of redeliver. The message must have one of them.
	Reasons []redeliver.Reason `json:"reasons,omitempty"`
	// ErrorText must occur in the error's text. Case is ignored.
	ErrorText string `json:"error_text,omitempty"`
	// ErrorType is the error's type, exactly.
	ErrorType string `json:"error_type,omitempty"`
	// BodyText must occur in the body, exactly so; it is UTF-8 of at most 1,000 bytes. It is compared with the bytes of the message, so
	// it finds neither what is compressed nor a character that JSON escapes. A [WaitingFilter] must not set it.
	BodyText string `json:"body_text,omitempty"`
}

// maxBodyText bounds BodyText, which is recorded with a task.
const maxBodyText = 1000

// HeaderValues maps names of headers to values. Both may be any bytes. In JSON it is an object, or a list of [Header] if a name or a
// value is not UTF-8.
type HeaderValues map[string]string

// MarshalJSON implements [json.Marshaler].
func (v HeaderValues) MarshalJSON() ([]byte, error) {
	var list []Header
	plain := true
	for _, name := range slices.Sorted(maps.Keys(v)) {
		plain = plain && utf8.ValidString(name) && utf8.ValidString(v[name])
		list = append(list, Header{Name: name, Value: []byte(v[name])})
	}
	if plain {
		return json.Marshal(map[string]string(v))
	}
	return json.Marshal(list)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (v *HeaderValues) UnmarshalJSON(text []byte) error {
	var list []Header
	if json.Unmarshal(text, &list) != nil {
		return json.Unmarshal(text, (*map[string]string)(v))
	}
	*v = make(HeaderValues, len(list))
	for _, h := range list {
		(*v)[h.Name] = string(h.Value)
	}
	return nil
}

// Match reports whether a message matches.
func (f *Filter) Match(m *Message) bool {
	switch {
	case len(f.IDs) > 0 && !slices.Contains(f.IDs, m.ID),
		len(f.Positions) > 0 && !slices.Contains(f.Positions, m.Position),
		len(f.Reasons) > 0 && !slices.Contains(f.Reasons, m.State.Reason),
		f.Key != nil && (m.Key == nil || !bytes.Equal(f.Key, m.Key)),
		f.ErrorType != "" && f.ErrorType != m.State.ErrorType,
		!f.inTime(m),
		f.BodyText != "" && !bytes.Contains(m.Body, []byte(f.BodyText)),
		f.ErrorText != "" && !strings.Contains(strings.ToLower(m.State.Error), strings.ToLower(f.ErrorText)):
		return false
	}
	for name, value := range f.Headers {
		if !hasHeader(m, name, value) {
			return false
		}
	}
	return len(f.Fingerprints) == 0 || slices.Contains(f.Fingerprints, Fingerprint(m))
}

func (f *Filter) inTime(m *Message) bool {
	if f.After.IsZero() && f.Before.IsZero() {
		return true
	}
	at := m.Failed()
	return !at.IsZero() && !at.Before(f.After) && (f.Before.IsZero() || at.Before(f.Before))
}

func hasHeader(m *Message, name, value string) bool {
	return slices.ContainsFunc(m.Headers, func(h Header) bool { return h.Name == name && string(h.Value) == value })
}

// All reports whether the filter matches every message.
func (f *Filter) All() bool {
	return len(f.Fingerprints)+len(f.IDs)+len(f.Positions)+len(f.Headers)+len(f.Reasons) == 0 &&
		f.Key == nil && f.After.IsZero() && f.Before.IsZero() && f.ErrorText == "" && f.ErrorType == "" && f.BodyText == ""
}

// maxFilterValues bounds each list of a filter, which is recorded with its task.
const maxFilterValues = 1000

func (f *Filter) check() error {
	var ps check.Problems
	for name, n := range map[string]int{
		"Filter.IDs": len(f.IDs), "Filter.Positions": len(f.Positions),
		"Filter.Fingerprints": len(f.Fingerprints), "Filter.Headers": len(f.Headers),
	} {
		if n > maxFilterValues {
			ps.Add(name, n, fmt.Sprintf("must be at most %d: choose by fingerprint or time", maxFilterValues))
		}
	}
	if !utf8.ValidString(f.BodyText) { // JSON would record another text with the task
		ps.Add("Filter.BodyText", fmt.Sprintf("%q", f.BodyText), "must be UTF-8")
	}
	if len(f.BodyText) > maxBodyText {
		ps.Add("Filter.BodyText", fmt.Sprintf("%d bytes", len(f.BodyText)), fmt.Sprintf("must have at most %d bytes", maxBodyText))
	}
	if !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		ps.Add("Filter.Before", f.Before, "must be later than Filter.After")
	}
	return ps.Err()
}
