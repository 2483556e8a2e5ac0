package redeliver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// now has nanoseconds: a time that is cut to the millisecond instead of rounded up is too early.
var now = time.Date(2026, 3, 14, 15, 9, 26, 535_897_932, time.UTC)

var errBoom = errors.New("boom")

// errBreakerOpen has the text of sony/gobreaker's error. integration/breaker compares it with the real one.
var errBreakerOpen = errors.New("circuit breaker is open")

// texted is an error whose type is not that of errors.New.
type texted string

func (t texted) Error() string { return string(t) }

// tenSeconds waits 10 s, then 20 s, 30 s ..., so that the delay shows the number of the retry.
type tenSeconds struct{}

func (tenSeconds) Delay(n int, _ float64) (time.Duration, bool) {
	return time.Duration(n+1) * 10 * time.Second, true
}

// noDelays is a backoff without any delay.
type noDelays struct{}

func (noDelays) Delay(int, float64) (time.Duration, bool) { return 0, false }

// want is the expected decision.
type want struct {
	action   redeliver.Action
	delay    time.Duration
	reason   redeliver.Reason
	attempts int
}

func retryLater(d time.Duration, attempts int) want {
	return want{action: redeliver.ActionRetryLater, delay: d, attempts: attempts}
}

func postponed(d time.Duration, attempts int) want {
	return want{action: redeliver.ActionPostpone, delay: d, attempts: attempts}
}

func deadLettered(r redeliver.Reason, attempts int) want {
	return want{action: redeliver.ActionDeadLetter, reason: r, attempts: attempts}
}

func retryNow(attempts int) want { return want{action: redeliver.ActionRetryNow, attempts: attempts} }

// check compares a decision with a row, and checks the rules of every decision.
func check(t *testing.T, d redeliver.Decision, w want) {
	t.Helper()
	got := want{d.Action, d.Delay, d.State.Reason, d.State.Attempts}
	if got != w {
		t.Errorf("decided %+v (%s), want %+v (%s)", got, got.action, w, w.action)
	}
	switch d.Action {
	case redeliver.ActionRetryLater, redeliver.ActionPostpone:
		if early, late := now.Add(d.Delay), now.Add(d.Delay+time.Millisecond); d.State.Due.Before(early) || !d.State.Due.Before(late) {
			t.Errorf("due %s, want from %s to 1ms later", d.State.Due, early)
		}
		if !d.State.Due.Equal(d.State.Due.Truncate(time.Millisecond)) {
			t.Errorf("due %s is not in whole milliseconds, and a header would cut it", d.State.Due)
		}
	default:
		if !d.State.Due.IsZero() {
			t.Errorf("due %s although nothing is planned", d.State.Due)
		}
	}
}

