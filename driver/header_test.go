package driver_test

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

var now = time.Date(2026, 3, 14, 15, 9, 26, 535_897_932, time.UTC)

var allReasons = []redeliver.Reason{
	"", redeliver.ReasonExhausted, redeliver.ReasonPermanent, redeliver.ReasonExpired, redeliver.ReasonUndecodable, redeliver.ReasonTimeout,
	redeliver.ReasonPanic, redeliver.ReasonCrashed, redeliver.ReasonInvalidated, redeliver.ReasonRejected, redeliver.ReasonUnschedulable,
}

func names(headers []driver.Header) (names []string) {
	for _, h := range headers {
		names = append(names, h.Name)
	}
	return names
}

func size(headers []driver.Header) (n int) {
	for _, h := range headers {
		n += len(h.Name) + len(h.Value)
	}
	return n
}

// full has every field set. A new field that is not in a header shows up here.
func full() redeliver.State {
	return redeliver.State{
		ID: "orders/3/41", Group: "billing", Origin: "orders", Attempts: 2,
		Due: now.Truncate(time.Millisecond), FirstFailed: now.Add(-time.Hour).Truncate(time.Millisecond),
		LastFailed: now.Add(-time.Minute).Truncate(time.Millisecond), PostponedSince: now.Add(-time.Second).Truncate(time.Millisecond),
		Error: "charging: card declined", ErrorType: "*bank.Error", FirstError: "bank is down", Reason: redeliver.ReasonExhausted,
		Source: redeliver.Source{Known: true, Partition: 3, Offset: 41, Timestamp: now.Add(-2 * time.Hour).Truncate(time.Millisecond)},
		Policy: "00c0ffee00c0ffee", Replays: 1, Replayed: now.Add(-90 * time.Minute).Truncate(time.Millisecond), Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Truncated: "7 sha256:239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5",
	}
}

