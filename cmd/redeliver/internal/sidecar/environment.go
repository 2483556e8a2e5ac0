package sidecar

import (
	"encoding/json"
	"slices"
	"strings"
)

// maxEnvironment is the maximum size in bytes of a message's data in a child's environment, including names. The system
// refuses more than a few MiB, and a single string of 128 KiB.
const maxEnvironment = 32 << 10

// ourPrefix begins the names of all our variables.
const ourPrefix = "REDELIVER_"

// withoutOurs returns an environment without the variables that begin with our prefix. They may be about another
// message, or secret, such as the broker's password.
func withoutOurs(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, ourPrefix) })
}

// environment returns the environment of a child for a message. rest has, as JSON, the fields that do not fit there,
// that contain a NUL, or whose variable is already set. Of headers with the same variable the last is in the
// environment.
func environment(m *Message) (env []string, rest []byte) {
	e := &environ{left: maxEnvironment, set: make(map[string]bool)}
	var over jsonMessage
	m.fields(func(name, value string) {
		if !e.add(strings.TrimPrefix(variable(name), ourPrefix), value) && name == "Redeliver-Id" {
			over.ID = value
		}
	})
	m.errors(func(name, value string) {
		switch fits := e.add(strings.TrimPrefix(variable(name), ourPrefix), value); {
		case fits:
		case name == fieldError:
			over.Error = value
		default:
			over.FirstError = value
		}
	})
	if ct := m.contentType(); !e.add("CONTENT_TYPE", ct) {
		over.ContentType = ct
	}
	if m.Key != nil && !e.add("KEY", string(m.Key)) {
		over.KeyText, over.Key = textOrBytes(string(m.Key))
	}
	var properties, headers []Header
	for _, p := range m.Properties {
		if !e.add("PROPERTY_"+variable(p.Name), p.Value) {
			properties = append(properties, p)
		}
	}
	// Backwards, because the last header of a name counts.
	for _, h := range slices.Backward(m.Headers) {
		if !e.add("HEADER_"+variable(h.Name), h.Value) {
			headers = append(headers, h)
		}
	}
	slices.Reverse(headers)
	over.Headers = jsonHeaders(headers)
	over.Properties = jsonProperties(properties)
	rest, err := json.Marshal(over)
	if err != nil {
		panic(err) // all values can be encoded
	}
	return e.env, rest
}

type environ struct {
	env  []string
	left int
	set  map[string]bool
}

// add adds a variable. It returns false if the variable cannot be in the environment.
func (e *environ) add(name, value string) bool {
	text := ourPrefix + name + "=" + value
	if e.set[name] || len(text)+1 > e.left || strings.Contains(value, "\x00") {
		return false
	}
	e.set[name] = true
	e.env = append(e.env, text)
	e.left -= len(text) + 1
	return true
}

// variable returns a name as part of a variable's name: A-Z, 0-9 and _. It always follows our prefix, so that no header
// can be LD_PRELOAD or PATH.
func variable(name string) string {
	text := []byte(name)
	for i, c := range text {
		switch {
		case c >= 'a' && c <= 'z':
			text[i] = c - 'a' + 'A'
		case c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		default:
			text[i] = '_'
		}
	}
	return string(text)
}
