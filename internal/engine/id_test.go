package engine_test

import (
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/engine"
)

// A producer cannot give a message the id that redeliver derives for another message.
func TestGivenIDsDoNotLookLikeDerivedOnes(t *testing.T) {
	for id, want := range map[string]string{
		"4711": "4711", "018f3b9e-7c1a": "018f3b9e-7c1a", "orders/17": "orders/17", "/0/11": "/0/11", "a/b/11": "a/b/11", "a/0/": "a/0/",
		"payments/0/11": "given:payments/0/11", "a/b/0/11": "given:a/b/0/11", "given:payments/0/11": "given:given:payments/0/11",
		"derived:00ff": "given:derived:00ff",
	} {
		if got := engine.GivenID(id); got != want {
			t.Errorf("GivenID(%q) = %q, want %q", id, got, want)
		}
	}
	if got := engine.GivenID(strings.Repeat("a", 600) + "/0/1"); !strings.HasPrefix(got, "sha256:") {
		t.Errorf("a long id is %q", got)
	}
}
