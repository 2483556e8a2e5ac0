package redeliver_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// The attempts are bounded by MaxRetries, Immediate and the end of the backoff. A message never gets more than MaxRetries + 1.
func TestDecideCountsAttempts(t *testing.T) {
	steps := func(p redeliver.Policy) redeliver.Policy { p.Backoff = tenSeconds{}; return p }
	plain, none := steps(redeliver.Policy{}), steps(redeliver.Policy{MaxRetries: redeliver.NoRetries})
	many := steps(redeliver.Policy{MaxRetries: 2000})
	two := steps(redeliver.Policy{MaxRetries: 4, Immediate: 2})
	s := time.Second
	for name, row := range map[string]struct {
		policy   redeliver.Policy
		attempts int // attempts made before the one that failed now
		err      error
		want     want
	}{
		"first of four":                  {plain, 0, errBoom, retryLater(10*s, 1)},
		"second of four":                 {plain, 1, errBoom, retryLater(20*s, 2)},
		"third of four":                  {plain, 2, errBoom, retryLater(30*s, 3)},
		"fourth of four":                 {plain, 3, errBoom, deadLettered(redeliver.ReasonExhausted, 4)},
		"more than allowed":              {plain, 4, errBoom, deadLettered(redeliver.ReasonExhausted, 5)}, // a deploy made the policy shorter
		"attempt 64":                     {many, 63, errBoom, retryLater(640*s, 64)},
		"attempt 1000":                   {many, 999, errBoom, retryLater(10_000*s, 1000)},
		"attempt 2000":                   {many, 1999, errBoom, retryLater(20_000*s, 2000)},
		"attempt 2001":                   {many, 2000, errBoom, deadLettered(redeliver.ReasonExhausted, 2001)},
		"negative count in the state":    {plain, -7, errBoom, retryLater(10*s, 1)}, // once got seven attempts more
		"most negative count":            {plain, math.MinInt, errBoom, retryLater(10*s, 1)},
		"largest count":                  {plain, math.MaxInt, errBoom, deadLettered(redeliver.ReasonExhausted, limits.MaxAttempts+1)},
		"negative count, no retries":     {none, -7, errBoom, deadLettered(redeliver.ReasonExhausted, 1)},
		"no retries":                     {none, 0, errBoom, deadLettered(redeliver.ReasonExhausted, 1)},
		"no retries, a time named":       {none, 0, redeliver.RetryAfter(errBoom, s), deadLettered(redeliver.ReasonExhausted, 1)},
		"any negative MaxRetries":        {redeliver.Policy{MaxRetries: -9}, 0, errBoom, deadLettered(redeliver.ReasonExhausted, 1)},
		"a named time counts":            {plain, 2, redeliver.RetryAfter(errBoom, s), retryLater(s, 3)},
		"a named time is bounded too":    {plain, 3, redeliver.RetryAfter(errBoom, s), deadLettered(redeliver.ReasonExhausted, 4)},
		"backoff ends before MaxRetries": {redeliver.Policy{Backoff: noDelays{}}, 0, errBoom, deadLettered(redeliver.ReasonExhausted, 1)},
		"backoff without steps":          {redeliver.Policy{Backoff: redeliver.Steps()}, 0, errBoom, deadLettered(redeliver.ReasonExhausted, 1)},

		"first immediate":                  {two, 0, errBoom, retryNow(1)},
		"second immediate":                 {two, 1, errBoom, retryNow(2)},
		"delays begin at the first":        {two, 2, errBoom, retryLater(10*s, 3)},
		"and go on":                        {two, 3, errBoom, retryLater(20*s, 4)},
		"immediate tries count as retries": {two, 4, errBoom, deadLettered(redeliver.ReasonExhausted, 5)},
		"a named time is waited for":       {two, 0, redeliver.RetryAfter(errBoom, s), retryLater(s, 1)},
		"permanent among immediate tries":  {two, 0, redeliver.Permanent(errBoom), deadLettered(redeliver.ReasonPermanent, 1)},
		"postponed among immediate tries":  {two, 1, redeliver.Postpone(errBoom), postponed(10*s, 1)},
		"postponed waits as the next":      {two, 3, redeliver.Postpone(errBoom), postponed(20*s, 3)},
		"immediate tries only":             {steps(redeliver.Policy{MaxRetries: 2, Immediate: 2}), 2, errBoom, deadLettered(redeliver.ReasonExhausted, 3)},
		"never more immediate than all":    {steps(redeliver.Policy{MaxRetries: 1, Immediate: 5}), 1, errBoom, deadLettered(redeliver.ReasonExhausted, 2)},

		"panic is a reason at the end":       {plain, 3, &redeliver.PanicError{Value: 1}, deadLettered(redeliver.ReasonPanic, 4)},
		"timeout is a reason at the end":     {plain, 3, fmt.Errorf("x: %w", &redeliver.TimeoutError{After: s}), deadLettered(redeliver.ReasonTimeout, 4)},
		"panic when the backoff ends":        {redeliver.Policy{Backoff: noDelays{}}, 0, &redeliver.PanicError{Value: 1}, deadLettered(redeliver.ReasonPanic, 1)},
		"a postponed attempt does not count": {plain, 3, redeliver.Postpone(errBoom), postponed(40*s, 3)},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, row.policy.Decide(redeliver.State{Attempts: row.attempts}, row.err, now), row.want)
		})
	}
}

