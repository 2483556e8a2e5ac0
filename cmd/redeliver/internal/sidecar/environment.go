package sidecar

import (
	"encoding/json"
	"slices"
	"strings"
)

// maxEnvironment bounds what a child's environment has of a message, in bytes, names
// included: the system refuses more than a few MiB, and a single text of 128 KiB.
const maxEnvironment = 32 << 10

const ours = "REDELIVER_"

// withoutOurs is an environment without the variables that begin with our prefix: these are about a message, or
// secret, as the broker's password.
func withoutOurs(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, ours) })
}

// environment is the environment of a child for a message, and, as JSON, the fields without room or without a
// name there: of headers whose names are one in the environment the last has it, and no variable can
// have a value with a NUL.
func environment(m *Message) (env []string, rest []byte) {
	e := &environ{left: maxEnvironment, set: make(map[string]bool)}
	var over jsonMessage
	m.fields(func(name, value string) {
		if !e.add(strings.TrimPrefix(variable(name), ours), value) && name == "Redeliver-Id" {
			over.ID = value
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
	// From the last on, because the last of a name is the one that counts.
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
		panic(err) // there is nothing in it that JSON does not know
	}
	return e.env, rest
}

type environ struct {
	env  []string
	left int
	set  map[string]bool
}

// add is false for what cannot be in the environment.
func (e *environ) add(name, value string) bool {
	text := ours + name + "=" + value
	if e.set[name] || len(text)+1 > e.left || strings.Contains(value, "\x00") {
		return false
	}
	e.set[name] = true
	e.env = append(e.env, text)
	e.left -= len(text) + 1
	return true
}

// variable is a name as part of one in the environment: A-Z, 0-9 and _. It is always
// behind a prefix of ours, so that no header can be LD_PRELOAD or PATH.
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
