package redeliver_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/contextkey"
	"github.com/redeliver/redeliver/internal/limits"
)

type otherKey struct{}

type record struct{ s redeliver.State }

func (r record) State() redeliver.State { return r.s }

func TestFromContextReturnsTheState(t *testing.T) {
	bg := context.Background()
	for name, row := range map[string]struct {
		ctx context.Context
		ok  bool
	}{
		"from NewContext":          {redeliver.NewContext(bg, redeliver.State{ID: "a", Attempts: 2}), true},
		"from below":               {context.WithValue(redeliver.NewContext(bg, redeliver.State{ID: "a", Attempts: 2}), otherKey{}, "v"), true},
		"from an adapter's record": {context.WithValue(bg, contextkey.State{}, record{redeliver.State{ID: "a", Attempts: 2}}), true},
		"not a message of ours":    {bg, false},
		"a value of another type":  {context.WithValue(bg, contextkey.State{}, "a"), false},
	} {
		s, ok := redeliver.FromContext(row.ctx)
		if ok != row.ok {
			t.Errorf("%s: found %t", name, ok)
		}
		if ok && (s.ID != "a" || s.Attempt() != 3) {
			t.Errorf("%s: state %+v, attempt %d", name, s, s.Attempt())
		}
	}
	if (redeliver.State{}).Attempt() != 1 {
		t.Error("the first delivery is not attempt 1")
	}
}

func TestCeilMilliIsNeverEarly(t *testing.T) {
	whole := time.Date(2026, 3, 14, 15, 9, 26, 535_000_000, time.UTC)
	for in, want := range map[time.Duration]time.Duration{
		0: 0, 1: time.Millisecond, 499_999: time.Millisecond, 999_999: time.Millisecond, time.Millisecond: time.Millisecond,
		time.Millisecond + 1: 2 * time.Millisecond, -1: 0, -time.Millisecond: -time.Millisecond,
	} {
		if got := limits.CeilMilli(whole.Add(in)); !got.Equal(whole.Add(want)) {
			t.Errorf("%s after a whole millisecond becomes %s", in, got.Sub(whole))
		}
	}
	before := time.Date(1969, 12, 31, 23, 59, 59, 999_999_999, time.UTC) // the other side of zero
	if got := limits.CeilMilli(before); !got.Equal(time.Unix(0, 0)) {
		t.Errorf("%s becomes %s", before, got)
	}
	if !limits.CeilMilli(time.Time{}).IsZero() {
		t.Error("the zero time is not kept")
	}
}

// An id that does not fit into a header is always shortened to the same id, which no other message has.
func TestShortIDFitsAHeaderAndStaysUnique(t *testing.T) {
	long := strings.Repeat("x", 600)
	for name, row := range map[string]struct {
		id   string
		same bool
	}{
		"empty": {"", true}, "usual": {"orders/3/41", true}, "multi-byte": {"語", true}, "longest": {long[:512], true},
		"too long": {long[:513], false}, "not UTF-8": {"a\xff", false},
	} {
		got := limits.ShortID(row.id)
		if (got == row.id) != row.same || limits.ShortID(got) != got {
			t.Errorf("%s: %q becomes %q, and then %q", name, row.id, got, limits.ShortID(got))
		}
		s, findings := driver.ParseHeaders("", driver.AppendStateHeaders(redeliver.State{ID: got}, nil))
		if s.ID != got || len(findings) > 0 {
			t.Errorf("%s: %q is read as %q, findings %v", name, got, s.ID, findings)
		}
	}
	if limits.ShortID(long+"a") == limits.ShortID(long+"b") || limits.ShortID("a\xff") == limits.ShortID("a\xfe") {
		t.Error("two ids have one name")
	}
}
