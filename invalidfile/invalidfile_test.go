package invalidfile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/invalidfile"
)

// headers are a message's.
type headers map[string]string

func (h headers) Get(name string) string { return h[name] }

func msg(id, key string, h headers) redeliver.Message {
	m := redeliver.Message{State: redeliver.State{ID: id}, Headers: h}
	if key != "-" {
		m.Key = []byte(key)
	}
	return m
}

// notes are what was reported.
type notes struct {
	mu   sync.Mutex
	all  []string
	more chan struct{}
}

func newNotes() *notes { return &notes{more: make(chan struct{}, 1000)} }

func (n *notes) report(rules int, err error) {
	n.mu.Lock()
	n.all = append(n.all, fmt.Sprint(rules, " ", err))
	n.mu.Unlock()
	n.more <- struct{}{}
}

// next is the next report.
func (n *notes) next(t *testing.T) string {
	t.Helper()
	select {
	case <-n.more:
	case <-time.After(time.Minute):
		t.Fatal("nothing was reported within a minute")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	first := n.all[0]
	n.all = n.all[1:]
	return first
}

// write puts a file in the place of another, at once, as it is to be done.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, text string) (l *invalidfile.List, path string, n *notes) {
	t.Helper()
	path, n = filepath.Join(t.TempDir(), "cancelled"), newNotes()
	write(t, path, text)
	l, err := invalidfile.Open(path, invalidfile.Config{Every: time.Millisecond, Report: n.report})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, path, n
}

