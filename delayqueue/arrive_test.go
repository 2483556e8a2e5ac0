package delayqueue_test

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
	"github.com/redeliver/redeliver/driver"
)

const (
	slack = 100 * ms
	mine  = "mine"

	atOnce = time.Duration(-1) // it hops at once
)

var arrivedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// waits returns an arrival on a level at the time when it was written.
func waits(l delayqueue.Ladder, level time.Duration) *delayqueue.Arrival {
	return &delayqueue.Arrival{
		Group: "billing", Origin: "orders", Ladder: l, Level: level, Written: arrivedAt, Now: arrivedAt,
	}
}

// failed returns the headers of a message that failed once and is due after d.
func failed(policy string, d time.Duration) []driver.Header {
	st := redeliver.State{
		ID: "id", Group: "billing", Origin: "orders", Attempts: 1, Due: arrivedAt.Add(d), FirstFailed: arrivedAt, LastFailed: arrivedAt,
		Source: redeliver.Source{Known: true, Offset: 7}, Policy: policy,
	}
	return driver.AppendStateHeaders(st, nil)
}

// planned returns the headers of a delayed publish that is due after d.
func planned(d time.Duration) []driver.Header {
	st := redeliver.State{ID: "id", Group: "billing", Origin: "orders", Due: arrivedAt.Add(d), Policy: mine}
	return driver.AppendStateHeaders(st, nil)
}

// withHeader returns the headers with another value of one header; "" removes it.
func withHeader(hs []driver.Header, name, value string) []driver.Header {
	hs = slices.DeleteFunc(hs, func(h driver.Header) bool { return h.Name == name })
	if value == "" {
		return hs
	}
	return append(hs, driver.Header{Name: name, Value: value})
}

