package deadletter_test

import (
	"fmt"
	"hash/fnv"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
)

func TestNormalise(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		"card declined":                    "card declined",
		"order 17 of customer 0042 failed": "order <n> of customer <n> failed",
		"order17 took 1.5s":                "order<n> took <n>s",
		"dial tcp 10.0.0.7:5432: connect: connection refused": "dial tcp <n>: connect: connection refused",
		"no row for 7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5b":     "no row for <uuid>",
		"bad digest deadbeef01 and 0xFF":                      "bad digest <hex> and <hex>",
		`no such tenant "acme \"inc\""`:                       "no such tenant <text>",
		"column 'it''s'":                                      "column <text><text>",
		"can't open the customer's file":                      "can't open the customer's file",
		"at 2026-11-21T10:11:12Z":                             "at <n>-<n>-<n>T<n>:<n>Z",
		"an unfinished \"quotation 5":                         "an unfinished \"quotation <n>",
		"Größe 5 überschritten":                               "Größe <n> überschritten",
		"7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5bz":               "<hex>-<n>b<n>d-<n>e<n>f-<n>a<n>b-<n>c<n>d<n>e<n>f<n>a<n>bz",
		"beefed facade added":                                 "beefed facade added",
	} {
		if got := deadletter.Normalise(text); got != want {
			t.Errorf("%q is normalised to %q, want %q", text, got, want)
		}
	}
}

func TestOneCauseHasOneFingerprint(t *testing.T) {
	t.Parallel()
	dead := func(text, kind, handler, origin string, why redeliver.Reason) *deadletter.Message {
		return &deadletter.Message{Handler: handler, State: redeliver.State{Error: text, ErrorType: kind, Origin: origin, Reason: why}}
	}
	one := deadletter.Fingerprint(dead("order 1 failed", "*e", "h", "orders", redeliver.ReasonExhausted))
	if got := deadletter.Fingerprint(dead("order 22 failed", "*e", "h", "orders", redeliver.ReasonExhausted)); got != one {
		t.Errorf("another number is another cause: %s and %s", got, one)
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
			t.Errorf("another %s is the same cause", what)
		}
	}
}

func FuzzNormalise(f *testing.F) {
	f.Add("order 17: \"x\" 'y 7f3c9a52-1b2d-4e5f-8a9b-0c1d2e3f4a5b 0xfe")
	f.Add("'\\")
	f.Fuzz(func(t *testing.T, text string) {
		got := deadletter.Normalise(text)
		if len(got) > 6*len(text)+6 {
			t.Errorf("%q grew to %d bytes", text, len(got))
		}
		if rest := strings.NewReplacer("<n>", "", "<hex>", "", "<uuid>", "", "<text>", "").Replace(got); !strings.ContainsAny(text, "\"'`") && strings.ContainsAny(rest, "0123456789") {
			t.Errorf("%q still has digits: %q", text, got)
		}
	})
}

func BenchmarkNormalise(b *testing.B) {
	text := `charging order 8817: dial tcp 10.0.0.7:5432: no row for "7f3c9a52" in tenant acme, try 3 of 4 after 1.5s`
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		deadletter.Normalise(text)
	}
}

// Fingerprints stand in what was recorded, in addresses and in scripts: they stay what they are.
func TestAFingerprintIsFNVOfItsParts(t *testing.T) {
	for i := range 100 {
		m := &deadletter.Message{Handler: fmt.Sprint("handler", i)}
		m.State.ErrorType, m.State.Error = "*bank.Error", strings.Repeat("no such card ä ", i%5)
		m.State.Reason, m.State.Origin = redeliver.ReasonExhausted, "orders"
		h := fnv.New64a()
		for _, part := range []string{m.State.ErrorType, deadletter.Normalise(m.State.Error), m.Handler, "exhausted", "orders"} {
			_, _ = h.Write(append([]byte(part), 0))
		}
		if got, want := deadletter.Fingerprint(m), fmt.Sprintf("%016x", h.Sum64()); got != want {
			t.Fatalf("the fingerprint of %+v is %s, want %s", m, got, want)
		}
	}
}
