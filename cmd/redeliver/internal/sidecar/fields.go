package sidecar

import (
	"mime"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/redeliver/redeliver/internal/bytetext"
)

// fields yields the fields of a message besides its key, headers and body, under their HTTP names. In the environment
// of a command, Redeliver-First-Failed is REDELIVER_FIRST_FAILED. Unknown values are omitted.
func (m *Message) fields(yield func(name, value string)) {
	yield("Redeliver-Id", m.State.ID)
	yield("Redeliver-Attempt", strconv.Itoa(m.State.Attempt()))
	yield("Redeliver-Origin", m.State.Origin)
	yield("Redeliver-Group", m.State.Group)
	if at := stamp(m.Timestamp); at != "" {
		yield("Redeliver-Timestamp", at)
	}
	if at := stamp(m.State.FirstFailed); at != "" {
		yield("Redeliver-First-Failed", at)
	}
	if m.State.Replays > 0 {
		yield("Redeliver-Replays", strconv.Itoa(m.State.Replays))
	}
	if m.Null {
		yield("Redeliver-Null", "true")
	}
	if m.Extend != "" {
		yield("Redeliver-Extend", m.Extend)
	}
}

// errors yields the texts of the latest failure and, if it is another one, of the first one, under their HTTP names.
func (m *Message) errors(yield func(name, value string)) {
	if m.State.Error != "" {
		yield(fieldError, m.State.Error)
	}
	if m.State.FirstError != "" {
		yield(fieldFirstError, m.State.FirstError)
	}
}

// octets is the content type of an unknown body.
const octets = "application/octet-stream"

// contentType returns the content type from the message's properties or from its header Content-Type, if it is valid.
func (m *Message) contentType() string {
	text := m.ContentType
	for _, h := range m.Headers {
		if text == "" && strings.EqualFold(h.Name, "content-type") {
			text = h.Value
		}
	}
	if text == "" || len(text) > 256 || !visible(text) {
		return octets
	}
	if _, _, err := mime.ParseMediaType(text); err != nil {
		return octets
	}
	return text
}

// visible reports whether a text has only printable ASCII characters and spaces.
func visible(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// jsonHeader is a header in JSON. The value is text if it is valid UTF-8, otherwise base64. A name that is not is in base64 after
// "base64:".
type jsonHeader struct {
	Name  string  `json:"name"`
	Text  *string `json:"text,omitempty"`
	Value []byte  `json:"value,omitempty"`
}

// jsonMessage is a message in JSON. Of each pair of fields, one text and one base64, at most one is set.
type jsonMessage struct {
	ID          string       `json:"id,omitempty"`
	Attempt     int          `json:"attempt,omitempty"`
	Origin      string       `json:"origin,omitempty"`
	Group       string       `json:"group,omitempty"`
	Timestamp   string       `json:"timestamp,omitempty"`
	FirstFailed string       `json:"first_failed,omitempty"`
	Error       string       `json:"error,omitempty"`
	FirstError  string       `json:"first_error,omitempty"`
	Replays     int          `json:"replays,omitempty"`
	KeyText     *string      `json:"key_text,omitempty"`
	Key         []byte       `json:"key,omitempty"`
	ContentType string       `json:"content_type,omitempty"`
	Headers     []jsonHeader `json:"headers"`
	Properties  []jsonHeader `json:"properties,omitempty"`
	Null        bool         `json:"null,omitempty"`
	BodyText    *string      `json:"body_text,omitempty"`
	Body        []byte       `json:"body,omitempty"`
}

// json returns the whole message.
func (m *Message) json() jsonMessage {
	j := jsonMessage{
		ID: m.State.ID, Attempt: m.State.Attempt(), Origin: m.State.Origin, Group: m.State.Group, Timestamp: stamp(m.Timestamp),
		FirstFailed: stamp(m.State.FirstFailed), Error: m.State.Error, FirstError: m.State.FirstError, Replays: m.State.Replays,
		ContentType: strings.ToValidUTF8(m.ContentType, "?"), Headers: jsonHeaders(m.Headers), Null: m.Null,
	}
	j.Properties = jsonProperties(m.Properties)
	if m.Key != nil {
		j.KeyText, j.Key = textOrBytes(string(m.Key))
	}
	if !m.Null {
		j.BodyText, j.Body = textOrBytes(string(m.Body))
	}
	return j
}

func jsonHeaders(all []Header) []jsonHeader {
	out := make([]jsonHeader, 0, len(all))
	for _, h := range all {
		j := jsonHeader{Name: h.Name}
		if !utf8.ValidString(h.Name) || strings.HasPrefix(h.Name, bytetext.Prefix) {
			j.Name = bytetext.Format([]byte(h.Name))
		}
		j.Text, j.Value = textOrBytes(h.Value)
		out = append(out, j)
	}
	return out
}

// jsonProperties returns properties in JSON, with lower-case names.
func jsonProperties(all []Header) (out []jsonHeader) {
	for _, p := range all {
		out = append(out, jsonHeaders([]Header{{strings.ToLower(p.Name), p.Value}})...)
	}
	return out
}

// textOrBytes returns a value as text if it is valid UTF-8, otherwise as bytes.
func textOrBytes(value string) (*string, []byte) {
	if utf8.ValidString(value) {
		return &value, nil
	}
	return nil, []byte(value)
}