// What a file lists, line by line, and nothing else, must not run.
func TestRules(t *testing.T) {
	l, _, _ := open(t, "\ufeff# the tenant is gone\r\n\r\n  header=tenant=acme  \r\n"+
		"key=customer-17\nid=4711\nheader=note=a=b\nkey=\n"+
		`{"key":"customer-18","headers":{"kind":"invoice","tenant":"other"},"reason":"billed twice"}`+"\n"+
		`{"id":"4712","headers":{"kind":"order"}}`+"\n"+`{"headers":{"padded":" x "}}`+"\n"+
		`{"id":"4713","reason":"one"}`+"\nid=4713")
	for name, c := range map[string]struct {
		m    redeliver.Message
		want string // in the error; empty: it runs
	}{
		"nothing":             {msg("1", "-", nil), ""},
		"no headers at all":   {redeliver.Message{State: redeliver.State{ID: "4711"}}, "line 5"},
		"a header":            {msg("1", "-", headers{"tenant": "acme"}), "listed in cancelled, line 3"},
		"another value":       {msg("1", "-", headers{"tenant": "acme2"}), ""},
		"a value with a =":    {msg("1", "-", headers{"note": "a=b"}), "line 6"},
		"a padded value":      {msg("1", "-", headers{"padded": " x "}), "line 10"},
		"a key":               {msg("1", "customer-17", nil), "line 4"},
		"an empty key":        {msg("1", "", nil), "line 7"},
		"an id":               {msg("4711", "-", nil), "line 5"},
		"all of several":      {msg("1", "customer-18", headers{"kind": "invoice", "tenant": "other"}), "cancelled, line 8: billed twice"},
		"not all of several":  {msg("1", "customer-18", headers{"kind": "invoice", "tenant": "third"}), ""},
		"the key of several":  {msg("1", "customer-18", nil), ""},
		"an id of several":    {msg("4712", "-", headers{"kind": "order"}), "line 9"},
		"an id and no header": {msg("4712", "-", headers{"kind": "invoice"}), ""},
		"twice":               {msg("4713", "-", nil), "line 11: one"},
	} {
		t.Run(name, func(t *testing.T) {
			err := l.Invalid(c.m)
			if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// What is no rule is refused at the start, with its line.
func TestOpenRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"id=1\ntenant=acme\n":                 "line 2: \"tenant\" is neither id, key nor header",
		"acme":                                "line 1: \"acme\" is no rule",
		"header=tenant":                       "names no header and its value",
		"header=tenant=":                      "no value for the header \"tenant\"",
		"header==acme":                        "names no header and its value",
		"id=":                                 "an empty id",
		"{}":                                  "would fit every message",
		`{"id":"1","tenant":"acme"}`:          "unknown field",
		`{"id":"1"} {"id":"2"}`:               "something behind its object",
		`{"headers":{"tenant":""}}`:           "no value for the header",
		`{"id":1}`:                            "is no rule",
		strings.Repeat("x\n", 12):             "and 2 lines more",
		strings.Repeat("# much\n", 2_500_000): "larger than 16 MiB",
	} {
		path := filepath.Join(t.TempDir(), "cancelled")
		write(t, path, text)
		l, err := invalidfile.Open(path, invalidfile.Config{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
		if l != nil {
			_ = l.Close()
		}
	}
	if _, err := invalidfile.Open(filepath.Join(t.TempDir(), "none"), invalidfile.Config{}); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "an empty file") {
		t.Errorf("without a file: %v", err)
	}
	if _, err := invalidfile.Open("", invalidfile.Config{Every: -1}); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), "Every") {
		t.Errorf("without a path: %v", err)
	}
}

// A file that changes is read again; one that is wrong, or gone, changes nothing and is
// told of once.
func TestAFileThatChanges(t *testing.T) {
	l, path, n := open(t, "")
	is := func(id string, want bool) {
		t.Helper()
		if err := l.Invalid(msg(id, "-", nil)); (err != nil) != want {
			t.Errorf("%s: %v, listed: %v", id, err, want)
		}
	}
	is("1", false)
	write(t, path, "id=1\n")
	if got := n.next(t); got != "1 <nil>" {
		t.Error(got)
	}
	is("1", true)
	write(t, path, "id=1\nid=2\nnonsense\n")
	if got := n.next(t); !strings.HasPrefix(got, "1 ") || !strings.Contains(got, "line 3") {
		t.Error(got)
	}
	is("1", true)
	is("2", false)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if got := n.next(t); !strings.HasPrefix(got, "1 ") || !strings.Contains(got, "no such file") {
		t.Error(got)
	}
	is("1", true)
	write(t, path, "id=1\n") // as it was when all was well
	if got := n.next(t); got != "1 <nil>" {
		t.Error(got)
	}
	write(t, path, "id=2\n") // as long, and within the same second
	if got := n.next(t); got != "1 <nil>" {
		t.Error(got)
	}
	is("1", false)
	is("2", true)
	write(t, path, "# all is well again\n")
	if got := n.next(t); got != "0 <nil>" {
		t.Error(got)
	}
	is("2", false)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if len(n.more) != 0 {
		t.Errorf("more was reported: %q", n.all)
	}
}

// A file that is written in place, twice within the grain of its clock and as long as
// before, is read again.
func TestAFileThatChangesUnderItsTime(t *testing.T) {
	l, path, n := open(t, "id=1\n")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString("id=2\n")
	if err := errors.Join(err, f.Close(), os.Chtimes(path, time.Time{}, info.ModTime())); err != nil {
		t.Fatal(err)
	}
	for got := n.next(t); l.Invalid(msg("2", "-", nil)) == nil; got = n.next(t) {
		t.Log(got)
	}
}

// Nothing that runs costs anything while nothing is listed, and a list costs no
// allocation for what it does not list.
func TestInvalidCostsNothing(t *testing.T) {
	for _, text := range []string{"", "id=1\nkey=2\nheader=tenant=acme\n"} {
		l, _, _ := open(t, text)
		m := msg("4711", "customer-17", headers{"tenant": "other"})
		if n := testing.AllocsPerRun(100, func() {
			if err := l.Invalid(m); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%q: %v allocations", text, n)
		}
	}
}

// It is asked by many while the file changes.
func TestInvalidWhileTheFileChanges(t *testing.T) {
	l, path, n := open(t, "id=0\n")
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if l.Invalid(msg("always", "-", nil)) != nil {
						t.Error("it is not listed")
						return
					}
				}
			}
		})
	}
	for i := range 20 {
		write(t, path, fmt.Sprintf("id=%d\nid=x%d\n", i, i))
		n.next(t)
	}
	close(stop)
	all.Wait()
}

func FuzzOpen(f *testing.F) {
	for _, text := range []string{"", "id=1", "header=a=b\nkey=\n", `{"id":"1","headers":{"a":"b"}}`, "{", "\ufeff#", "header==", "=\n==\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "cancelled")
		write(t, path, text)
		if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil { // so that one look is enough
			t.Fatal(err)
		}
		l, err := invalidfile.Open(path, invalidfile.Config{Every: time.Hour})
		if err != nil {
			return
		}
		defer l.Close()
		if err := l.Invalid(redeliver.Message{Headers: headers{}}); err != nil {
			t.Errorf("%q lists a message that has nothing: %v", text, err)
		}
	})
}