// Other programs rely on names, order and spelling: change nothing here.
func TestHeadersOnTheWire(t *testing.T) {
	user := driver.Header{Name: "tenant", Value: "a"}
	got := driver.AppendStateHeaders(full(), []driver.Header{user})
	want := []driver.Header{
		user,
		{Name: "redeliver-attempt", Value: "2"},
		{Name: "redeliver-due", Value: "2026-03-14T15:09:26.535Z"},
		{Name: "redeliver-group", Value: "billing"},
		{Name: "redeliver-origin", Value: "orders"},
		{Name: "redeliver-id", Value: "orders/3/41"},
		{Name: "redeliver-first-failed", Value: "2026-03-14T14:09:26.535Z"},
		{Name: "redeliver-last-failed", Value: "2026-03-14T15:08:26.535Z"},
		{Name: "redeliver-postponed", Value: "2026-03-14T15:09:25.535Z"},
		{Name: "redeliver-error", Value: "charging: card declined"},
		{Name: "redeliver-error-type", Value: "*bank.Error"},
		{Name: "redeliver-first-error", Value: "bank is down"},
		{Name: "redeliver-reason", Value: "exhausted"},
		{Name: "redeliver-origin-partition", Value: "3"},
		{Name: "redeliver-origin-offset", Value: "41"},
		{Name: "redeliver-origin-timestamp", Value: "2026-03-14T13:09:26.535Z"},
		{Name: "redeliver-policy", Value: "00c0ffee00c0ffee"},
		{Name: "redeliver-replays", Value: "1"},
		{Name: "redeliver-replayed", Value: "2026-03-14T13:39:26.535Z"},
		{Name: "redeliver-trace", Value: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{Name: "redeliver-truncated", Value: "7 sha256:239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("headers\n got %q\nwant %q", got, want)
	}
	v := reflect.ValueOf(full())
	for i := range v.NumField() {
		if v.Field(i).IsZero() && !slices.Contains([]string{"Expires", "DeadLetter"}, v.Type().Field(i).Name) { // the adapter sets them
			t.Errorf("full() leaves State.%s zero: no tested header has it", v.Type().Field(i).Name)
		}
	}
}

// waiting returns the headers with which a message waits.
func waiting(s redeliver.State) (headers []driver.Header) {
	attempt, due, state, _ := driver.AppendWaiting(&s, []byte("kept"))
	headers = append(headers, driver.Header{Name: redeliver.HeaderAttempt, Value: string(attempt)})
	if len(due) > 0 {
		headers = append(headers, driver.Header{Name: redeliver.HeaderDue, Value: string(due)})
	}
	return append(headers, driver.Header{Name: redeliver.HeaderState, Value: string(state)})
}

// Messages that wait during an upgrade have this form: later versions must read it.
func TestHeadersOfAWaitingMessage(t *testing.T) {
	got := waiting(full())
	want := []driver.Header{
		{Name: "redeliver-attempt", Value: "2"},
		{Name: "redeliver-due", Value: "2026-03-14T15:09:26.535Z"},
		{Name: "redeliver-state", Value: "g0007billing" + "o0006orders" + "i0011orders/3/41" +
			"f00242026-03-14T14:09:26.535Z" + "l00242026-03-14T15:08:26.535Z" + "p00242026-03-14T15:09:25.535Z" +
			"e0023charging: card declined" + "y0011*bank.Error" + "E0012bank is down" + "r0009exhausted" + "n00013" + "k000241" +
			"t00242026-03-14T13:09:26.535Z" + "s001600c0ffee00c0ffee" + "q00011" + "w00242026-03-14T13:39:26.535Z" +
			"T005500-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" +
			"X00737 sha256:239f59ed55e737c77147cf55ad0c1b030b6d7ee748a7426952f9b852d5a935e5"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("headers\n got %q\nwant %q", got, want)
	}
	st, findings := driver.ParseHeaders("billing", got)
	if want := full(); !reflect.DeepEqual(st, want) || len(findings) > 0 {
		t.Errorf("findings %v\n got %+v\nwant %+v", findings, st, want)
	}
	if got := waiting(redeliver.State{}); len(got) != 2 || got[0].Value != "0" || got[1].Value != "" {
		t.Errorf("an empty state waits with the headers %q", got)
	}
}

// A value of redeliver-state that is cut or forged is a finding. Its readable fields are read.
func TestACutStateIsAFinding(t *testing.T) {
	whole := waiting(full())
	for n := range len(whole[2].Value) {
		cut := slices.Clone(whole)
		cut[2].Value = cut[2].Value[:n]
		st, findings := driver.ParseHeaders("billing", cut)
		if st.Attempts != 2 || !st.Due.Equal(full().Due) || len(findings) > 1 {
			t.Fatalf("cut after %d bytes: %+v, findings %v", n, st, findings)
		}
		complete := strings.HasPrefix(whole[2].Value, cut[2].Value) && len(findings) == 0
		if st.ID != "" && st.ID != full().ID || complete && n > 0 && st.Group != "billing" {
			t.Fatalf("cut after %d bytes: %+v, findings %v", n, st, findings)
		}
	}
	for name, value := range map[string]string{
		"another form": "{}", "a length in words": "gfour", "a negative length": "g-001x", "a length with a sign": "g+001x",
		"beyond the end": "g9999billing", "more fields than there are": strings.Repeat("i0001x", 100_000),
	} {
		st, findings := driver.ParseHeaders("billing", []driver.Header{{Name: redeliver.HeaderAttempt, Value: "2"}, {Name: redeliver.HeaderState, Value: value}})
		if st.Attempts != 2 || len(findings) == 0 || findings[len(findings)-1].Header == "" {
			t.Errorf("%s: %+v, findings %v", name, st, findings)
		}
	}
	later := waiting(full())
	later[2].Value = "z0001x" + later[2].Value + "Z0002yz"
	if st, findings := driver.ParseHeaders("billing", later); !reflect.DeepEqual(st, full()) || len(findings) > 0 {
		t.Errorf("with fields of a later version: %+v, findings %v", st, findings)
	}
	other := waiting(redeliver.State{Group: "mail", ID: "id", Attempts: 1})
	if st, findings := driver.ParseHeaders("billing", other); st.ID != "" || st.Attempts != 0 || len(findings) != 1 {
		t.Errorf("the state of another group is believed: %+v, findings %v", st, findings)
	}
}

func TestAnEmptyStateHasOnlyTheAttemptHeader(t *testing.T) {
	for name, s := range map[string]redeliver.State{
		"zero":                      {},
		"negative counts":           {Attempts: -3, Replays: -1},
		"an invalid trace":          {Trace: strings.Repeat("a", 55)}, // a tracer is foreign code
		"a place that is not known": {Source: redeliver.Source{Partition: 3, Offset: 4}},
		"times that cannot be written": {
			Due: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC), FirstFailed: time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC),
			LastFailed: time.Time{}.Add(time.Microsecond), // in whole milliseconds it is the zero time
		},
	} {
		if got, want := driver.AppendStateHeaders(s, nil), []driver.Header{{Name: redeliver.HeaderAttempt, Value: "0"}}; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: headers %q, want %q", name, got, want)
		}
	}
}

