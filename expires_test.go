package redeliver_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Before each attempt the policy's MaxAge and the message's own expiry are checked. The latter does not count after a replay or in a
// consumer of a DLQ.
func TestAMessageExpiresByMaxAgeOrItsOwnExpiry(t *testing.T) {
	hourOld := redeliver.Source{Timestamp: now.Add(-time.Hour)}
	ended := now.Add(-time.Minute)
	for name, row := range map[string]struct {
		maxAge time.Duration
		state  redeliver.State
		limit  string // empty: it may run
	}{
		"no limit":                             {0, redeliver.State{Source: hourOld}, ""},
		"an unknown age":                       {time.Minute, redeliver.State{}, ""},
		"exactly MaxAge old":                   {time.Hour, redeliver.State{Source: hourOld}, ""},
		"older":                                {time.Hour - 1, redeliver.State{Source: hourOld}, "MaxAge, 59m59.999999999s after its timestamp in the origin"},
		"older than its first failure":         {time.Minute, redeliver.State{FirstFailed: now.Add(-time.Hour)}, "MaxAge, 1m0s after its first failure"},
		"replayed":                             {time.Minute, redeliver.State{Source: hourOld, Replays: 1, Replayed: now.Add(-time.Second)}, ""},
		"replayed long ago":                    {time.Minute, redeliver.State{Source: hourOld, Replays: 1, Replayed: now.Add(-time.Hour)}, "MaxAge, 1m0s after its replay"},
		"its own end":                          {0, redeliver.State{Expires: ended}, "the end that the message itself names"},
		"its own end, of a replayed one":       {0, redeliver.State{Expires: ended, Replays: 1}, ""},
		"its own end, of a dead letter":        {0, redeliver.State{Expires: ended, DeadLetter: &redeliver.State{}}, ""},
		"its own end, now":                     {0, redeliver.State{Expires: now}, ""},
		"a timestamp of a clock that is ahead": {time.Minute, redeliver.State{Source: redeliver.Source{Timestamp: now.Add(time.Hour)}}, ""},
	} {
		policy := redeliver.Policy{MaxAge: row.maxAge}
		err := policy.CheckExpired(&row.state, now)
		if row.limit == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if !errors.Is(err, redeliver.ErrExpired) || !strings.Contains(err.Error(), row.limit) {
			t.Errorf("%s: %v, want that it has passed %s", name, err, row.limit)
		}
	}
}

// No attempt of an expired message is counted, and the DLQ has its earlier failure.
func TestDecideDeadLettersAnExpiredMessage(t *testing.T) {
	err := &redeliver.ExpiredError{Limit: "MaxAge, 1h"}
	check(t, redeliver.Policy{}.Decide(redeliver.State{}, err, now), deadLettered(redeliver.ReasonExpired, 0))
	st := redeliver.State{Attempts: 2, Error: "declined", ErrorType: "bank.Error", PostponedSince: now}
	d := redeliver.Policy{}.Decide(st, err, now)
	check(t, d, deadLettered(redeliver.ReasonExpired, 2))
	if want := "it has passed MaxAge, 1h; the failure was: declined"; d.State.Error != want || d.State.ErrorType != "bank.Error" {
		t.Errorf("the DLQ has %q of type %s, want %q of bank.Error", d.State.Error, d.State.ErrorType, want)
	}
}

func TestExpiresTravelsAsText(t *testing.T) {
	msg := message.NewMessage("a", nil)
	redeliver.SetExpires(msg.Metadata, now)
	text := msg.Metadata.Get(redeliver.HeaderExpires)
	got, ok := limits.ParseTime(text)
	if want := limits.CeilMilli(now); text != "2026-03-14T15:09:26.536Z" || !ok || !got.Equal(want) {
		t.Errorf("%q is read as %s, want %s: never early", text, got, want)
	}
	for _, bad := range []string{"", "tomorrow", "1742000000", "2026-03-14", "0000-01-01T00:00:00Z"} {
		if at, ok := limits.ParseTime(bad); ok {
			t.Errorf("%q is read as %s", bad, at)
		}
	}
	if at, ok := limits.ParseTime("2026-03-14T16:00:00+01:00"); !ok || !at.Equal(time.Date(2026, 3, 14, 15, 0, 0, 0, time.UTC)) {
		t.Errorf("with a zone: %s, %t", at, ok)
	}
}
