package redeliver_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// A decision changes only some fields of the state.
func TestDecideKeepsTheMessagesIdentity(t *testing.T) {
	before := redeliver.State{
		ID: "id", Group: "billing", Origin: "orders", Attempts: 1, Due: now.Add(-time.Minute),
		FirstFailed: now.Add(-time.Hour), LastFailed: now.Add(-time.Minute), Error: "old", ErrorType: "old",
		Source: redeliver.Source{Known: true, Partition: 3, Offset: 4, Timestamp: now.Add(-2 * time.Hour)}, Policy: "abc", Replays: 2,
	}
	got := redeliver.Policy{Backoff: tenSeconds{}}.Decide(before, fmt.Errorf("charging: %w", errBoom), now).State
	want := before
	want.Attempts, want.LastFailed, want.Due = 2, now, limits.CeilMilli(now.Add(20*time.Second))
	want.Error, want.ErrorType, want.FirstError = "charging: boom", "*errors.errorString", "old"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("state after the failure\n got %+v\nwant %+v", got, want)
	}
	if c := (redeliver.Policy{}).Decide(before, nil, now); c.Action != redeliver.ActionCommit || !reflect.DeepEqual(c.State, before) {
		t.Errorf("a success changed the state: %+v", c)
	}
}

// A dead letter tells the failure that began its retries beside the one that ended them. Only an attempt that counts is the first.
func TestDecideKeepsTheFirstError(t *testing.T) {
	const cut = "a wait of 1m0s is cut to 30s, the most with OrderBlocking; the failure was: "
	timeout, duplicate, down := errors.New("timed out"), errors.New("duplicate key"), redeliver.Postpone(errors.New("down"))
	minutes := redeliver.Policy{MaxRetries: 2, Backoff: redeliver.Fixed(time.Minute)}
	blocking := minutes
	blocking.Order = redeliver.OrderBlocking
	aged := minutes
	aged.MaxAge = time.Minute
	for name, row := range map[string]struct {
		policy      redeliver.Policy
		before      redeliver.State
		errs        []error
		first, last string
	}{
		"one failure":              {minutes, redeliver.State{}, []error{timeout}, "", "timed out"},
		"the same failure":         {minutes, redeliver.State{}, []error{timeout, timeout, timeout}, "", "timed out"},
		"another failure":          {minutes, redeliver.State{}, []error{timeout, duplicate}, "timed out", "duplicate key"},
		"many":                     {minutes, redeliver.State{}, []error{timeout, errBoom, duplicate}, "timed out", "duplicate key"},
		"the first one again":      {minutes, redeliver.State{}, []error{timeout, duplicate, timeout}, "", "timed out"},
		"then permanent":           {minutes, redeliver.State{}, []error{timeout, redeliver.Permanent(duplicate)}, "timed out", "duplicate key"},
		"then invalid":             {minutes, redeliver.State{}, []error{timeout, redeliver.ErrInvalid}, "timed out", redeliver.ErrInvalid.Error()},
		"then crashed":             {minutes, redeliver.State{}, []error{timeout, redeliver.ErrCrashed}, "timed out", redeliver.ErrCrashed.Error()},
		"invalid at once":          {minutes, redeliver.State{}, []error{redeliver.ErrInvalid}, "", redeliver.ErrInvalid.Error()},
		"postponed":                {minutes, redeliver.State{}, []error{down}, "", "down"},
		"postponed before":         {minutes, redeliver.State{}, []error{down, down, timeout}, "", "timed out"},
		"postponed after":          {minutes, redeliver.State{}, []error{timeout, down, duplicate}, "timed out", "duplicate key"},
		"postponed last":           {minutes, redeliver.State{}, []error{timeout, down}, "timed out", "down"},
		"a wait that is cut":       {blocking, redeliver.State{}, []error{timeout}, "timed out", cut + "timed out"},
		"cut waits":                {blocking, redeliver.State{}, []error{timeout, duplicate}, "timed out", cut + "duplicate key"},
		"cut waits, same failure":  {blocking, redeliver.State{}, []error{timeout, timeout, timeout}, "", "timed out"},
		"a state without texts":    {minutes, redeliver.State{Attempts: 1, FirstFailed: now}, []error{duplicate, errBoom}, "duplicate key", "boom"},
		"a state of an older form": {minutes, redeliver.State{Attempts: 1, FirstFailed: now, Error: "old"}, []error{duplicate}, "old", "duplicate key"},
		"a replay":                 {minutes, redeliver.State{Replays: 1, FirstFailed: now, Error: "old", FirstError: "older"}, []error{duplicate}, "older", "duplicate key"},
		"an expiry":                {aged, redeliver.State{}, []error{timeout}, "timed out", "a retry at 2026-03-14T15:10:26.536Z would pass MaxAge, 1m0s after its first failure, 2026-03-14T15:09:26.535Z; the failure was: timed out"},
	} {
		st := row.before
		for _, err := range row.errs {
			st = row.policy.Decide(st, err, now).State
		}
		if st.FirstError != row.first || st.Error != row.last {
			t.Errorf("%s: first %q and last %q, want %q and %q", name, st.FirstError, st.Error, row.first, row.last)
		}
	}

	failed := minutes.Decide(redeliver.State{}, timeout, now)
	minutes.RejectUnschedulable(&failed, duplicate)
	if st := failed.State; st.FirstError != "timed out" || st.Error != "duplicate key; the failure was: timed out" {
		t.Errorf("refused by the broker: first %q and last %q", st.FirstError, st.Error)
	}
	st := minutes.Decide(redeliver.State{}, timeout, now).State
	for _, err := range []error{timeout, duplicate} {
		want := ""
		if !errors.Is(err, timeout) {
			want = "timed out"
		}
		if got := minutes.Postpone(st, err, now).State; got.FirstError != want || got.Error != err.Error() {
			t.Errorf("an outage: first %q and last %q, want %q and %q", got.FirstError, got.Error, want, err)
		}
	}
}