// A due time is rounded up to the millisecond, never down.
func TestHeadersNeverSayDueEarly(t *testing.T) {
	due := now.In(time.FixedZone("there", -5*3600))
	s, found := driver.ParseHeaders("g", driver.AppendStateHeaders(redeliver.State{Due: due}, nil))
	if want := now.Truncate(time.Millisecond).Add(time.Millisecond); !s.Due.Equal(want) || len(found) > 0 {
		t.Errorf("due %s, findings %v; want %s", s.Due, found, want)
	}
}

// Times in the years of RFC 3339 are written. Others have no header.
func TestOnlyRFC3339TimesAreWritten(t *testing.T) {
	for text, written := range map[string]bool{
		"0001-01-01T00:00:00.001Z": true, "9999-12-31T23:59:59.999Z": true,
		"0001-01-01T00:00:00Z": false, // the zero time, which means no time
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		if got, found := driver.ParseHeaders("g", driver.AppendStateHeaders(redeliver.State{LastFailed: at}, nil)); !got.LastFailed.Equal(at) || len(found) > 0 {
			t.Errorf("%s is read as %s, %v", text, got.LastFailed, found)
		}
		has := slices.ContainsFunc(driver.AppendStateHeaders(redeliver.State{LastFailed: at}, nil), func(h driver.Header) bool { return h.Name == redeliver.HeaderLastFailed })
		if has != written {
			t.Errorf("%s has a header: %t", text, has)
		}
	}
}

