package deadletter_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

func TestFilterMatchesAllOfItsFields(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_700_000_000, 0)
	m := &deadletter.Message{
		ID: "a", Position: "1/7", Key: []byte("k"), Body: []byte(`{"customer":"Ann","city":"Köln"}`), Headers: []deadletter.Header{{Name: "tenant", Value: []byte("acme")}},
		State: redeliver.State{Error: "Card Declined", ErrorType: "*bank.Error", Reason: redeliver.ReasonPermanent, LastFailed: at},
	}
	undated := deadletter.Message{ID: "undated"}
	if f := (deadletter.Filter{Before: at}); f.Match(&undated) {
		t.Error("a message without a time failed before a time")
	}
	for name, c := range map[string]struct {
		f    deadletter.Filter
		want bool
	}{
		"all":              {deadletter.Filter{}, true},
		"id":               {deadletter.Filter{IDs: []string{"b", "a"}}, true},
		"another id":       {deadletter.Filter{IDs: []string{"b"}}, false},
		"position":         {deadletter.Filter{Positions: []deadletter.Position{"1/7"}}, true},
		"another position": {deadletter.Filter{Positions: []deadletter.Position{"1/70"}}, false},
		"key":              {deadletter.Filter{Key: []byte("k")}, true},
		"empty key":        {deadletter.Filter{Key: []byte{}}, false},
		"header":           {deadletter.Filter{Headers: map[string]string{"tenant": "acme"}}, true},
		"another header":   {deadletter.Filter{Headers: map[string]string{"tenant": "bolt"}}, false},
		"from then on":     {deadletter.Filter{After: at}, true},
		"until then":       {deadletter.Filter{Before: at}, false},
		"text":             {deadletter.Filter{ErrorText: "card decl"}, true},
		"another text":     {deadletter.Filter{ErrorText: "time-out"}, false},
		"body":             {deadletter.Filter{BodyText: `"Köln"`}, true},
		"another case":     {deadletter.Filter{BodyText: "ann"}, false},
		"another body":     {deadletter.Filter{BodyText: "Bonn"}, false},
		"type":             {deadletter.Filter{ErrorType: "*bank.Error"}, true},
		"another type":     {deadletter.Filter{ErrorType: "bank"}, false},
		"reason":           {deadletter.Filter{Reasons: []redeliver.Reason{redeliver.ReasonPermanent}}, true},
		"another reason":   {deadletter.Filter{Reasons: []redeliver.Reason{redeliver.ReasonPanic}}, false},
		"fingerprint":      {deadletter.Filter{Fingerprints: []string{deadletter.Fingerprint(m)}}, true},
		"another":          {deadletter.Filter{Fingerprints: []string{"0"}}, false},
		"both":             {deadletter.Filter{IDs: []string{"a"}, ErrorText: "time-out"}, false},
	} {
		if got := c.f.Match(m); got != c.want {
			t.Errorf("%s: Match returned %v", name, got)
		}
		if c.f.All() != (name == "all") {
			t.Errorf("%s: All returned %v", name, c.f.All())
		}
	}
}

// A filter for an empty key is recorded with its task, so that a resumed task does not select all keys.
func TestAnEmptyKeyIsRecorded(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, {}, []byte("k")} {
		raw, err := json.Marshal(deadletter.Filter{Key: key})
		if err != nil {
			t.Fatal(err)
		}
		var f deadletter.Filter
		if err := json.Unmarshal(raw, &f); err != nil || (f.Key == nil) != (key == nil) || string(f.Key) != string(key) || f.All() != (key == nil) {
			t.Errorf("%q is %s when it is read again (%v), %+v", key, raw, err, f)
		}
	}
}

// scanOnlyDLQ is a DLQ of n messages that only supports scans.
type scanOnlyDLQ struct {
	deadletter.Queue
	n    int
	make func(i int) *deadletter.Message
}

func (s *scanOnlyDLQ) Info() deadletter.Info { return orders }
func (s *scanOnlyDLQ) Scan(context.Context, deadletter.From) (deadletter.Scan, error) {
	return &generatedScan{q: s}, nil
}

type generatedScan struct {
	q *scanOnlyDLQ
	i int
}

func (s *generatedScan) Next(_ context.Context, want func(*deadletter.Message) bool) (*deadletter.Message, error) {
	if s.i == s.q.n {
		return nil, io.EOF
	}
	s.i++
	return wanted(s.q.make(s.i-1), want), nil
}
func (s *generatedScan) Close() error { return nil }

// A DLQ in which every message has its own cause does not fill the memory.
func TestGroupsAreBounded(t *testing.T) {
	t.Parallel()
	const n = 5000
	q := &scanOnlyDLQ{n: n, make: func(i int) *deadletter.Message {
		return &deadletter.Message{
			Key:   fmt.Appendf(nil, "k%d", i%2000),
			State: redeliver.State{Attempts: 2, ErrorType: fmt.Sprint("e", max(0, i-1000)), LastFailed: time.Unix(int64(i), 0)},
		}
	}}
	sum, err := deadletter.Groups(t.Context(), q, deadletter.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(sum.Groups) != deadletter.DefaultMaxGroups+1 {
		t.Fatalf("%d groups, want %d and the rest", len(sum.Groups), deadletter.DefaultMaxGroups)
	}
	var count int64
	for _, g := range sum.Groups {
		count += g.Count
	}
	rest, one := sum.Groups[0], sum.Groups[1]
	if count != n || rest.Fingerprint != "" || one.Count != 1001 || one.Attempts != 2002 || !one.LastSeen.Equal(time.Unix(1000, 0)) || !one.FirstSeen.Equal(time.Unix(0, 0)) {
		t.Errorf("the groups have %d messages, the first are %+v and %+v", count, rest, one)
	}
	if math.Abs(one.Keys-0.5) > 0.15 || math.Abs(rest.Keys-1) > 0.2 {
		t.Errorf("they hit %.2f and %.2f of the keys, want about 0.5 and 1", one.Keys, rest.Keys)
	}
}

func TestABadRequestIsRefusedWithAllItsProblems(t *testing.T) {
	t.Parallel()
	q := &scanOnlyDLQ{}
	_, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Rate: -1, Window: 1e6, MaxReplays: -1, Canary: []int{0}})
	bad, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || len(bad.Problems) != 6 {
		t.Errorf("refused with %v, want six problems", err)
	}
	if _, err := deadletter.Replay(t.Context(), q, deadletter.ReplayOptions{Who: "a", Why: "b", Filter: deadletter.Filter{IDs: make([]string, 1001)}}); err == nil {
		t.Error("a filter of 1001 ids was accepted")
	}
	if _, err := deadletter.Edit(t.Context(), q, deadletter.EditOptions{Who: "a", Why: "b", Position: "0/1"}); err == nil {
		t.Error("an edit of nothing was accepted")
	}
}
