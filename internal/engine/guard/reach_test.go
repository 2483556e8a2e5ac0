package guard

import (
	"testing"
	"time"
)

// Three failures are an outage if each attempt began after the failure before it, and no attempt that began meanwhile was answered.
func TestSignsThatTheHandlerIsNotThere(t *testing.T) {
	type step struct {
		began, ended int // in seconds
		answered     bool
	}
	for name, c := range map[string]struct {
		steps []step
		want  bool
	}{
		"one after another":           {[]step{{0, 1, false}, {1, 2, false}, {2, 3, false}}, true},
		"two":                         {[]step{{0, 1, false}, {1, 2, false}}, false},
		"in flight together":          {[]step{{0, 5, false}, {1, 5, false}, {2, 5, false}, {4, 6, false}}, false},
		"an answer in between":        {[]step{{0, 1, false}, {1, 2, false}, {2, 3, true}, {2, 3, false}}, false},
		"an answer to an old attempt": {[]step{{0, 1, false}, {1, 2, false}, {0, 3, true}, {2, 3, false}}, true},
		"an unknown begin":            {[]step{{0, 1, false}, {1, 2, false}, {-1, 3, true}, {-1, 3, false}}, false},
		"after an answer":             {[]step{{0, 1, false}, {1, 2, false}, {2, 3, true}, {3, 4, false}, {4, 5, false}, {5, 6, false}}, true},
	} {
		r, got := newReach(), false
		for i, s := range c.steps {
			if s.answered {
				r.answered(time.Duration(s.began))
			} else if got = r.addSign(time.Duration(s.began), time.Duration(s.ended)); got && i < len(c.steps)-1 {
				t.Errorf("%s: an outage after %d steps", name, i+1)
			}
		}
		if got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A failure counts if the handler was there since the failure before it.
func TestTheHandlerWasThereSince(t *testing.T) {
	r := newReach()
	if r.wasThereSince(0) || r.wasThereSince(-1) {
		t.Error("nothing was answered")
	}
	r.answered(5)
	r.answered(3)
	if r.wasThereSince(-1) || !r.wasThereSince(5) || !r.wasThereSince(0) || r.wasThereSince(6) {
		t.Error("an answer shows that the handler was there when its attempt began")
	}
}
