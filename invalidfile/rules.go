package invalidfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/redeliver/redeliver"
)

// told is how many lines an error names at most.
const told = 10

// rule is one line of a file. It fits a message when all that it has does.
type rule struct {
	line    int
	id, key *string
	headers map[string]string
	reason  string
}

// rules are the lines of a file, by one thing that each has, so that a message is not
// held against all of them. Nothing in it changes.
type rules struct {
	n       int
	ids     map[string][]*rule
	keys    map[string][]*rule
	headers map[string]map[string][]*rule // by name and value
}

// parse reads a file. Its error names the lines that are no rules.
func parse(text []byte) (*rules, error) {
	all := &rules{ids: make(map[string][]*rule), keys: make(map[string][]*rule), headers: make(map[string]map[string][]*rule)}
	var wrong []error
	bad, n := 0, 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		r, err := parseRule(line)
		if err != nil {
			if bad++; bad <= told {
				wrong = append(wrong, fmt.Errorf("line %d: %w", n, err))
			}
			continue
		}
		r.line = n
		all.add(r)
	}
	if bad > told {
		wrong = append(wrong, fmt.Errorf("and %d lines more", bad-told))
	}
	return all, errors.Join(wrong...)
}

// parseRule reads a line that is not empty.
func parseRule(line []byte) (*rule, error) {
	if line[0] == '{' {
		return parseJSON(line)
	}
	kind, value, ok := strings.Cut(string(line), "=")
	if !ok {
		return nil, fmt.Errorf("%q is no rule: id=..., key=..., header=name=value, or a JSON object", redeliver.Cut(string(line), 64))
	}
	switch kind = strings.TrimSpace(kind); kind {
	case "id":
		return checked(&rule{id: &value})
	case "key":
		return &rule{key: &value}, nil
	case "header":
		name, value, ok := strings.Cut(value, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q names no header and its value: header=name=value", redeliver.Cut(string(line), 64))
		}
		return checked(&rule{headers: map[string]string{name: value}})
	default:
		return nil, fmt.Errorf("%q is neither id, key nor header; a header is header=%s", redeliver.Cut(kind, 64), redeliver.Cut(string(line), 64))
	}
}

func parseJSON(line []byte) (*rule, error) {
	var text struct {
		ID      *string           `json:"id"`
		Key     *string           `json:"key"`
		Headers map[string]string `json:"headers"`
		Reason  string            `json:"reason"`
	}
	in := json.NewDecoder(bytes.NewReader(line))
	in.DisallowUnknownFields()
	if err := in.Decode(&text); err != nil {
		return nil, fmt.Errorf("is no rule: %w; it may have id, key, headers and reason", err)
	}
	if _, err := in.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("has something behind its object")
	}
	return checked(&rule{id: text.ID, key: text.Key, headers: text.Headers, reason: text.Reason})
}

// checked refuses a rule that would fit what nobody means.
func checked(r *rule) (*rule, error) {
	if r.id == nil && r.key == nil && len(r.headers) == 0 {
		return nil, errors.New("would fit every message: it needs an id, a key or headers")
	}
	if r.id != nil && *r.id == "" {
		return nil, errors.New("has an empty id, which no message has")
	}
	for name, value := range r.headers {
		if value == "" {
			return nil, fmt.Errorf("has no value for the header %q, and would fit every message without that header", redeliver.Cut(name, 64))
		}
	}
	return r, nil
}

func (all *rules) add(r *rule) {
	all.n++
	switch {
	case r.id != nil:
		all.ids[*r.id] = append(all.ids[*r.id], r)
	case r.key != nil:
		all.keys[*r.key] = append(all.keys[*r.key], r)
	default:
		name := slices.Min(slices.Collect(maps.Keys(r.headers)))
		values := all.headers[name]
		if values == nil {
			values = make(map[string][]*rule)
			all.headers[name] = values
		}
		values[r.headers[name]] = append(values[r.headers[name]], r)
	}
}

// find returns a rule that fits a message, or nil.
func (all *rules) find(m *redeliver.Message) *rule {
	if r := first(all.ids[m.State.ID], m); r != nil {
		return r
	}
	if m.Key != nil {
		if r := first(all.keys[string(m.Key)], m); r != nil {
			return r
		}
	}
	if m.Headers == nil {
		return nil
	}
	for name, values := range all.headers {
		if r := first(values[m.Headers.Get(name)], m); r != nil {
			return r
		}
	}
	return nil
}

func first(some []*rule, m *redeliver.Message) *rule {
	for _, r := range some {
		if r.fits(m) {
			return r
		}
	}
	return nil
}

func (r *rule) fits(m *redeliver.Message) bool {
	if r.id != nil && *r.id != m.State.ID || r.key != nil && (m.Key == nil || *r.key != string(m.Key)) {
		return false
	}
	for name, value := range r.headers {
		if m.Headers == nil || m.Headers.Get(name) != value {
			return false
		}
	}
	return true
}
