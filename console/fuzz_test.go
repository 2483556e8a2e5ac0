package console

import (
	"net/url"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/deadletter"
)

// Forms come from browsers and from programs.
func FuzzReplayForm(f *testing.F) {
	f.Add("canary=1,+10,+100&rate=10&why=bank+is+back")
	f.Add("canary=0&rate=NaN&why=")
	f.Add("canary=1,,2,&rate=1e400&why=%00%1b[31m")
	f.Add("canary=1000001&rate=-1&why=%ff")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		if sizes, err := readCanary(v.Get("canary")); err == nil {
			if len(sizes) > maxCanarySteps {
				t.Errorf("%d steps", len(sizes))
			}
			for _, n := range sizes {
				if n < 1 || n > 1_000_000 {
					t.Errorf("a step of %d messages", n)
				}
			}
		}
		if why, err := readWhy(v); err == nil && strings.TrimSpace(why) == "" {
			t.Errorf("%q is a reason", why)
		}
		if n, err := readNumber(v, "rate", 5, 1, 100); err == nil && (n < 1 || n > 100) {
			t.Errorf("%d is from 1 to 100", n)
		}
	})
}

// A form changes only the headers of a message that may be changed.
func FuzzEditForm(f *testing.F) {
	f.Add("h0=b&n0-name=x&n0=y", "a", []byte("b"))
	f.Add("h0-remove=1", "a", []byte("b"))
	f.Add("h0=other&h1=other", "a", []byte("\xff"))
	f.Add("n0-name=redeliver-attempt&n0=0&n1-name=&n1=y", "", []byte(nil))
	f.Fuzz(func(t *testing.T, query, name string, value []byte) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		l := &messageView{Headers: []headerView{{Name: name, Value: value, Whole: true}}}
		p := newEditPage(l)
		var change deadletter.EditOptions
		if p.readHeaders(v, &change) != nil {
			return
		}
		for _, removed := range change.Remove {
			if removed != name || p.Headers[0].Locked != "" {
				t.Errorf("%q is removed", removed)
			}
		}
		for _, set := range change.Set {
			if set.Name == name && len(p.Headers) > 0 && p.Headers[0].Locked != "" && !v.Has("n0-name") {
				t.Errorf("%q is locked (%s) and set to %q", name, p.Headers[0].Locked, set.Value)
			}
		}
	})
}

func FuzzParseRole(f *testing.F) {
	for _, role := range []string{"viewer", "Operator", "", "reader\n"} {
		f.Add(role)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if role, err := ParseRole(name); err == nil && role.String() != name {
			t.Errorf("%q is read as %s", name, role)
		}
	})
}
