package driver_test

import (
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// A trace in a header is a valid traceparent, or a finding.
func FuzzTraceparent(f *testing.F) {
	for _, s := range []string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		st, findings := driver.ParseHeaders("", []driver.Header{{Name: redeliver.HeaderTrace, Value: s}})
		switch {
		case st.Trace != "" && st.TraceID() != s[3:35] || st.Trace == "" && st.TraceID() != "":
			t.Errorf("the trace of %q is %q", s, st.TraceID())
		case st.Trace == "" && len(findings) == 0 && s != "":
			t.Errorf("%q is neither accepted nor a finding", s)
		case st.Trace != "" && (st.Trace != s || len(s) != 55 || strings.Trim(s, "0123456789abcdef-") != "" || s[3:35] == strings.Repeat("0", 32) || s[36:52] == strings.Repeat("0", 16)):
			t.Errorf("%q is read as %q", s, st.Trace)
		}
	})
}
