package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// State is what is remembered of a DLQ beside its messages: values by key.
type State map[string][]byte

// Entry is a change of the state. A nil Value takes the key away.
type Entry struct {
	Key   string
	Value []byte
}

// lockPrefix begins the keys of leases.
const lockPrefix = "lock/"

// Put applies an entry, and reports whether it counts. Of a key the latest entry counts; but a
// lease is only replaced by one of a higher epoch, or by its owner's. So everybody who reads
// the same entries in the same order finds the same owner.
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

// Snapshot is a state that is kept as one message, for brokers without a compacted log. An
// adapter reads the message, applies entries, writes it anew and removes the old one, under a
// lock of the broker's. A process that dies in between leaves two messages. A lock that ran out
// leaves two of the same version. The next one to read makes one of them, see Merge.
type Snapshot struct {
	Version int64              `json:"version"`
	Values  map[string]Version `json:"values,omitempty"`
}

// Version is a value, and the version of the snapshot that it came with.
type Version struct {
	Of    int64           `json:"of"`
	Value json.RawMessage `json:"value"`
}

// ReadSnapshot reads what [Snapshot.Bytes] wrote.
func ReadSnapshot(body []byte) (s Snapshot, err error) {
	if err := json.Unmarshal(body, &s); err != nil {
		return s, fmt.Errorf("it holds something else than the state of a DLQ: %w", err)
	}
	if s.Version < 1 {
		return s, errors.New("it holds something else than the state of a DLQ: no version")
	}
	return s, nil
}

// Bytes is the snapshot as JSON, in plain ASCII.
func (s *Snapshot) Bytes() ([]byte, error) {
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, fmt.Errorf("writing down the state: %w", err)
	}
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case r < 0x80:
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return []byte(b.String()), nil
}

// State is what the snapshot says.
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

// Merge adds what another snapshot knows. Of each key the later value counts. A key that only
// one of them has was taken away by the other if that could have seen it.
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

// MarkPrefix begins the keys of marks. The position of the message follows. A driver may take a
// mark away when its message is gone.
const MarkPrefix = "mark/"