// MaxAge counts from the timestamp in the origin, or otherwise from the first failure. A message whose retry would
// exceed it is dead-lettered now.
func TestDecideKeepsMaxAge(t *testing.T) {
	hourOld := redeliver.State{Source: redeliver.Source{Timestamp: now.Add(-time.Hour)}}
	failed := redeliver.State{Attempts: 1, FirstFailed: now.Add(-time.Hour)}
	implausible := func(at time.Time) redeliver.State { // another program wrote it
		return redeliver.State{Attempts: 1, FirstFailed: now.Add(-time.Hour), Source: redeliver.Source{Timestamp: at}}
	}
	both := redeliver.State{Attempts: 1, FirstFailed: now.Add(-time.Minute), Source: hourOld.Source}
	age := func(d time.Duration) redeliver.Policy {
		return redeliver.Policy{MaxAge: d, Backoff: redeliver.Fixed(10 * time.Second)}
	}
	soon := time.Hour + 11*time.Second // leaves time for one wait of 10 s
	blocking := age(time.Hour + 31*time.Second)
	blocking.Order = redeliver.OrderBlocking
	ageing := redeliver.State{Source: redeliver.Source{Timestamp: now.Add(-time.Hour - 2*time.Second)}}
	for name, row := range map[string]struct {
		policy redeliver.Policy
		state  redeliver.State
		err    error
		want   want
	}{
		"no bound":                   {age(0), hourOld, errBoom, retryLater(10*time.Second, 1)},
		"room left":                  {age(soon), hourOld, errBoom, retryLater(10*time.Second, 1)},
		"the wait would pass it":     {age(time.Hour + 9*time.Second), hourOld, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"already passed":             {age(time.Minute), hourOld, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"a named time would pass it": {age(soon), hourOld, redeliver.RetryAfter(errBoom, time.Minute), deadLettered(redeliver.ReasonExpired, 1)},
		"a wait that OrderBlocking cuts passes nothing": {blocking, hourOld, redeliver.RetryAfter(errBoom, time.Minute), retryLater(30*time.Second, 1)},
		"a cut wait passes it":                          {blocking, ageing, redeliver.RetryAfter(errBoom, time.Minute), deadLettered(redeliver.ReasonExpired, 1)},
		"a cut wait is schedulable":                     {blocking, hourOld, redeliver.RetryAfter(errBoom, redeliver.MaxWait+1), retryLater(30*time.Second, 1)},
		"without a timestamp, first failure":            {age(time.Minute), failed, errBoom, deadLettered(redeliver.ReasonExpired, 2)},
		"without a timestamp, room left":                {age(soon), failed, errBoom, retryLater(10*time.Second, 2)},
		"the timestamp comes first":                     {age(30 * time.Minute), both, errBoom, deadLettered(redeliver.ReasonExpired, 2)},
		"the first failure starts it":                   {age(9 * time.Second), redeliver.State{}, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"rounding up may pass it":                       {age(10 * time.Second), redeliver.State{}, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"a timestamp of the future":                     {age(time.Minute), redeliver.State{Source: redeliver.Source{Timestamp: now.Add(time.Hour)}}, errBoom, retryLater(10*time.Second, 1)},
		"milliseconds as seconds in the timestamp":      {age(time.Minute), implausible(time.Unix(now.UnixMilli(), 0)), errBoom, deadLettered(redeliver.ReasonExpired, 2)},
		"the last second of 64 bits":                    {age(time.Minute), implausible(time.Unix(math.MaxInt64, 0)), errBoom, deadLettered(redeliver.ReasonExpired, 2)},
		"a clock that is ahead":                         {age(time.Minute), implausible(now.Add(time.Hour)), errBoom, deadLettered(redeliver.ReasonExpired, 2)},
		"seconds as milliseconds":                       {age(soon), implausible(time.UnixMilli(now.Unix())), errBoom, retryLater(10*time.Second, 2)},
		"a first delivery with such a time":             {age(soon), redeliver.State{Source: redeliver.Source{Timestamp: time.UnixMilli(now.Unix())}}, errBoom, retryLater(10*time.Second, 1)},
		"a postponed message ages":                      {age(time.Minute), hourOld, redeliver.Postpone(errBoom), deadLettered(redeliver.ReasonExpired, 0)},
		"exhausted comes first":                         {age(time.Minute), redeliver.State{Attempts: 3, FirstFailed: now.Add(-time.Hour)}, errBoom, deadLettered(redeliver.ReasonExhausted, 4)},
		"unschedulable comes first":                     {age(time.Minute), hourOld, redeliver.RetryAfter(errBoom, redeliver.MaxWait+1), deadLettered(redeliver.ReasonUnschedulable, 1)},
		"an immediate retry passes it, too":             {redeliver.Policy{MaxAge: time.Minute, Immediate: 1}, hourOld, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"the message's own end":                         {age(0), redeliver.State{Expires: now.Add(9 * time.Second)}, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"before the message's own end":                  {age(0), redeliver.State{Expires: now.Add(11 * time.Second)}, errBoom, retryLater(10*time.Second, 1)},
		"the earlier of both ends":                      {age(time.Minute), redeliver.State{Expires: now.Add(time.Hour), Source: hourOld.Source}, errBoom, deadLettered(redeliver.ReasonExpired, 1)},
		"an immediate try with room left is run":        {redeliver.Policy{MaxAge: soon, Immediate: 1}, hourOld, errBoom, retryNow(1)},
	} {
		t.Run(name, func(t *testing.T) { check(t, row.policy.Decide(row.state, row.err, now), row.want) })
	}
}

// A message whose wait cannot be kept is dead-lettered.
func TestDecideRefusesWaitsThatAreTooLong(t *testing.T) {
	plain := redeliver.Policy{}
	for name, row := range map[string]struct {
		policy redeliver.Policy
		err    error
		want   want
	}{
		"the longest wait":        {plain, redeliver.RetryAfter(errBoom, redeliver.MaxWait), retryLater(redeliver.MaxWait, 1)},
		"one nanosecond longer":   {plain, redeliver.RetryAfter(errBoom, redeliver.MaxWait+1), deadLettered(redeliver.ReasonUnschedulable, 1)},
		"the longest duration":    {plain, redeliver.RetryAfter(errBoom, math.MaxInt64), deadLettered(redeliver.ReasonUnschedulable, 1)},
		"a backoff that is wrong": {redeliver.Policy{Backoff: redeliver.Fixed(math.MaxInt64)}, errBoom, deadLettered(redeliver.ReasonUnschedulable, 1)},
		"a negative backoff":      {redeliver.Policy{Backoff: redeliver.Fixed(-time.Hour)}, errBoom, retryLater(0, 1)},
	} {
		t.Run(name, func(t *testing.T) { check(t, row.policy.Decide(redeliver.State{}, row.err, now), row.want) })
	}
}

// A message is postponed for at most 24 h in a row.
func TestDecideBoundsPostponing(t *testing.T) {
	hourly := redeliver.Policy{Backoff: redeliver.Fixed(time.Hour)}
	since := func(d time.Duration) redeliver.State {
		return redeliver.State{Attempts: 1, PostponedSince: now.Add(-d)}
	}
	for name, row := range map[string]struct {
		policy redeliver.Policy
		state  redeliver.State
		want   want
	}{
		"the first time":                         {hourly, redeliver.State{}, postponed(time.Hour, 0)},
		"after 22 h":                             {hourly, since(22 * time.Hour), postponed(time.Hour, 1)},
		"after 23 h, ends with the bound":        {hourly, since(23 * time.Hour), postponed(time.Hour, 1)},
		"after 23.5 h, is cut to the bound":      {hourly, since(23*time.Hour + 30*time.Minute), postponed(30*time.Minute, 1)},
		"after 24 h":                             {hourly, since(24 * time.Hour), deadLettered(redeliver.ReasonExpired, 1)},
		"after 25 h":                             {hourly, since(25 * time.Hour), deadLettered(redeliver.ReasonExpired, 1)},
		"a backoff of days does not dead-letter": {redeliver.Policy{Backoff: redeliver.Fixed(72 * time.Hour)}, redeliver.State{}, postponed(24*time.Hour, 0)},
		"a backoff that ended waits 1 s":         {redeliver.Policy{Backoff: noDelays{}}, redeliver.State{}, postponed(time.Second, 0)},
		"a backoff without a wait does not spin": {redeliver.Policy{Backoff: redeliver.Fixed(0)}, redeliver.State{}, postponed(time.Second, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			d := row.policy.Decide(row.state, errBreakerOpen, now)
			check(t, d, row.want)
			if first := row.state.PostponedSince; !first.IsZero() && !d.State.PostponedSince.Equal(first) {
				t.Errorf("postponed since %s, want the first time %s kept", d.State.PostponedSince, first)
			}
		})
	}
	t.Run("a counted attempt starts the 24 h afresh", func(t *testing.T) {
		for _, err := range []error{errBoom, redeliver.RetryAfter(errBoom, 1), redeliver.Permanent(errBoom), redeliver.ErrInvalid, redeliver.ErrUndecodable} {
			if d := hourly.Decide(since(23*time.Hour), err, now); !d.State.PostponedSince.IsZero() {
				t.Errorf("%v: still postponed since %s", err, d.State.PostponedSince)
			}
		}
	})
}

func TestUnschedulableDeadLettersARetry(t *testing.T) {
	p := redeliver.Policy{Backoff: redeliver.Fixed(13 * time.Hour)}
	planned := p.Decide(redeliver.State{ID: "a"}, errBoom, now)
	d := planned
	p.RejectUnschedulable(&d, &redeliver.UnschedulableError{Wait: 13 * time.Hour, Max: 12 * time.Hour})
	check(t, d, deadLettered(redeliver.ReasonUnschedulable, 1))
	if want := "a wait of 13h0m0s is longer than the 12h0m0s that can be held; the failure was: boom"; d.State.Error != want {
		t.Errorf("error %q, want %q", d.State.Error, want)
	}
	if !errors.Is(&redeliver.UnschedulableError{}, redeliver.ErrUnschedulable) || d.State.ErrorType != "*redeliver.UnschedulableError" {
		t.Errorf("error type %q", d.State.ErrorType)
	}
}

// The DLQ shows which limit a message has reached, and the latest failure.
func TestDecideNamesTheLimit(t *testing.T) {
	fixed := redeliver.Fixed(10 * time.Second)
	retry := "a retry at " + stamp(limits.CeilMilli(now.Add(10*time.Second))) // a due time is rounded up
	for name, row := range map[string]struct {
		policy redeliver.Policy
		state  redeliver.State
		err    error
		want   string
	}{
		"MaxAge": {
			redeliver.Policy{MaxAge: time.Minute, Backoff: fixed}, redeliver.State{Source: redeliver.Source{Timestamp: now.Add(-time.Hour)}}, errBoom,
			retry + " would pass MaxAge, 1m0s after its timestamp in the origin, " + stamp(now.Add(-time.Hour)) + "; the failure was: boom",
		},
		"MaxAge without a timestamp": {
			redeliver.Policy{MaxAge: 9 * time.Second, Backoff: fixed}, redeliver.State{}, errBoom,
			retry + " would pass MaxAge, 9s after its first failure, " + stamp(now) + "; the failure was: boom",
		},
		"its own end": {
			redeliver.Policy{Backoff: fixed}, redeliver.State{Expires: now.Add(time.Second)}, errBoom,
			retry + " would pass the end that the message itself names, " + stamp(now.Add(time.Second)) + "; the failure was: boom",
		},
		"MaxPostponed": {
			redeliver.Policy{}, redeliver.State{PostponedSince: now.Add(-25 * time.Hour)}, redeliver.Postpone(errBoom),
			"postponed since " + stamp(now.Add(-25*time.Hour)) + ", longer than 24h0m0s in a row; the failure was: boom",
		},
		"MaxWait": {
			redeliver.Policy{}, redeliver.State{}, redeliver.RetryAfter(errBoom, redeliver.MaxWait+time.Hour),
			"a wait of 8785h0m0s is longer than the 8784h0m0s that can be held; the failure was: boom",
		},
		"the failure may be long": {
			redeliver.Policy{}, redeliver.State{}, redeliver.RetryAfter(errors.New(strings.Repeat("x", 2*limits.MaxErrorText)), redeliver.MaxWait+time.Hour),
			limits.CutMiddle("a wait of 8785h0m0s is longer than the 8784h0m0s that can be held; the failure was: "+strings.Repeat("x", 2*limits.MaxErrorText), limits.MaxErrorText),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if d := row.policy.Decide(row.state, row.err, now); d.Action != redeliver.ActionDeadLetter || d.State.Error != row.want {
				t.Errorf("%s, error\n%q, want\n%q", d.Action, d.State.Error, row.want)
			}
		})
	}
}

func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }
