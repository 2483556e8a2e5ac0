package driver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

func leaseEntry(t testing.TB, l lease) Entry {
	t.Helper()
	value, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{lockPrefix + ClaimLock, value}
}

// If two sessions find the DLQ free and write their claims, the first one has it. Entries of the other have no effect
// until the first lease has expired and a session begins the next epoch.
func TestTheFirstClaimOfAnEpochCounts(t *testing.T) {
	state := make(State)
	until := time.Now().Add(time.Hour)
	for i, step := range []struct {
		claim lease
		has   string
	}{
		{lease{Epoch: 1, Token: "a", Until: until}, "a"},
		{lease{Epoch: 1, Token: "b", Until: until}, "a"},
		{lease{Epoch: 1, Token: "a", Who: "renewed", Until: until}, "a"},
		{lease{Epoch: 2, Token: "c", Until: until}, "c"},
		{lease{Epoch: 1, Token: "a", Until: until}, "c"}, // it was paused and continues
		{lease{Epoch: 2, Token: "b", Until: until}, "c"},
	} {
		state.Put(leaseEntry(t, step.claim))
		if got := state.lease(ClaimLock); got.Token != step.has {
			t.Errorf("after step %d %s holds the DLQ, want %s", i, got.Token, step.has)
		}
	}
	if state.Put(Entry{Key: lockPrefix + ClaimLock}) {
		t.Error("a valid lease was replaced")
	}
	if l := state.lease(ClaimLock); l.held(until.Add(time.Second)) {
		t.Error("an expired lease has a holder")
	}
}

func value(v string) []byte { return fmt.Appendf(nil, "%q", v) }

// A writer that dies between the write of the state and the removal of the old one leaves two. Two writers at once,
// because the lock of one expired, leave two of the same version.
func TestTwoSnapshotsBecomeOne(t *testing.T) {
	var base Snapshot
	base.Apply([]Entry{{"task/1", value("old")}, {"mark/a", value("x")}, {"mark/b", value("x")}})
	body, err := base.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	read := func() Snapshot {
		s, err := ReadSnapshot(body)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	newer, other := read(), read()
	newer.Apply([]Entry{{"task/1", value("new")}, {Key: "mark/a"}, {"want/1", value("pause")}})
	other.Apply([]Entry{{"task/2", value("second")}, {Key: "mark/b"}})
	for name, c := range map[string]struct {
		a, b Snapshot
		want string
	}{
		"old and new":   {base, newer, "map[mark/b:x task/1:new want/1:pause]"},
		"new and old":   {newer, base, "map[mark/b:x task/1:new want/1:pause]"},
		"two at once":   {newer, other, "map[task/1:new task/2:second want/1:pause]"},
		"into an empty": {Snapshot{}, newer, "map[mark/b:x task/1:new want/1:pause]"},
	} {
		merged := c.a
		merged.Merge(c.b)
		got := make(map[string]string)
		for key, raw := range merged.State() {
			var text string
			if err := json.Unmarshal(raw, &text); err != nil {
				t.Fatal(err)
			}
			got[key] = text
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%s become %v, want %s", name, got, c.want)
		}
	}
}

func TestASnapshotIsPlainASCII(t *testing.T) {
	var s Snapshot
	s.Apply([]Entry{{"task/ä😀", value("ö\u2028")}})
	body, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range body {
		if b >= 0x80 {
			t.Fatalf("%q has a byte that is not ASCII", body)
		}
	}
	again, err := ReadSnapshot(body)
	if err != nil || !bytes.Equal(again.State()["task/ä😀"], s.State()["task/ä😀"]) && len(again.State()) != 1 {
		t.Errorf("it is read as %v: %v", again.State(), err)
	}
	for _, bad := range []string{"", "{}", "null", "[]"} {
		if _, err := ReadSnapshot([]byte(bad)); err == nil {
			t.Errorf("%q is read as a state", bad)
		}
	}
}

// FuzzSnapshot takes two states as JSON. Merging one twice has the same result as merging it once, and the result can
// be written.
func FuzzSnapshot(f *testing.F) {
	f.Add([]byte(`{"version":3,"values":{"task/1":{"of":2,"value":1},"lock/claim":{"of":3,"value":{"epoch":3,"token":"a"}}}}`), []byte(`{"version":3,"values":{"lock/claim":{"of":1,"value":{"epoch":3,"token":"b"}}}}`))
	f.Add([]byte(`{"version":1}`), []byte(`{"version":9,"values":{"":{"of":-1,"value":null}}}`))
	f.Fuzz(func(t *testing.T, one, other []byte) {
		a, err1 := ReadSnapshot(one)
		b, err2 := ReadSnapshot(other)
		if err1 != nil || err2 != nil {
			return
		}
		a.Merge(b)
		first, err := a.Bytes()
		if err != nil {
			return
		}
		a.Merge(b)
		if second, err := a.Bytes(); err != nil || !bytes.Equal(first, second) {
			t.Errorf("merged once\n%s\nand twice\n%s\n%v", first, second, err)
		}
	})
}
