package deadletter_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

func command(t *testing.T, c deadletter.Command) deadletter.Command {
	t.Helper()
	c.Kind, c.Who, c.Why = deadletter.CommandCancel, "ann", "test"
	made, err := deadletter.NewCommand(c)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestACommandAppliesToMessagesScheduledBeforeIt(t *testing.T) {
	t.Parallel()
	c := command(t, deadletter.Command{Everything: true})
	before, after := c.Created.Add(-time.Hour), c.Created.Add(time.Millisecond)
	for name, at := range map[string]struct {
		m       deadletter.Message
		applies bool
	}{
		"failed before":                        {deadletter.Message{Time: before, State: redeliver.State{Attempts: 1, LastFailed: before}}, true},
		"failed at the same moment":            {deadletter.Message{Time: c.Created, State: redeliver.State{Attempts: 1, LastFailed: c.Created}}, true},
		"failed before, hopped since":          {deadletter.Message{Time: after, State: redeliver.State{Attempts: 1, LastFailed: before}}, true},
		"failed before, time unknown":          {deadletter.Message{State: redeliver.State{Attempts: 1, LastFailed: before}}, true},
		"failed since":                         {deadletter.Message{Time: after, State: redeliver.State{Attempts: 1, LastFailed: after}}, false},
		"delayed publish before":               {deadletter.Message{Time: before}, true},
		"delayed publish since":                {deadletter.Message{Time: after}, false},
		"delayed publish, time unknown":        {deadletter.Message{}, false},
		"failed before, postponed since":       {deadletter.Message{Time: after, State: redeliver.State{Attempts: 1, LastFailed: before, PostponedSince: before}}, false},
		"dead-lettered before, replayed since": {deadletter.Message{Time: after, State: redeliver.State{LastFailed: before, Replays: 1}}, false},
		"postponed before, without a failure":  {deadletter.Message{Time: before, State: redeliver.State{PostponedSince: before}}, true},
	} {
		if got := c.AppliesTo(&at.m, time.Hour, c.Created); got != at.applies {
			t.Errorf("%s: AppliesTo returned %v, want %v", name, got, at.applies)
		}
		if c.AppliesTo(&at.m, time.Hour, c.Expires) {
			t.Errorf("%s: an expired command applies to it", name)
		}
	}
}

func TestACommandSelectsByLevelKeyHeaderAndFingerprint(t *testing.T) {
	t.Parallel()
	m := deadletter.Message{
		ID: "7", Key: []byte("k"), Headers: []deadletter.Header{{Name: "tenant", Value: []byte("acme")}},
		State: redeliver.State{Attempts: 1, LastFailed: time.Now().Add(-time.Minute), Error: "card 12 declined"},
	}
	other := m
	other.State.Error = "card 13 declined"
	for name, at := range map[string]struct {
		f       deadletter.WaitingFilter
		applies bool
	}{
		"its level":         {deadletter.WaitingFilter{Levels: []string{"30s", "1h"}}, true},
		"another level":     {deadletter.WaitingFilter{Levels: []string{"30s"}}, false},
		"its fingerprint":   {deadletter.WaitingFilter{Filter: deadletter.Filter{Fingerprints: []string{deadletter.Fingerprint(&other)}}}, true},
		"another":           {deadletter.WaitingFilter{Filter: deadletter.Filter{Fingerprints: []string{"0000000000000000"}}}, false},
		"its key":           {deadletter.WaitingFilter{Filter: deadletter.Filter{Key: []byte("k")}}, true},
		"another key":       {deadletter.WaitingFilter{Filter: deadletter.Filter{Key: []byte("l")}}, false},
		"its header":        {deadletter.WaitingFilter{Filter: deadletter.Filter{Headers: map[string]string{"tenant": "acme"}}}, true},
		"another header":    {deadletter.WaitingFilter{Filter: deadletter.Filter{Headers: map[string]string{"tenant": "bolt"}}}, false},
		"its id":            {deadletter.WaitingFilter{Filter: deadletter.Filter{IDs: []string{"7"}}}, true},
		"level and not key": {deadletter.WaitingFilter{Levels: []string{"1h"}, Filter: deadletter.Filter{Key: []byte("l")}}, false},
	} {
		c := command(t, deadletter.Command{Filter: at.f})
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		var read deadletter.Command
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		if got := read.AppliesTo(&m, time.Hour, time.Now()); got != at.applies {
			t.Errorf("%s: AppliesTo returned %v, want %v", name, got, at.applies)
		}
	}
}

func TestAnInvalidCommandIsRefused(t *testing.T) {
	t.Parallel()
	_, err := deadletter.NewCommand(deadletter.Command{
		Kind:   "shred",
		Filter: deadletter.WaitingFilter{Levels: []string{"90s"}, Filter: deadletter.Filter{Positions: []deadletter.Position{"0/1"}}},
	})
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, says := range []string{"Who", "Why", "Kind", "Filter.Levels[0]", "90s", "Positions"} {
		if !strings.Contains(err.Error(), says) {
			t.Errorf("%q does not contain %q", err, says)
		}
	}
	for _, c := range []deadletter.Command{{}, {Everything: true, Filter: deadletter.WaitingFilter{Levels: []string{"1h"}}}} {
		c.Kind, c.Who, c.Why = deadletter.CommandCancel, "ann", "test"
		if _, err := deadletter.NewCommand(c); err == nil || !strings.Contains(err.Error(), "Everything") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// A release applies to whole levels. The error describes what to do for single messages.
func TestAReleaseOfSingleMessagesIsRefused(t *testing.T) {
	t.Parallel()
	for levels, f := range map[string]deadletter.Filter{"": {IDs: []string{"7"}}, "1h": {Key: []byte("k")}} {
		c := deadletter.Command{Kind: deadletter.CommandRelease, Who: "ann", Why: "test", Filter: deadletter.WaitingFilter{Filter: f}}
		if levels != "" {
			c.Filter.Levels = []string{levels}
		}
		if _, err := deadletter.NewCommand(c); err == nil || !strings.Contains(err.Error(), "cancel them and replay them") {
			t.Errorf("%+v: %v", f, err)
		}
	}
	whole := deadletter.Command{Kind: deadletter.CommandRelease, Who: "ann", Why: "test", Filter: deadletter.WaitingFilter{Levels: []string{"1h", "10m"}}}
	if c, err := deadletter.NewCommand(whole); err != nil || !c.Filter.MatchLevel(time.Hour) || c.Filter.MatchLevel(time.Minute) || c.Filter.MatchLevel(0) {
		t.Errorf("%+v: %v", c, err)
	}
}