func TestHeadersRoundTrip(t *testing.T) {
	text := func(_ string, most int) *rapid.Generator[string] {
		return rapid.StringN(0, -1, most).Filter(func(s string) bool { return strings.ToValidUTF8(s, "?") == s })
	}
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "set") {
			return time.UnixMilli(rapid.Int64Range(-60_000_000_000_000, 250_000_000_000_000).Draw(t, "ms")).UTC()
		}
		return time.Time{}
	})
	rapid.Check(t, func(t *rapid.T) {
		want := redeliver.State{
			ID: text("id", 512).Draw(t, "id"), Group: text("group", 512).Draw(t, "group"), Origin: text("origin", 512).Draw(t, "origin"),
			Attempts: rapid.IntRange(0, limits.MaxAttempts).Draw(t, "attempts"), Replays: rapid.IntRange(0, limits.MaxAttempts).Draw(t, "replays"),
			Due: instant.Draw(t, "due"), FirstFailed: instant.Draw(t, "first"), LastFailed: instant.Draw(t, "last"), PostponedSince: instant.Draw(t, "postponed"),
			Error: text("error", limits.MaxErrorText).Draw(t, "error"), ErrorType: text("type", 256).Draw(t, "type"),
			Reason: rapid.SampledFrom(allReasons).Draw(t, "reason"), Policy: rapid.StringMatching(`|[0-9a-f]{16}`).Draw(t, "policy"),
			Source: redeliver.Source{Timestamp: instant.Draw(t, "timestamp")},
		}
		if first := text("first error", limits.MaxErrorText).Draw(t, "first error"); first != want.Error {
			want.FirstError = first
		}
		if rapid.Bool().Draw(t, "traced") {
			want.Trace = rapid.StringMatching(`00-[0-9a-f]{31}1-[0-9a-f]{15}1-[0-9a-f]{2}`).Draw(t, "trace")
		}
		if rapid.Bool().Draw(t, "known") {
			want.Source.Known = true
			want.Source.Partition, want.Source.Offset = rapid.Int32Min(0).Draw(t, "partition"), rapid.Int64Min(0).Draw(t, "offset")
		}
		headers := driver.AppendStateHeaders(want, nil)
		if got := size(headers); got > limits.MaxHeaderBytes {
			t.Fatalf("the block has %d bytes", got)
		}
		if headers[0].Name != redeliver.HeaderAttempt {
			t.Fatalf("the block begins with %s", headers[0].Name)
		}
		for form, headers := range map[string][]driver.Header{"dead letter": headers, "waiting": waiting(want)} {
			got, findings := driver.ParseHeaders(want.Group, headers)
			if !reflect.DeepEqual(got, want) || len(findings) > 0 {
				t.Fatalf("%s: findings %v\n got %+v\nwant %+v", form, findings, got, want)
			}
		}
	})
}

// Older versions wrote a schedule after the fingerprint. Such a message is read without a finding, in both forms.
func TestAPolicyOfTheOlderFormIsReadAsItsFingerprint(t *testing.T) {
	const mark, older = "00c0ffee00c0ffee", "00c0ffee00c0ffee 1;3;1s,2s,4s,8s;j1s"
	for name, value := range map[string]string{"a schedule": older, "a long one": mark + " 1;100;" + strings.Repeat("1s,2s,", 40) + "1s", "nothing": mark + " "} {
		headers := []driver.Header{{Name: redeliver.HeaderAttempt, Value: "2"}, {Name: redeliver.HeaderPolicy, Value: value}}
		st, findings := driver.ParseHeaders("g", headers)
		if want := (redeliver.State{Group: "g", Attempts: 2, Policy: mark}); !reflect.DeepEqual(st, want) || len(findings) > 0 {
			t.Errorf("%s: %+v, findings %v", name, st, findings)
		}
	}
	packed := []driver.Header{{Name: redeliver.HeaderAttempt, Value: "2"}, {Name: redeliver.HeaderState, Value: "g0001gs0036" + older}}
	if st, findings := driver.ParseHeaders("g", packed); st.Policy != mark || len(findings) > 0 {
		t.Errorf("packed: %+v, findings %v", st, findings)
	}
}

// The first error has a header only if it is not the latest one.
func TestTheFirstErrorIsWrittenIfItDiffers(t *testing.T) {
	for _, row := range []struct{ first, last, read string }{
		{"", "declined", ""}, {"declined", "declined", ""}, {"timed out", "declined", "timed out"}, {"timed out", "", "timed out"},
	} {
		st := redeliver.State{Group: "g", Attempts: 2, Error: row.last, FirstError: row.first}
		for form, headers := range map[string][]driver.Header{"dead letter": driver.AppendStateHeaders(st, nil), "waiting": waiting(st)} {
			got, findings := driver.ParseHeaders("g", headers)
			if got.FirstError != row.read || got.Error != row.last || len(findings) > 0 {
				t.Errorf("%s: first %q and last %q are read as %q and %q; %v", form, row.first, row.last, got.FirstError, got.Error, findings)
			}
		}
		if has := slices.Contains(names(driver.AppendStateHeaders(st, nil)), redeliver.HeaderFirstError); has != (row.read != "") {
			t.Errorf("first %q and last %q: the header is there: %v", row.first, row.last, has)
		}
	}
}

