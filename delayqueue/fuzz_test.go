package delayqueue_test

import (
	"testing"

	"github.com/redeliver/redeliver/delayqueue"
)

// The name of a level is parsed as exactly that level, or refused.
func FuzzParseLevel(f *testing.F) {
	for _, name := range []string{"1s", "1m30s", "90s", "0s", "-1s", "1h0m0s", "8784h", "500ms", "2562047h47m16.854775807s", "1µs", "1us", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		d, ok := delayqueue.ParseLevel(name)
		if ok && (d <= 0 || delayqueue.LevelName(d) != name) {
			t.Errorf("%q is read as %s, which is called %q", name, d, delayqueue.LevelName(d))
		}
	})
}