// A dead letter has the time of its failure, even if it never ran.
func TestDecideDatesEveryDeadLetter(t *testing.T) {
	for _, err := range []error{redeliver.ErrInvalid, redeliver.ErrUndecodable, redeliver.Permanent(errBoom), redeliver.RetryAfter(errBoom, 1<<62)} {
		d := redeliver.Policy{}.Decide(redeliver.State{}, err, now.In(time.FixedZone("there", 3600)))
		if d.Action != redeliver.ActionDeadLetter || !d.State.FirstFailed.Equal(now) || !d.State.LastFailed.Equal(now) {
			t.Errorf("%v: %s, failed from %s to %s", err, d.Action, d.State.FirstFailed, d.State.LastFailed)
		}
		if d.State.LastFailed.Location() != time.UTC {
			t.Errorf("%v: failed at %s, want UTC", err, d.State.LastFailed)
		}
	}
}

// Equal (state, error, time) have equal decisions, the input does not change, no retry is early, and every message keeps its bounds.
func TestDecideIsPureAndBounded(t *testing.T) {
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		return now.Add(time.Duration(rapid.Int64Range(-int64(48*time.Hour), int64(time.Hour)).Draw(t, "offset")))
	})
	maybe := func(t *rapid.T, name string) time.Time {
		if rapid.Bool().Draw(t, name) {
			return instant.Draw(t, name)
		}
		return time.Time{}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := redeliver.Policy{
			MaxRetries: rapid.IntRange(-1, 20).Draw(t, "retries"),
			Immediate:  rapid.IntRange(0, 3).Draw(t, "immediate"),
			MaxAge:     time.Duration(rapid.Int64Range(0, int64(72*time.Hour)).Draw(t, "age")),
			Backoff: rapid.SampledFrom([]redeliver.Backoff{
				nil, redeliver.RocketMQ(), redeliver.Fixed(time.Millisecond), tenSeconds{}, noDelays{},
				redeliver.ExponentialBackoff{Base: 7 * time.Millisecond, Max: time.Hour},
			}).Draw(t, "backoff"),
		}
		s := redeliver.State{
			ID: rapid.String().Draw(t, "id"), Attempts: rapid.IntRange(-5, 30).Draw(t, "attempts"),
			FirstFailed: maybe(t, "first"), PostponedSince: maybe(t, "postponed"), Source: redeliver.Source{Timestamp: maybe(t, "created")},
		}
		err := rapid.SampledFrom([]error{
			errBoom, redeliver.Permanent(errBoom), redeliver.Postpone(errBoom), errBreakerOpen, redeliver.ErrInvalid,
			redeliver.RetryAfter(errBoom, 1), redeliver.RetryAfter(errBoom, 400*24*time.Hour), &redeliver.PanicError{}, &redeliver.TimeoutError{},
		}).Draw(t, "err")

		kept := s
		d, twin := p.Decide(s, err, now), p.Decide(s, err, now)
		if !reflect.DeepEqual(d, twin) {
			t.Fatalf("the decision about a duplicate differs:\n%+v\n%+v", d, twin)
		}
		if !reflect.DeepEqual(s, kept) {
			t.Fatalf("the caller's state was changed to %+v", s)
		}
		full := p.WithDefaults()
		switch d.Action {
		case redeliver.ActionRetryNow, redeliver.ActionRetryLater:
			if d.State.Attempts > max(0, full.MaxRetries) {
				t.Fatalf("attempt %d is planned, with %d retries", d.State.Attempt(), full.MaxRetries)
			}
		case redeliver.ActionPostpone:
			if d.State.Attempts != max(0, s.Attempts) || d.State.Due.After(d.State.PostponedSince.Add(24*time.Hour+time.Millisecond)) {
				t.Fatalf("postponed until %s with %d attempts, from %+v", d.State.Due, d.State.Attempts, s)
			}
		case redeliver.ActionDeadLetter:
			if d.State.Reason == "" || d.State.FirstFailed.IsZero() {
				t.Fatalf("a dead letter without a reason or a time: %+v", d.State)
			}
		default:
			t.Fatalf("an error ended in %s", d.Action)
		}
		if !d.State.Due.IsZero() {
			if d.State.Due.Before(now.Add(d.Delay)) {
				t.Fatalf("due %s is before %s", d.State.Due, now.Add(d.Delay))
			}
			created := d.State.Source.Timestamp
			if created.IsZero() {
				created = d.State.FirstFailed
			}
			if p.MaxAge > 0 && !created.IsZero() && d.State.Due.After(created.Add(p.MaxAge)) {
				t.Fatalf("due %s is past MaxAge, %s", d.State.Due, created.Add(p.MaxAge))
			}
		}
	})
}

