package driver_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// An invalid header is a finding, and the field gets a value with which the message neither goes to the DLQ early nor
// runs forever. Each row is one invalid header after a valid block of the group "g".
func TestAnInvalidHeaderIsAFinding(t *testing.T) {
	type state = redeliver.State
	some := state{ID: "id", Group: "g", Origin: "o", Attempts: 2}
	with := func(change func(*state)) state { s := some; change(&s); return s }
	long := strings.Repeat("x", 5000)
	h := func(name, value string) []driver.Header { return []driver.Header{{Name: name, Value: value}} }
	attempts := func(n int) state { return state{Group: "g", Attempts: n} }
	for name, row := range map[string]struct {
		block   []driver.Header // nil: the good block
		headers []driver.Header
		want    state
		problem string // in the finding; "" for none
	}{
		"nothing wrong":          {nil, nil, some, ""},
		"the user's own headers": {nil, h("x-redeliver-attempt", "-1"), some, ""},
		"an unknown field":       {nil, h("redeliver-amqp-cc", "\xff"), some, ""},
		"another case":           {nil, h("Redeliver-Attempt", "99"), some, ""},
		"no headers":             {h("tenant", "a"), nil, state{Group: "g"}, ""},

		"negative attempts":        {h(redeliver.HeaderAttempt, "-1"), nil, attempts(1), "is not a whole number from 0 to 1000000; 1 is taken"},
		"most attempts":            {h(redeliver.HeaderAttempt, "1000000"), nil, attempts(1_000_000), ""},
		"too many attempts":        {h(redeliver.HeaderAttempt, "1000001"), nil, attempts(1), "1 is taken"},
		"overflowing attempts":     {h(redeliver.HeaderAttempt, "99999999999999999999"), nil, attempts(1), "1 is taken"},
		"attempts in words":        {h(redeliver.HeaderAttempt, "two"), nil, attempts(1), "1 is taken"},
		"attempts with a point":    {h(redeliver.HeaderAttempt, "2.0"), nil, attempts(1), "1 is taken"},
		"attempts in hex":          {h(redeliver.HeaderAttempt, "0x2"), nil, attempts(1), "1 is taken"},
		"no attempts":              {h(redeliver.HeaderAttempt, ""), nil, attempts(1), "1 is taken"},
		"blank attempts":           {h(redeliver.HeaderAttempt, " 2"), nil, attempts(1), "1 is taken"},
		"binary attempts":          {h(redeliver.HeaderAttempt, "\x00\x02\xff"), nil, attempts(1), "1 is taken"},
		"attempts are there twice": {nil, h(redeliver.HeaderAttempt, "999999"), some, "is there twice; the first is taken"},
		"id is there twice":        {nil, h(redeliver.HeaderID, "other"), some, "is there twice"},
		"group is there twice":     {nil, h(redeliver.HeaderGroup, "g"), some, "is there twice"},
		"negative replays":         {nil, h(redeliver.HeaderReplays, "-1"), some, "0 is taken"},
		"too many replays":         {nil, h(redeliver.HeaderReplays, "1000001"), some, "0 is taken"},

		"foreign group":                 {nil, h(redeliver.HeaderGroup, "other"), state{}, "written for another group"},
		"empty group":                   {nil, h(redeliver.HeaderGroup, ""), state{}, "written for another group"},
		"binary group":                  {nil, h(redeliver.HeaderGroup, "\xffg"), state{}, "written for another group"},
		"a group that begins like ours": {nil, h(redeliver.HeaderGroup, "g2"), state{}, "written for another group"},
		"text that is too long":         {nil, h(redeliver.HeaderError, long), with(func(s *state) { s.Error = long[:512] }), "is longer than 512 bytes or no UTF-8"},
		"first error that is too long":  {nil, h(redeliver.HeaderFirstError, long[:513]), with(func(s *state) { s.FirstError = long[:512] }), "is longer than 512 bytes or no UTF-8"},
		"text that is not UTF-8":        {nil, h(redeliver.HeaderError, "a\xff\xfeb"), with(func(s *state) { s.Error = "a?b" }), "no UTF-8"},
		"type that is too long":         {nil, h(redeliver.HeaderErrorType, long), with(func(s *state) { s.ErrorType = long[:256] }), "is longer than 256"},
		"policy that is too long":       {nil, h(redeliver.HeaderPolicy, long), with(func(s *state) { s.Policy = long[:64] }), "is longer than 64"},
		"id that is too long":           {h(redeliver.HeaderID, long), nil, state{Group: "g", ID: long[:512]}, "is longer than 512"},
		"origin that is too long":       {h(redeliver.HeaderOrigin, long), nil, state{Group: "g", Origin: long[:512]}, "is longer than 512"},
		"unknown reason":                {nil, h(redeliver.HeaderReason, "tired"), some, "is not one of redeliver's reasons"},
		"reason in capitals":            {nil, h(redeliver.HeaderReason, "EXHAUSTED"), some, "is not one of redeliver's reasons"},
		"due in words":                  {nil, h(redeliver.HeaderDue, "tomorrow"), some, "is no RFC 3339 time"},
		"due as a number":               {nil, h(redeliver.HeaderDue, "1773500966535"), some, "is no RFC 3339 time"},
		"due without a zone":            {nil, h(redeliver.HeaderDue, "2026-03-14T15:09:26.535"), some, "is no RFC 3339 time"},
		"due on an invalid day":         {nil, h(redeliver.HeaderDue, "2026-02-30T00:00:00Z"), some, "is no RFC 3339 time"},
		"due in year 0":                 {nil, h(redeliver.HeaderDue, "0000-01-01T00:00:00Z"), some, "of the years 1 to 9999"},
		"due at the zero time":          {nil, h(redeliver.HeaderDue, "0001-01-01T00:00:00Z"), some, "of the years 1 to 9999"},
		"due in year 10000 in UTC":      {nil, h(redeliver.HeaderDue, "9999-12-31T23:59:59-01:00"), some, "of the years 1 to 9999"},
		"due in another zone":           {nil, h(redeliver.HeaderDue, "2026-03-14T16:09:26.5+01:00"), with(func(s *state) { s.Due = time.Date(2026, 3, 14, 15, 9, 26, 5e8, time.UTC) }), ""},
		"first failed, garbage":         {nil, h(redeliver.HeaderFirstFailed, "x"), some, "it is ignored"},
		"last failed, garbage":          {nil, h(redeliver.HeaderLastFailed, "x"), some, "it is ignored"},
		"postponed, garbage":            {nil, h(redeliver.HeaderPostponed, "x"), some, "it is ignored"},
		"timestamp, garbage":            {nil, h(redeliver.HeaderOriginTimestamp, "x"), some, "it is ignored"},
		"trace, garbage":                {nil, h(redeliver.HeaderTrace, "x"), some, "is not a traceparent"},
		"trace that is empty":           {nil, h(redeliver.HeaderTrace, ""), some, "is not a traceparent"},
		"trace in capitals":             {nil, h(redeliver.HeaderTrace, "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01"), some, "is not a traceparent"},
		"trace of another version":      {nil, h(redeliver.HeaderTrace, "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), some, "is not a traceparent"},
		"trace with an id of zeros":     {nil, h(redeliver.HeaderTrace, "00-00000000000000000000000000000000-b7ad6b7169203331-01"), some, "is not a traceparent"},
		"trace with a span of zeros":    {nil, h(redeliver.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"), some, "is not a traceparent"},
		"trace with more parts":         {nil, h(redeliver.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x"), some, "is not a traceparent"},
		"trace without dashes":          {nil, h(redeliver.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c+b7ad6b7169203331-01"), some, "is not a traceparent"},
		"trace with binary digits":      {nil, h(redeliver.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-\xff1"), some, "is not a traceparent"},
		"trace with flags":              {nil, h(redeliver.HeaderTrace, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"), with(func(s *state) { s.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" }), ""},
		"partition without an offset":   {nil, h(redeliver.HeaderOriginPartition, "1"), some, ""},
		"negative partition":            {nil, append(h(redeliver.HeaderOriginPartition, "-1"), h(redeliver.HeaderOriginOffset, "5")...), some, "the place in the origin is unknown"}, // was once partition 0
		"huge partition":                {nil, append(h(redeliver.HeaderOriginPartition, "2147483648"), h(redeliver.HeaderOriginOffset, "5")...), some, "from 0 to 2147483647"},
		"an invalid offset":             {nil, append(h(redeliver.HeaderOriginPartition, "1"), h(redeliver.HeaderOriginOffset, "")...), some, "the place in the origin is unknown"},
		"the largest valid place":       {nil, append(h(redeliver.HeaderOriginPartition, "2147483647"), h(redeliver.HeaderOriginOffset, "9223372036854775807")...), with(func(s *state) { s.Source = redeliver.Source{Known: true, Partition: 1<<31 - 1, Offset: 1<<63 - 1} }), ""},
	} {
		t.Run(name, func(t *testing.T) {
			block := row.block
			if block == nil {
				block = driver.AppendStateHeaders(some, nil)
			}
			got, findings := driver.ParseHeaders("g", append(block, row.headers...))
			if !reflect.DeepEqual(got, row.want) {
				t.Errorf("state\n got %+v\nwant %+v", got, row.want)
			}
			switch {
			case row.problem == "" && len(findings) > 0:
				t.Errorf("findings %v, want none", findings)
			case row.problem != "" && (len(findings) != 1 || !strings.Contains(findings[0].Problem, row.problem)):
				t.Errorf("findings %v, want one with %q", findings, row.problem)
			}
		})
	}
}

// Several invalid headers are several findings, and the valid ones are read.
func TestValidHeadersAmongInvalidOnesAreRead(t *testing.T) {
	headers := append(driver.AppendStateHeaders(full(), nil),
		driver.Header{Name: redeliver.HeaderDue, Value: "x"}, // a duplicate, too
		driver.Header{Name: redeliver.HeaderDue, Value: "y"})
	headers[0].Value, headers[11].Value = "-1", "tired"
	got, findings := driver.ParseHeaders("billing", headers)
	want := full()
	want.Attempts, want.Reason = 1, ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("state\n got %+v\nwant %+v", got, want)
	}
	if len(findings) != 3 {
		t.Errorf("findings %v, want three: attempt, reason, due", findings)
	}
}

// A finding names the header, quotes a part of it and says which value is used.
func TestFindingsAreReadable(t *testing.T) {
	_, findings := driver.ParseHeaders("g", []driver.Header{{Name: redeliver.HeaderDue, Value: strings.Repeat("語", 500)}})
	want := `redeliver-due "` + strings.Repeat("語", 21) + `": is no RFC 3339 time of the years 1 to 9999; it is ignored`
	if len(findings) != 1 || findings[0].String() != want {
		t.Errorf("findings %v, want %s", findings, want)
	}
}

// FuzzParseHeaders takes a block of lines "name=value". Parsing does not panic, the headers of the result are bounded, and parsing them
// again has no findings.
func FuzzParseHeaders(f *testing.F) {
	lines := func(headers []driver.Header) string {
		var b strings.Builder
		for _, h := range headers {
			b.WriteString(h.Name + "=" + h.Value + "\n")
		}
		return b.String()
	}
	f.Add("billing", lines(driver.AppendStateHeaders(full(), nil)))
	f.Add("other", lines(driver.AppendStateHeaders(full(), nil)))
	f.Add("", "redeliver-attempt=-1\nredeliver-attempt=2\n")
	f.Add("g", "redeliver-attempt=99999999999999999999\nredeliver-replays=-1\nredeliver-reason=tired\n")
	f.Add("g", "redeliver-due=0001-01-01T00:00:00.0001Z\nredeliver-first-failed=9999-12-31T23:59:59.9999Z\n")
	f.Add("g", "redeliver-due=9999-12-31T23:59:59.9999Z\nredeliver-postponed=2026-03-14T15:09:26,5+01:00\n")
	f.Add("g", "redeliver-trace=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nredeliver-trace=x\n")
	f.Add("g", "redeliver-origin-partition=-1\nredeliver-origin-offset=1\n")
	f.Add("g", "redeliver-origin-partition=+1\nredeliver-origin-offset=007\n")
	f.Add("g\xff", "redeliver-group=g?\nredeliver-error=\xff\xfe\nredeliver-id="+strings.Repeat("語", 400)+"\n")
	f.Add("g", "redeliver-error=declined\nredeliver-first-error=declined\n")
	f.Add("g", "redeliver-first-error="+strings.Repeat("語", 200)+"\nredeliver-error="+strings.Repeat("語", 200)+"\n")
	f.Fuzz(func(t *testing.T, group, block string) {
		var headers []driver.Header
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, "=")
			headers = append(headers, driver.Header{Name: name, Value: value})
		}
		first, findings := driver.ParseHeaders(group, headers)
		if len(findings) > 32 {
			t.Fatalf("%d findings", len(findings))
		}
		if first.Attempts < 0 || first.Attempts > limits.MaxAttempts || first.Replays < 0 || first.Replays > limits.MaxAttempts {
			t.Fatalf("accepts %d attempts, %d replays", first.Attempts, first.Replays)
		}
		written := driver.AppendStateHeaders(first, nil)
		if size(written) > limits.MaxHeaderBytes {
			t.Fatalf("%d bytes are written", size(written))
		}
		second, findings := driver.ParseHeaders(first.Group, written)
		if len(findings) > 0 {
			t.Fatalf("a header that redeliver wrote is a finding: %v", findings)
		}
		third, _ := driver.ParseHeaders(first.Group, driver.AppendStateHeaders(second, nil))
		if !reflect.DeepEqual(second, third) {
			t.Fatalf("no fixed point:\n%+v\n%+v", second, third)
		}
		if second.Attempts != first.Attempts || second.ID != first.ID || second.Reason != first.Reason || second.Due.Before(first.Due) && !second.Due.IsZero() {
			t.Fatalf("a hop changed the message:\n%+v\n%+v", first, second)
		}
	})
}