// Each answer has a decision. If an error contains two answers, one of them counts. All rows are a first attempt under
// a policy with three retries after 10 s, 20 s and 30 s.
func TestDecideFollowsTheHandlersAnswer(t *testing.T) {
	wrap := func(err error) error { return fmt.Errorf("second: %w", fmt.Errorf("first: %w", err)) }
	permanent, after := redeliver.Permanent(errBoom), redeliver.RetryAfter(errBoom, time.Minute)
	aPanic := &redeliver.PanicError{Value: "boom"}
	for name, row := range map[string]struct {
		err  error
		want want
	}{
		"success":                       {nil, want{}},
		"plain error":                   {errBoom, retryLater(10*time.Second, 1)},
		"cancelled context":             {context.Canceled, retryLater(10*time.Second, 1)},
		"nack without an error":         {redeliver.ErrNacked, retryLater(10*time.Second, 1)},
		"panic":                         {aPanic, retryLater(10*time.Second, 1)},
		"timeout":                       {&redeliver.TimeoutError{After: time.Second}, retryLater(10*time.Second, 1)},
		"permanent":                     {permanent, deadLettered(redeliver.ReasonPermanent, 1)},
		"permanent, wrapped twice":      {wrap(permanent), deadLettered(redeliver.ReasonPermanent, 1)},
		"permanent, joined":             {errors.Join(errBoom, permanent), deadLettered(redeliver.ReasonPermanent, 1)},
		"permanent, joined and wrapped": {wrap(errors.Join(errBoom, wrap(permanent))), deadLettered(redeliver.ReasonPermanent, 1)},
		"permanent sentinel":            {wrap(redeliver.ErrPermanent), deadLettered(redeliver.ReasonPermanent, 1)},
		"permanent inside a panic":      {&redeliver.PanicError{Value: permanent}, deadLettered(redeliver.ReasonPermanent, 1)},

		"retry after":                 {after, retryLater(time.Minute, 1)},
		"retry after, wrapped twice":  {wrap(after), retryLater(time.Minute, 1)},
		"retry after, joined":         {errors.Join(errBoom, after), retryLater(time.Minute, 1)},
		"retry after 0":               {redeliver.RetryAfter(errBoom, 0), retryLater(0, 1)},
		"retry after a negative time": {redeliver.RetryAfter(errBoom, -time.Hour), retryLater(0, 1)},
		"negative time in a literal":  {&redeliver.RetryAfterError{Err: errBoom, After: -time.Hour}, retryLater(0, 1)},
		"retry after without a time":  {wrap(redeliver.ErrRetryAfter), retryLater(10*time.Second, 1)},

		"permanent of a retry after":     {redeliver.Permanent(after), deadLettered(redeliver.ReasonPermanent, 1)},
		"retry after of a permanent":     {redeliver.RetryAfter(permanent, time.Minute), deadLettered(redeliver.ReasonPermanent, 1)},
		"retry after joined a permanent": {errors.Join(after, permanent), deadLettered(redeliver.ReasonPermanent, 1)},
		"permanent of a postpone":        {redeliver.Permanent(redeliver.Postpone(errBoom)), deadLettered(redeliver.ReasonPermanent, 1)},
		"postpone of a permanent":        {redeliver.Postpone(permanent), deadLettered(redeliver.ReasonPermanent, 1)},
		"postpone joined a retry after":  {errors.Join(after, redeliver.Postpone(errBoom)), postponed(10*time.Second, 0)},

		"postpone":                          {redeliver.Postpone(errBoom), postponed(10*time.Second, 0)},
		"postpone, wrapped twice":           {wrap(redeliver.Postpone(errBoom)), postponed(10*time.Second, 0)},
		"breaker open":                      {errBreakerOpen, postponed(10*time.Second, 0)},
		"breaker open, wrapped twice":       {wrap(errBreakerOpen), postponed(10*time.Second, 0)},
		"breaker open, joined":              {errors.Join(errBoom, wrap(errBreakerOpen)), postponed(10*time.Second, 0)},
		"too many requests":                 {wrap(errors.New("too many requests")), retryLater(10*time.Second, 1)},
		"a breaker's text and more":         {errors.New("charge: circuit breaker is open"), retryLater(10*time.Second, 1)},
		"a breaker's text in another type":  {wrap(texted("circuit breaker is open")), retryLater(10*time.Second, 1)},
		"breaker open, handler gave a time": {redeliver.RetryAfter(errBreakerOpen, time.Minute), retryLater(time.Minute, 1)},
		"breaker open, permanent":           {redeliver.Permanent(errBreakerOpen), deadLettered(redeliver.ReasonPermanent, 1)},

		"pause":                    {redeliver.Pause(errBoom, time.Minute), postponed(time.Minute, 0)},
		"pause, wrapped twice":     {wrap(redeliver.Pause(errBoom, time.Minute)), postponed(time.Minute, 0)},
		"a pause that is too long": {redeliver.Pause(errBoom, 1000*time.Hour), postponed(redeliver.MaxPause, 0)},
		"pause for no time":        {redeliver.Pause(errBoom, -1), postponed(10*time.Second, 0)},
		"permanent of a pause":     {redeliver.Permanent(redeliver.Pause(errBoom, time.Minute)), deadLettered(redeliver.ReasonPermanent, 1)},

		"invalid":                 {wrap(&redeliver.InvalidError{Err: errBoom}), deadLettered(redeliver.ReasonInvalidated, 0)},
		"crashed":                 {wrap(&redeliver.CrashedError{Crashes: 3}), deadLettered(redeliver.ReasonCrashed, 0)},
		"invalid and permanent":   {&redeliver.InvalidError{Err: permanent}, deadLettered(redeliver.ReasonInvalidated, 0)},
		"invalid and postponed":   {errors.Join(errBreakerOpen, redeliver.ErrInvalid), deadLettered(redeliver.ReasonInvalidated, 0)},
		"undecodable":             {wrap(&redeliver.UndecodableError{Err: errBoom}), deadLettered(redeliver.ReasonUndecodable, 0)},
		"undecodable, a time too": {redeliver.RetryAfter(redeliver.ErrUndecodable, time.Minute), deadLettered(redeliver.ReasonUndecodable, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			got := redeliver.Policy{Backoff: tenSeconds{}}.Decide(redeliver.State{}, row.err, now)
			check(t, got, row.want)
			if pauses := errors.Is(row.err, redeliver.ErrPaused) && row.want.action == redeliver.ActionPostpone; pauses != (got.Pause > 0) {
				t.Errorf("a pause of %s", got.Pause)
			}
		})
	}
}