// The jitter, and so the due time, depends on the id and the attempt.
func TestDecideDrawsJitterFromIDAndAttempt(t *testing.T) {
	delay := func(id string, attempts int) time.Duration {
		p := redeliver.Policy{MaxRetries: 9, Backoff: redeliver.ExponentialBackoff{Base: time.Second, Max: time.Second}}
		return p.Decide(redeliver.State{ID: id, Attempts: attempts}, errBoom, now).Delay
	}
	if a, b := delay("a", 0), delay("b", 0); a == b {
		t.Errorf("messages a and b both wait %s", a)
	}
	if first, second := delay("a", 0), delay("a", 1); first == second {
		t.Errorf("attempts 1 and 2 both wait %s", first)
	}
	if one, other := delay("a", 0), delay("a", 0); one != other {
		t.Error("copies of a message wait differently")
	}
}

type (
	hostile     struct{ say func() string }
	nilTyped    struct{ cause error }
	panickingIs struct{}
)

func (h hostile) Error() string                                   { return h.say() }
func (n *nilTyped) Error() string                                 { return n.cause.Error() }
func (n *nilTyped) Unwrap() error                                 { return n.cause }
func (panickingIs) Error() string                                 { return "has an Is that panics" }
func (panickingIs) Is(error) bool                                 { panic("Is") }
func panics() string                                              { panic("no text") }
func tenMegabytes() string                                        { return strings.Repeat("é", 5<<20) }
func panickingClassify(error) redeliver.Class                     { panic("Classify") }
func (panickingBackoff) Delay(int, float64) (time.Duration, bool) { panic("Delay") }

type panickingBackoff struct{}