func TestArrive(t *testing.T) {
	short := delayqueue.Ladder{second, 5 * second, 30 * second}
	long := delayqueue.Ladder{2 * hour}
	jitter := func(a *delayqueue.Arrival, d time.Duration) *delayqueue.Arrival { a.Jitter = d; return a }
	written := func(a *delayqueue.Arrival, d time.Duration) *delayqueue.Arrival {
		a.Written = arrivedAt.Add(d)
		return a
	}
	leaves := func(a *delayqueue.Arrival, d time.Duration) *delayqueue.Arrival {
		a.Leaves = arrivedAt.Add(d)
		return a
	}
	unread := func(a *delayqueue.Arrival) *delayqueue.Arrival {
		a.Findings = []redeliver.Finding{{Header: "redeliver-error", Problem: "is no text"}}
		return a
	}
	after := func(a *delayqueue.Arrival) *delayqueue.Arrival {
		a.Level = 0 // it has waited, and is on the retry topic
		return a
	}
	noLevels := &delayqueue.Arrival{Group: "orders", Origin: "orders", Written: arrivedAt, Now: arrivedAt}
	due := func(d time.Duration) string { return arrivedAt.Add(d).Format(time.RFC3339Nano) }

	for name, c := range map[string]struct {
		at       *delayqueue.Arrival
		headers  []driver.Header
		due      time.Duration // after now
		until    time.Duration // if it is not due
		publish  bool
		attempts int
		findings []string // their headers
		id       string   // default "id"
	}{
		// Waiting as planned.
		"a planned wait":                    {at: waits(short, 5*second), headers: failed(mine, 5*second), due: 5 * second, attempts: 1},
		"a wait a moment below its level":   {at: waits(short, 5*second), headers: failed(mine, 5*second-slack), due: 5*second - slack, attempts: 1},
		"a rest below the smallest level":   {at: waits(short, 5*second), headers: failed(mine, 6*second-ms), due: 6*second - ms, attempts: 1},
		"a rest of the smallest level hops": {at: waits(short, 5*second), headers: failed(mine, 6*second), due: 6 * second, until: 5 * second, attempts: 1},
		"the same as jitter stays":          {at: jitter(waits(short, 5*second), second), headers: failed(mine, 6*second), due: 6 * second, attempts: 1},
		"more than jitter hops":             {at: jitter(waits(short, 5*second), second), headers: failed(mine, 6*second+ms), due: 6*second + ms, until: 5 * second, attempts: 1},
		"jitter of a whole level stays":     {at: jitter(waits(short, 5*second), 10*second), headers: failed(mine, 15*second), due: 15 * second, attempts: 1},
		"written by a clock that is ahead": {
			at: written(waits(delayqueue.Ladder{minute, 10 * minute}, minute), 2*second), headers: failed(mine, 10*minute+second),
			due: 10*minute + second, until: minute, attempts: 1,
		},
		"read late":                                       {at: written(waits(short, 5*second), -3*second), headers: failed(mine, 2*second), due: 2 * second, attempts: 1},
		"read after it was due":                           {at: written(waits(short, 5*second), -9*second), headers: failed(mine, -4*second), due: -4 * second, attempts: 1},
		"read when it should have hopped":                 {at: written(waits(short, 5*second), -8*second), headers: failed(mine, 4*second), due: 4 * second, until: -3 * second, attempts: 1},
		"its headers say when it hops":                    {at: leaves(waits(short, 5*second), 2*second), headers: failed(mine, 8*second), due: 8 * second, until: 2 * second, attempts: 1},
		"its headers say when it hops, with a short rest": {at: leaves(waits(short, 5*second), 2*second), headers: failed(mine, 3*second-ms), due: 3*second - ms, attempts: 1},
		"two hours":                                       {at: waits(long, 2*hour), headers: failed(mine, 2*hour), due: 2 * hour, attempts: 1},
		"two hours and less than two":                     {at: waits(long, 2*hour), headers: failed(mine, 4*hour-ms), due: 4*hour - ms, attempts: 1},
		"five hours by two":                               {at: waits(long, 2*hour), headers: failed(mine, 5*hour), due: 5 * hour, until: 2 * hour, attempts: 1},
		"a year on the longest level":                     {at: waits(short, 30*second), headers: failed(mine, redeliver.MaxWait), due: redeliver.MaxWait, until: 30 * second, attempts: 1},
		"the retry topic":                                 {at: waits(short, 0), headers: failed(mine, second-ms), due: second - ms, attempts: 1},
		"the retry topic when it is due":                  {at: waits(short, 0), headers: failed(mine, 0), attempts: 1},
		"back from a level that was too short":            {at: after(waits(short, 5*second)), headers: failed(mine, 20*second), due: 20 * second, until: atOnce, attempts: 1},
		"no levels":                                       {at: noLevels, headers: withHeader(withHeader(failed(mine, 20*hour), redeliver.HeaderGroup, "orders"), redeliver.HeaderOrigin, "orders"), due: 20 * hour, attempts: 1},

		// Delayed publishes, and headers that only look like one.
		"a delayed publish":                                 {at: waits(short, 5*second), headers: planned(5 * second), due: 5 * second, publish: true},
		"a delayed publish hops":                            {at: waits(short, 5*second), headers: planned(20 * second), due: 20 * second, until: 5 * second, publish: true},
		"a delayed publish of the year 9999":                {at: waits(short, 5*second), headers: withHeader(planned(hour), redeliver.HeaderDue, "9999-12-31T23:59:59.999Z"), due: redeliver.MaxWait, until: 5 * second, publish: true, findings: []string{redeliver.HeaderDue}},
		"an incomplete delayed publish":                     {at: waits(short, 5*second), headers: withHeader(planned(5*second), redeliver.HeaderError, "\xff"), due: 5 * second, findings: []string{redeliver.HeaderError}},
		"a delayed publish with an unreadable header":       {at: unread(waits(short, 5*second)), headers: planned(5 * second), due: 5 * second, findings: []string{redeliver.HeaderError}},
		"no attempts, but a place":                          {at: waits(short, 5*second), headers: withHeader(withHeader(planned(5*second), redeliver.HeaderOriginPartition, "0"), redeliver.HeaderOriginOffset, "1"), due: 5 * second},
		"no attempts, but a replay":                         {at: waits(short, 5*second), headers: withHeader(planned(5*second), redeliver.HeaderReplays, "1"), due: 5 * second},
		"no attempts, but it was postponed":                 {at: waits(short, 5*second), headers: withHeader(planned(5*second), redeliver.HeaderPostponed, due(0)), due: 5 * second},
		"no attempts, but it failed":                        {at: waits(short, 5*second), headers: withHeader(planned(5*second), redeliver.HeaderFirstFailed, due(0)), due: 5 * second},
		"invalid attempts are not a delayed publish":        {at: waits(short, 5*second), headers: withHeader(planned(5*second), redeliver.HeaderAttempt, "-0x1"), due: 5 * second, attempts: 1, findings: []string{redeliver.HeaderAttempt}},
		"a block of another group is not a delayed publish": {at: waits(short, 5*second), headers: withHeader(planned(5*second), redeliver.HeaderGroup, "mail"), due: 5 * second, findings: []string{redeliver.HeaderGroup}, id: "own"},
		"a missing block is not a delayed publish":          {at: waits(short, 5*second), due: 5 * second, findings: []string{redeliver.HeaderAttempt}, id: "own"},
		"a delayed publish of another policy":               {at: waits(short, 5*second), headers: withHeader(planned(hour), redeliver.HeaderPolicy, "theirs"), due: hour, until: 5 * second, publish: true},
		"another origin is not trusted":                     {at: waits(short, 5*second), headers: withHeader(failed(mine, 5*second), redeliver.HeaderOrigin, "secrets"), due: 5 * second, attempts: 1},

		// Without a plausible due time the message waits for its level.
		"no block on the retry topic":    {at: waits(short, 0), findings: []string{redeliver.HeaderAttempt}, id: "own"},
		"no id":                          {at: waits(short, 5*second), headers: withHeader(failed(mine, 5*second), redeliver.HeaderID, ""), due: 5 * second, attempts: 1, id: "own"},
		"no due time":                    {at: waits(short, 5*second), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, ""), due: 5 * second, attempts: 1},
		"a due time that is not a time":  {at: waits(short, 5*second), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "soon"), due: 5 * second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"the same, to leave early":       {at: leaves(waits(short, 5*second), second), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "soon"), due: 5 * second, until: second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"the same, read late":            {at: written(waits(short, 5*second), -2*second), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "soon"), due: 3 * second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"the same, written in ten years": {at: written(waits(short, 5*second), 10*redeliver.MaxWait), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "soon"), due: 5 * second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"the same, with an hour left":    {at: written(waits(long, 2*hour), -hour), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "soon"), due: hour, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"due in the year 9999":           {at: waits(short, 5*second), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "9999-12-31T23:59:59.999Z"), due: redeliver.MaxWait, until: 5 * second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"the same on the longest level":  {at: waits(short, 30*second), headers: withHeader(failed(mine, 0), redeliver.HeaderDue, "9999-12-31T23:59:59.999Z"), due: redeliver.MaxWait, until: 30 * second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"the same without levels":        {at: noLevels, headers: []driver.Header{{Name: redeliver.HeaderAttempt, Value: "1"}, {Name: redeliver.HeaderDue, Value: "9999-12-31T23:59:59.999Z"}}, due: redeliver.MaxWait, attempts: 1, findings: []string{redeliver.HeaderDue}, id: "own"},
		"a due time in the distant past": {at: waits(short, 5*second), headers: failed(mine, -10*hour), due: -10 * hour, attempts: 1},

		// A due time counts wherever the message was.
		"later than the next level":              {at: waits(short, 5*second), headers: failed(mine, 31*second), due: 31 * second, until: 5 * second, attempts: 1},
		"as late as possible":                    {at: waits(short, 5*second), headers: failed(mine, redeliver.MaxWait), due: redeliver.MaxWait, until: 5 * second, attempts: 1},
		"later than possible":                    {at: waits(short, 5*second), headers: failed(mine, redeliver.MaxWait+ms), due: redeliver.MaxWait, until: 5 * second, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"a day on the retry topic":               {at: waits(short, 0), headers: failed(mine, 24*hour), due: 24 * hour, until: atOnce, attempts: 1},
		"a year on the retry topic":              {at: waits(short, 0), headers: failed(mine, redeliver.MaxWait+ms), due: redeliver.MaxWait, until: atOnce, attempts: 1, findings: []string{redeliver.HeaderDue}},
		"back from a level, with more than that": {at: after(waits(short, 5*second)), headers: failed(mine, hour), due: hour, until: atOnce, attempts: 1},
		"a level of an older policy":             {at: waits(short, 10*second), headers: failed("theirs", 10*second), due: 10 * second, attempts: 1},
		"written long ago":                       {at: written(waits(short, 5*second), -hour), headers: failed(mine, 5*second), due: 5 * second, until: -hour + 5*second, attempts: 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := delayqueue.Arrive(c.at, c.headers, func() string { return "own" })
			st := got.State
			if d := st.Due.Sub(arrivedAt); d != c.due {
				t.Errorf("due after %s, want %s", d, c.due)
			}
			until, hops := c.until, c.until != 0
			if !hops {
				until = c.due
			}
			if until == atOnce {
				until = 0
			}
			if d := got.Until.Sub(arrivedAt); d != until || got.Hops != hops {
				t.Errorf("it stays for %s and hops %v, want %s and %v", d, got.Hops, until, hops)
			}
			if got.Publish != c.publish || st.Attempts != c.attempts {
				t.Errorf("published %v after %d attempts, want %v and %d", got.Publish, st.Attempts, c.publish, c.attempts)
			}
			if want := cmp.Or(c.id, "id"); st.ID != want || st.Group != c.at.Group || st.Origin != c.at.Origin {
				t.Errorf("it is %s of %s in %s, want %s of %s in %s", st.ID, st.Origin, st.Group, want, c.at.Origin, c.at.Group)
			}
			var found []string
			for _, f := range got.Findings {
				found = append(found, f.Header)
			}
			if !slices.Equal(found, c.findings) {
				t.Errorf("findings %v, want some of %v", got.Findings, c.findings)
			}
		})
	}
}