// Classify counts after the handler's answer and before everything else.
func TestClassifyDecidesAfterTheHandlersAnswer(t *testing.T) {
	const attempt3 = 2 // attempts before the third failure
	kind := func(k redeliver.Kind) redeliver.Class { return redeliver.Class{Kind: k} }
	for name, row := range map[string]struct {
		class    redeliver.Class
		err      error
		attempts int
		want     want
	}{
		"says nothing":               {redeliver.Class{}, errBoom, 0, retryLater(10*time.Second, 1)},
		"permanent":                  {kind(redeliver.KindPermanent), errBoom, 0, deadLettered(redeliver.ReasonPermanent, 1)},
		"postpone":                   {kind(redeliver.KindPostpone), errBoom, 0, postponed(10*time.Second, 0)},
		"an unknown kind is a retry": {kind(200), errBoom, 0, retryLater(10*time.Second, 1)},
		"permanent, but the handler asks for a wait":      {kind(redeliver.KindPermanent), redeliver.RetryAfter(errBoom, time.Minute), 0, retryLater(time.Minute, 1)},
		"permanent, but the handler postpones":            {kind(redeliver.KindPermanent), redeliver.Postpone(errBoom), 0, postponed(10*time.Second, 0)},
		"postpone, but the handler says permanent":        {kind(redeliver.KindPostpone), redeliver.Permanent(errBoom), 0, deadLettered(redeliver.ReasonPermanent, 1)},
		"postpone, but the handler asks for a wait":       {kind(redeliver.KindPostpone), redeliver.RetryAfter(errBoom, time.Minute), 0, retryLater(time.Minute, 1)},
		"permanent takes precedence over an open breaker": {kind(redeliver.KindPermanent), errBreakerOpen, 0, deadLettered(redeliver.ReasonPermanent, 1)},
		"an invalid message is not classified":            {kind(redeliver.KindPostpone), redeliver.ErrInvalid, 0, deadLettered(redeliver.ReasonInvalidated, 0)},

		"own backoff":                         {redeliver.Class{Backoff: redeliver.Fixed(time.Hour)}, errBoom, 0, retryLater(time.Hour, 1)},
		"own backoff for a postpone":          {redeliver.Class{Kind: redeliver.KindPostpone, Backoff: redeliver.Fixed(time.Hour)}, errBoom, 0, postponed(time.Hour, 0)},
		"own backoff has ended":               {redeliver.Class{Backoff: noDelays{}}, errBoom, 0, deadLettered(redeliver.ReasonExhausted, 1)},
		"own backoff, handler gave a time":    {redeliver.Class{Backoff: noDelays{}}, redeliver.RetryAfter(errBoom, time.Minute), 0, retryLater(time.Minute, 1)},
		"own backoff keeps policy's retries":  {redeliver.Class{Backoff: redeliver.RocketMQ()}, errBoom, 3, deadLettered(redeliver.ReasonExhausted, 4)},
		"no retries":                          {redeliver.Class{MaxRetries: redeliver.NoRetries}, errBoom, 0, deadLettered(redeliver.ReasonExhausted, 1)},
		"no retries, handler gave a time":     {redeliver.Class{MaxRetries: redeliver.NoRetries}, redeliver.RetryAfter(errBoom, 1), 0, deadLettered(redeliver.ReasonExhausted, 1)},
		"fewer retries, one left":             {redeliver.Class{MaxRetries: 3}, errBoom, attempt3, retryLater(30*time.Second, 3)},
		"fewer retries, none left":            {redeliver.Class{MaxRetries: 2}, errBoom, attempt3, deadLettered(redeliver.ReasonExhausted, 3)},
		"more retries than the policy":        {redeliver.Class{MaxRetries: 9}, errBoom, 8, retryLater(90*time.Second, 9)},
		"more retries than can be counted":    {redeliver.Class{MaxRetries: 1 << 60}, errBoom, limits.MaxAttempts, deadLettered(redeliver.ReasonExhausted, limits.MaxAttempts+1)},
		"no retries does not bound postponed": {redeliver.Class{Kind: redeliver.KindPostpone, MaxRetries: redeliver.NoRetries}, errBoom, 0, postponed(10*time.Second, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			var asked error
			p := redeliver.Policy{Backoff: tenSeconds{}, Classify: func(err error) redeliver.Class { asked = err; return row.class }}
			check(t, p.Decide(redeliver.State{Attempts: row.attempts}, row.err, now), row.want)
			if !errors.Is(row.err, redeliver.ErrInvalid) && !errors.Is(asked, row.err) {
				t.Errorf("Classify got %v, want the handler's own error", asked)
			}
		})
	}
}

func TestActionsHaveNames(t *testing.T) {
	for a, want := range map[redeliver.Action]string{
		redeliver.ActionCommit: "commit", redeliver.ActionRetryNow: "retry now", redeliver.ActionRetryLater: "retry later",
		redeliver.ActionPostpone: "postpone", redeliver.ActionDeadLetter: "dead-letter",
		redeliver.ActionDeadLetter + 1: "action 5", 77: "action 77",
	} {
		if got := a.String(); got != want {
			t.Errorf("Action(%d) is %q, want %q", a, got, want)
		}
	}
}