// No error or function of a user may dead-letter the message, end the process or keep megabytes in memory.
func TestDecideAcceptsErrorsThatPanicOrAreLarge(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("x: %w", err) }
	for name, row := range map[string]struct {
		policy redeliver.Policy
		err    error
		want   want
		text   string // begins the text in the state
	}{
		"Error panics":              {redeliver.Policy{}, hostile{panics}, retryLater(10*time.Second, 1), "the error's text panicked: string"},
		"Error returns 10 MB":       {redeliver.Policy{}, hostile{tenMegabytes}, retryLater(10*time.Second, 1), "ééé"},
		"ErrorText panics":          {redeliver.Policy{ErrorText: func(error) string { return panics() }}, errBoom, retryLater(10*time.Second, 1), "the error's text panicked: string"},
		"ErrorText returns 10 MB":   {redeliver.Policy{ErrorText: func(error) string { return tenMegabytes() }}, errBoom, retryLater(10*time.Second, 1), "ééé"},
		"ErrorText is binary":       {redeliver.Policy{ErrorText: func(error) string { return "a\xff\xfe\x00b" }}, errBoom, retryLater(10*time.Second, 1), "a?\x00b"},
		"ErrorText leaks":           {redeliver.Policy{ErrorText: func(error) string { return "amqp://u:secret@h/" }}, errBoom, retryLater(10*time.Second, 1), "amqp://***@h/"},
		"nil pointer as an error":   {redeliver.Policy{}, (*nilTyped)(nil), retryLater(10*time.Second, 1), "the error's text panicked: "},
		"nil pointer, joined":       {redeliver.Policy{}, errors.Join(errBoom, (*nilTyped)(nil)), retryLater(10*time.Second, 1), "the error's text panicked: "},
		"nil RetryAfterError":       {redeliver.Policy{}, (*redeliver.RetryAfterError)(nil), retryLater(10*time.Second, 1), "retry after a given time"},
		"empty RetryAfterError":     {redeliver.Policy{}, &redeliver.RetryAfterError{}, retryLater(0, 1), "retry after a given time"},
		"nil InvalidError, wrapped": {redeliver.Policy{}, wrapped((*redeliver.InvalidError)(nil)), deadLettered(redeliver.ReasonInvalidated, 0), "x: message must no longer run"},
		"nil UndecodableError":      {redeliver.Policy{}, (*redeliver.UndecodableError)(nil), deadLettered(redeliver.ReasonUndecodable, 0), "undecodable message"},
		"nil PanicError":            {redeliver.Policy{}, (*redeliver.PanicError)(nil), retryLater(10*time.Second, 1), "handler panicked"},
		"nil TimeoutError":          {redeliver.Policy{}, (*redeliver.TimeoutError)(nil), retryLater(10*time.Second, 1), "handler timed out"},
		"nil UnschedulableError":    {redeliver.Policy{}, (*redeliver.UnschedulableError)(nil), retryLater(10*time.Second, 1), "delay cannot be scheduled"},
		"Is panics":                 {redeliver.Policy{}, panickingIs{}, retryLater(10*time.Second, 1), "has an Is that panics"},
		"Classify panics":           {redeliver.Policy{Classify: panickingClassify}, errBoom, retryLater(10*time.Second, 1), "Policy.Classify panicked: Classify; boom"},
		"Backoff panics":            {redeliver.Policy{Backoff: panickingBackoff{}}, errBoom, retryLater(time.Minute, 1), "Policy.Backoff panicked: Delay; boom"},
		"Backoff panics, postponed": {redeliver.Policy{Backoff: panickingBackoff{}}, redeliver.Postpone(errBoom), postponed(time.Minute, 0), "Policy.Backoff panicked: Delay; boom"},
		"FromBackOff of nothing":    {redeliver.Policy{Backoff: redeliver.FromBackOff(nil)}, errBoom, retryLater(time.Minute, 1), "Policy.Backoff panicked: "},
	} {
		t.Run(name, func(t *testing.T) {
			if row.policy.Backoff == nil {
				row.policy.Backoff = tenSeconds{}
			}
			d := row.policy.Decide(redeliver.State{}, row.err, now)
			check(t, d, row.want)
			if !strings.HasPrefix(d.State.Error, row.text) || len(d.State.Error) > limits.MaxErrorText {
				t.Errorf("error text of %d bytes is %.80q, want %q", len(d.State.Error), d.State.Error, row.text)
			}
		})
	}
}