// With any headers, a message waits no longer than the maximum wait, and on a level it does not run at once.
func TestEveryArrivalIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := ladders(t)
		a := waits(l, rapid.SampledFrom(append(delayqueue.Ladder{0}, l...)).Draw(t, "level"))
		a.Written = arrivedAt.Add(time.Duration(rapid.Int64Range(-int64(hour), int64(hour)).Draw(t, "written")))
		var headers []driver.Header
		for _, name := range driver.HeaderNames() {
			if rapid.Bool().Draw(t, name) {
				value := rapid.SampledFrom([]string{"", "0", "1", "-1", "billing", mine, "\xff", "9999-12-31T23:59:59.999Z", "2026-03-01T12:00:07Z", "2026-03-02T12:00:00Z", strings.Repeat("9", 2000)}).Draw(t, "value")
				headers = append(headers, driver.Header{Name: name, Value: value})
			}
		}
		got := delayqueue.Arrive(a, headers, func() string { return "own" })
		written := a.Written
		if written.After(a.Now) {
			written = a.Now
		}
		if latest := a.Now.Add(redeliver.MaxWait); got.State.Due.After(latest) || got.Until.After(latest) {
			t.Fatalf("it stays until %s and is due at %s, want at most %s", got.Until, got.State.Due, latest)
		}
		if got.Until.After(got.State.Due) || got.Hops != got.Until.Before(got.State.Due) {
			t.Fatalf("it stays until %s, is due at %s and hops %v", got.Until, got.State.Due, got.Hops)
		}
		if got.State.ID == "" || got.State.Group != "billing" || got.State.Origin != "orders" || got.State.Due.IsZero() {
			t.Fatalf("its state is %+v", got.State)
		}
		if slices.ContainsFunc(headers, func(h driver.Header) bool { return h.Name == redeliver.HeaderDue }) {
			return
		}
		if end := written.Add(a.Level); a.Level > 0 && got.State.Due.Before(end) {
			t.Fatalf("due at %s without a due time, before its level of %s is over at %s", got.State.Due, a.Level, end)
		}
		if a.Level == 0 && (got.State.Due.After(written) || got.State.Due.Before(written.Truncate(ms))) {
			t.Fatalf("due at %s without a due time, written at %s, on no level", got.State.Due, written)
		}
	})
}

// A writer's clock is ahead of the reader's by less than a second, or the write came some time after the choice of a
// level. The message waits until it is due by its writer's clock.
func TestAClockThatIsBehindMakesNoRetryEarly(t *testing.T) {
	l := delayqueue.NewLadder(redeliver.Policy{}.WithDefaults())
	for _, row := range []struct{ left, behind, level time.Duration }{
		{59 * second, 1500 * ms, 15 * second},
		{59*second + 500*ms, 700 * ms, 15 * second},
		{9*minute + 58*second, 2 * second, minute},
		{9*minute + 59*second + 500*ms, 700 * ms, minute},
		{hour - ms, minute, 10 * minute},
	} {
		due := row.left + row.behind // by the reader's clock
		got := delayqueue.Arrive(waits(l, row.level), failed(mine, due), func() string { return "own" })
		if d := got.State.Due.Sub(arrivedAt); d != due || len(got.Findings) > 0 {
			t.Errorf("%s left on level %s, read by a clock that is %s behind: due after %s, want %s; findings %+v", row.left, row.level, row.behind, d, due, got.Findings)
		}
	}
}