// Older versions wrote 1024 bytes of an error. Such a message is read without a finding.
func TestAnErrorOfTheOlderLengthIsCut(t *testing.T) {
	headers := []driver.Header{{Name: redeliver.HeaderAttempt, Value: "2"}, {Name: redeliver.HeaderError, Value: strings.Repeat("é", 512)}}
	st, findings := driver.ParseHeaders("g", headers)
	if want := (redeliver.State{Group: "g", Attempts: 2, Error: strings.Repeat("é", 256)}); !reflect.DeepEqual(st, want) || len(findings) > 0 {
		t.Errorf("%+v, findings %v", st, findings)
	}
}

// The block stays below its bound for every state.
func TestHeadersAreBounded(t *testing.T) {
	for name, long := range map[string]string{
		"ascii": strings.Repeat("x", 1<<20), "multi-byte": "x" + strings.Repeat("語", 1<<18), "binary": strings.Repeat("\xff\x80", 1<<19), "nul": strings.Repeat("\x00", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			s := full()
			s.ID, s.Group, s.Origin, s.Error, s.FirstError, s.ErrorType, s.Policy, s.Reason = long, long, long, long, "f"+long, long, long, redeliver.Reason(long)
			s.Attempts, s.Replays, s.Source.Partition, s.Source.Offset = 1<<62, 1<<62, 1<<31-1, 1<<63-1
			headers := driver.AppendStateHeaders(s, nil)
			if got := size(headers); got > limits.MaxHeaderBytes {
				t.Errorf("the block has %d bytes, more than %d", got, limits.MaxHeaderBytes)
			}
			if got := names(headers); len(got) != 20 {
				t.Errorf("%d headers: %q", len(got), got)
			}
			got, findings := driver.ParseHeaders(long, headers)
			for _, f := range findings { // a reason of a megabyte is a mistake of the caller
				if f.Header != redeliver.HeaderReason {
					t.Errorf("a header that redeliver wrote is a finding: %s", f)
				}
			}
			if got.Group != long || got.Attempts != limits.MaxAttempts {
				t.Errorf("group of %d bytes, %d attempts", len(got.Group), got.Attempts)
			}
		})
	}
}

// A hundred thousand headers take bounded time and have bounded findings. A quadratic search for duplicates would take minutes.
func TestParseHeadersIsLinear(t *testing.T) {
	headers := []driver.Header{{Name: redeliver.HeaderAttempt, Value: "1"}}
	for i := range 300_000 {
		headers = append(headers,
			driver.Header{Name: redeliver.HeaderPrefix + strconv.Itoa(i), Value: "x"},
			driver.Header{Name: redeliver.HeaderID, Value: fmt.Sprint(i)})
	}
	s, findings := driver.ParseHeaders("g", headers)
	if s.ID != "0" || s.Attempts != 1 || len(findings) != 1 {
		t.Errorf("id %q, %d attempts, %d findings", s.ID, s.Attempts, len(findings))
	}
}

// Another version may write the headers in another order.
func TestHeadersAreReadInAnyOrder(t *testing.T) {
	at := time.Date(2026, 11, 21, 22, 0, 0, 0, time.UTC)
	st := redeliver.State{
		ID: "orders/3/41", Group: "billing", Origin: "orders", Attempts: 2, Due: at, FirstFailed: at, LastFailed: at, PostponedSince: at, Error: "no", ErrorType: "*bank.Error",
		Reason: redeliver.ReasonExhausted, Source: redeliver.Source{Known: true, Partition: 3, Offset: 41, Timestamp: at}, Policy: "p", Replays: 1,
	}
	headers := driver.AppendStateHeaders(st, nil)
	for from := range headers {
		turned := slices.Concat(headers[from:], headers[:from])
		for range 2 {
			if got, findings := driver.ParseHeaders("billing", turned); got != st || len(findings) > 0 {
				t.Fatalf("%v is read as %+v, %v", turned, got, findings)
			}
			slices.Reverse(turned)
		}
	}
}
