package deadletter_test

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/errortext"
)

func TestOneCauseHasOneFingerprint(t *testing.T) {
	t.Parallel()
	dead := func(text, kind, handler, origin string, why redeliver.Reason) *deadletter.Message {
		return &deadletter.Message{Handler: handler, State: redeliver.State{Error: text, ErrorType: kind, Origin: origin, Reason: why}}
	}
	one := deadletter.Fingerprint(dead("order 1 failed", "*e", "h", "orders", redeliver.ReasonExhausted))
	if got := deadletter.Fingerprint(dead("order 22 failed", "*e", "h", "orders", redeliver.ReasonExhausted)); got != one {
		t.Errorf("texts with different numbers have different causes: %s and %s", got, one)
	}
	for what, other := range map[string]*deadletter.Message{
		"text":    dead("order 1 declined", "*e", "h", "orders", redeliver.ReasonExhausted),
		"type":    dead("order 1 failed", "*f", "h", "orders", redeliver.ReasonExhausted),
		"handler": dead("order 1 failed", "*e", "g", "orders", redeliver.ReasonExhausted),
		"origin":  dead("order 1 failed", "*e", "h", "refunds", redeliver.ReasonExhausted),
		"reason":  dead("order 1 failed", "*e", "h", "orders", redeliver.ReasonPermanent),
		"border":  dead("order 1 failed*e", "", "h", "orders", redeliver.ReasonExhausted),
	} {
		if deadletter.Fingerprint(other) == one {
			t.Errorf("a different %s has the same cause", what)
		}
	}
}

// Fingerprints are in records, addresses and scripts, so they must not change.
func TestAFingerprintIsFNVOfItsParts(t *testing.T) {
	for i := range 100 {
		m := &deadletter.Message{Handler: fmt.Sprint("handler", i)}
		m.State.ErrorType, m.State.Error = "*bank.Error", strings.Repeat("no such card ä ", i%5)
		m.State.Reason, m.State.Origin = redeliver.ReasonExhausted, "orders"
		h := fnv.New64a()
		for _, part := range []string{m.State.ErrorType, errortext.Normalise(m.State.Error), m.Handler, "exhausted", "orders"} {
			_, _ = h.Write(append([]byte(part), 0))
		}
		if got, want := deadletter.Fingerprint(m), fmt.Sprintf("%016x", h.Sum64()); got != want {
			t.Fatalf("the fingerprint of %+v is %s, want %s", m, got, want)
		}
	}
}
