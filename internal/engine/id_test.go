package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/internal/engine"
)

// A producer cannot give a message the id that redeliver derives for another message.
func TestGivenIDsDoNotLookLikeDerivedOnes(t *testing.T) {
	for id, want := range map[string]string{
		"4711": "4711", "018f3b9e-7c1a": "018f3b9e-7c1a", "orders/17": "orders/17", "/0/11": "/0/11", "a/b/11": "a/b/11", "a/0/": "a/0/",
		"payments/0/11": "given:payments/0/11", "a/b/0/11": "given:a/b/0/11", "given:payments/0/11": "given:given:payments/0/11",
		"derived:00ff": "given:derived:00ff", "payments/0/11@1764316800123": "given:payments/0/11@1764316800123",
		"payments/0/11@": "payments/0/11@", "ann@1764316800123": "ann@1764316800123", "payments/0/@1": "payments/0/@1",
	} {
		if got := engine.GivenID(id); got != want {
			t.Errorf("GivenID(%q) = %q, want %q", id, got, want)
		}
	}
	if got := engine.GivenID(strings.Repeat("a", 600) + "/0/1"); !strings.HasPrefix(got, "sha256:") {
		t.Errorf("a long id is %q", got)
	}
}

// Records at one place differ by their timestamps: in a topic that was created again, and in a copy of the topic. Without a
// timestamp the id says that others may have it.
func TestPlaceIDsHaveTheTimestamp(t *testing.T) {
	at := time.Unix(1764316800, 123_999_999)
	for want, got := range map[string]string{
		"orders/0/17@1764316800123": engine.PlaceID("orders", 0, 17, at),
		"orders/0/17@1764316800124": engine.PlaceID("orders", 0, 17, at.Add(time.Microsecond)),
		"orders/0/18@1764316800123": engine.PlaceID("orders", 0, 18, at.UTC()),
		"derived:orders/0/17":       engine.PlaceID("orders", 0, 17, time.Time{}),
		"derived:orders/2147483/-1": engine.PlaceID("orders", 2147483, -1, time.UnixMilli(-1)),
		"derived:a/0/9":             engine.PlaceID("a", 0, 9, time.UnixMilli(0)),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if given := engine.GivenID(got); given != "given:"+got {
			t.Errorf("a producer may give a message the id %q", got)
		}
	}
	if id := engine.PlaceID(strings.Repeat("a", 600), 0, 1, at); !strings.HasPrefix(id, "sha256:") {
		t.Errorf("a long id is %q", id)
	}
}
