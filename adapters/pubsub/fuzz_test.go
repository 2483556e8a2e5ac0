package pubsub

import (
	"os"
	"path/filepath"
	"testing"
)

// The files of a shelf may be damaged by whatever writes to disks. What cannot be read
// is an error or the end, what was read ascends, and what is settled again stays it.
func FuzzShelf(f *testing.F) {
	f.Add([]byte(`{"n":1,"at":"2026-01-31T12:00:00Z","uuid":"MQ=="}`+"\n{\"n\":2"), []byte("[1,1]\n[2,3]\n[5,"), []byte(`{"dlq":"d","marks":{"1":"quarantined"}}`))
	f.Add([]byte("{\"n\":0}\n"), []byte("[3,2]\n"), []byte("null"))
	f.Add([]byte("\n\n"), []byte("[1,9223372036854775807]\n[9223372036854775807,9223372036854775807]\n"), []byte("[]"))
	f.Add([]byte("null\n"), []byte("[1,2,3]\n[4]\nnull\n"), []byte(""))
	f.Fuzz(func(t *testing.T, letters, outs, state []byte) {
		s := shelf{dir: t.TempDir()}
		for path, text := range map[string][]byte{s.letters(firstLetter): letters, s.outs(firstLetter): outs, s.path(stateFile): state} {
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		l, err := s.open(firstLetter)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		for one, err := l.letter(); err == nil; one, err = l.letter() {
			if one.N < firstLetter {
				t.Errorf("letter %d", one.N)
			}
		}
		if _, err := s.state(); err == nil && len(state) == 0 {
			t.Error("an empty file is a state")
		}
		out, err := s.settled(firstLetter)
		if err != nil {
			return
		}
		for i, x := range out {
			if x.From < firstLetter || x.Through < x.From || i > 0 && x.From <= out[i-1].Through+1 {
				t.Errorf("%q is read as %v", outs, out)
			}
			if !out.has(x.From) || !out.has(x.Through) {
				t.Errorf("%v has not its own %v", out, x)
			}
		}
		if err := s.settle(firstLetter, spans{{7, 8}}); err != nil {
			t.Fatal(err)
		}
		again, err := s.settled(firstLetter)
		if err != nil || !again.has(7) || !again.has(8) || again.count() < out.count() {
			t.Errorf("%v and 7, 8 are %v, %v", out, again, err)
		}
	})
}

// Other files may lie in a shelf's directory.
func FuzzBases(f *testing.F) {
	for _, name := range []string{"0000000000000000001" + lettersSuffix, "x" + lettersSuffix, "-1" + lettersSuffix, "+1" + lettersSuffix, "99999999999999999999" + lettersSuffix, lettersSuffix, "state.json"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s := shelf{dir: t.TempDir()}
		if name == "" || name != filepath.Base(name) || name == "." || name == ".." || os.WriteFile(s.path(name), nil, 0o600) != nil {
			return // the system has no such file
		}
		bases, err := s.bases()
		if err != nil {
			return
		}
		for _, base := range bases {
			if l, err := s.open(base); base < firstLetter || err != nil || l == nil {
				t.Errorf("%q is said to be the file from %d on, and %s is not there", name, base, s.letters(base))
			} else {
				l.close()
			}
		}
	})
}
