package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// State is the data that a broker keeps with a DLQ beside its messages: values by key.
type State map[string][]byte

// Entry is a change of the state. A nil Value deletes the key.
type Entry struct {
	Key   string
	Value []byte
}

// lockPrefix begins the keys of leases.
const lockPrefix = "lock/"

// Put applies an entry, and reports whether it counts. An entry replaces the earlier one of its key. But a lease counts only
// if it has a higher epoch or the same owner. So all readers of the same entries find the same owner of a lock.
func (s State) Put(e Entry) bool {
	if strings.HasPrefix(e.Key, lockPrefix) && !supersedes(s[e.Key], e.Value) {
		return false
	}
	if e.Value == nil {
		delete(s, e.Key)
	} else {
		s[e.Key] = e.Value
	}
	return true
}

// Snapshot is a state that is kept as one message, for brokers without a compacted log. Under a lock of the broker's, an
// adapter reads the message, applies entries, writes a new message and removes the old one. A process that dies after the write
// leaves both messages. If its lock has expired meanwhile, there may be two messages of the same version. The next reader merges
// them, see Merge.
type Snapshot struct {
	Version int64              `json:"version"`
	Values  map[string]Version `json:"values,omitempty"`
}

// Version is a value with the version of the snapshot that set it.
type Version struct {
	Of    int64           `json:"of"`
	Value json.RawMessage `json:"value"`
}

// ReadSnapshot parses the result of [Snapshot.Bytes].
func ReadSnapshot(body []byte) (s Snapshot, err error) {
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("it holds something other than the state of a DLQ: %w", err)
	}
	if s.Version < 1 {
		return s, errors.New("it holds something other than the state of a DLQ: no version")
	}
	return s, nil
}

// Bytes returns the snapshot as JSON, in plain ASCII.
func (s *Snapshot) Bytes() ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("writing the state: %w", err)
	}
	var b strings.Builder
	for _, r := range string(raw) {
		if r < utf8.RuneSelf {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return []byte(b.String()), nil
}

// State returns the state in the snapshot.
func (s *Snapshot) State() State {
	state := make(State, len(s.Values))
	for key, v := range s.Values {
		state[key] = v.Value
	}
	return state
}

// Apply applies entries, whose values are JSON, and reports whether one of them counts.
func (s *Snapshot) Apply(entries []Entry) (changed bool) {
	state := s.State()
	s.Version++
	if s.Values == nil {
		s.Values = make(map[string]Version)
	}
	for _, e := range entries {
		if !state.Put(e) {
			continue
		}
		changed = true
		if e.Value == nil {
			delete(s.Values, e.Key)
		} else {
			s.Values[e.Key] = Version{Of: s.Version, Value: e.Value}
		}
	}
	return changed
}

// Merge adds the entries of another snapshot. Of two values of a key, the later one counts. If only one snapshot has a
// key and the other is later than its value, the other has deleted it.
func (s *Snapshot) Merge(o Snapshot) {
	merged := make(map[string]Version, len(s.Values))
	for _, key := range slices.Concat(slices.Collect(maps.Keys(s.Values)), slices.Collect(maps.Keys(o.Values))) {
		mine, ok := s.Values[key]
		theirs, also := o.Values[key]
		switch {
		case ok && also && strings.HasPrefix(key, lockPrefix):
			if supersedes(mine.Value, theirs.Value) {
				mine = theirs
			}
			merged[key] = mine
		case ok && (!also && mine.Of >= o.Version || also && mine.Of >= theirs.Of):
			merged[key] = mine
		case also && (!ok && theirs.Of >= s.Version || ok):
			merged[key] = theirs
		}
	}
	s.Version, s.Values = max(s.Version, o.Version), merged
}
