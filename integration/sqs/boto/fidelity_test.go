//go:build prove

package boto_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/fidelity"
	"github.com/redeliver/redeliver/internal/limits"
)

// every returns every byte once.
func every() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

// kinds returns nine attributes of every type, with their limits; the tenth is redeliver's.
func kinds() attributes {
	return attributes{
		"text":                   str("grüße \u2028 <&>\"' ]]> \t\r\n\ufffd\ue000\U0010ffff end "),
		"blank":                  str(" "),
		"number":                 number("-0.000000000000000000000000000000000000012345"),
		"digits":                 number(strings.Repeat("9", 38)),
		"binary":                 binary(every()...),
		"zero":                   binary(0),
		"a.dotted-name_1":        str("{\"json\": [1]}").as("json"),
		strings.Repeat("n", 256): number("3.14").as("float"),
		"image":                  binary(0x89, 'P', 'N', 'G').as(strings.Repeat("p", 249)),
	}
}

// ten returns as many attributes as SQS accepts.
func ten() attributes {
	a := kinds()
	a["zz-last"] = binary(every()...).as("custom")
	return a
}

// bodies returns bodies that must come back byte for byte. They contain characters that are not valid in XML, some of
// which SQS accepts.
func bodies() []string {
	return []string{
		"plain", " leading and trailing \n", "\r\n\r\t\n", `{"json": "\u0000 is six characters"}`, "<order>&amp;</order>", "]]><![CDATA[ & <", "\u2028\u2029\u0085\u007f\u0080",
		"\ufffd\ue000\ufdd0\U0001fffe\U0010ffff", "e\u0301 é \u202e rtl", "\ufeffbom", "%00%25", "=?&a=b", strings.Repeat("x", 100_000),
	}
}

// The handler at every attempt, and boto3 in the DLQ, see what boto3 sent.
func TestEveryAttributeIsKept(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		var msgs []wire
		for _, body := range bodies() {
			msgs = append(msgs, wire{Body: body, Attributes: attributes{}})
		}
		msgs = append(msgs,
			wire{Body: "kinds", Attributes: kinds()},
			wire{Body: "traced", Attributes: attributes{"a": str("b")}, Trace: b.trace()},
		)
		b.unchanged(b.peer.put(t, b.queue, msgs...))
		b.events.NoProblems(b.T)
	}, elasticMQ(t), moto(t))
}

// unchanged compares messages with what the handler saw at each of three attempts and with the DLQ.
func (b *fixture) unchanged(msgs []wire) {
	b.Helper()
	dead := b.deadLetters(len(msgs))
	sights := b.observations()
	for _, m := range msgs {
		name := fmt.Sprintf("%q", limits.Cut(m.Body, 40))
		all := sights[m.Body]
		if len(all) != 3 {
			b.Errorf("%s ran %d times, want 3", name, len(all))
		}
		for i, s := range all {
			wantSame(b.T, name+", as the handler saw it", s.wire, m)
			if s.attempt != i+1 || s.id != m.ID || s.payload != m.Body {
				b.Errorf("%s: run %d is attempt %d of %s, want %s; its payload is its body: %t", name, i+1, s.attempt, s.id, m.ID, s.payload == m.Body)
			}
		}
		letter, ok := dead[m.Body]
		if !ok {
			b.Errorf("%s is not in the DLQ", name)
			continue
		}
		ours := state(b.T, &letter)
		wantSame(b.T, name+", in the DLQ", letter, m)
		if ours[redeliver.HeaderAttempt] != "3" || ours[redeliver.HeaderReason] != "exhausted" ||
			ours[redeliver.HeaderError] != fidelity.ErrDeclined.Error() || ours[redeliver.HeaderID] != m.ID {
			b.Errorf("%s is in the DLQ with %q", name, ours)
		}
	}
}

// A message has as many attributes as SQS accepts. The handler sees all of them at every attempt, and the DLQ has
// them too.
func TestTenAttributesAreKept(t *testing.T) {
	for _, kind := range []string{standard, fifo} {
		t.Run("queue"+kind, func(t *testing.T) {
			on(t, kind, func(t *testing.T, b *fixture) {
				b.start(b.config(policy))
				var msgs []wire
				for _, last := range []attribute{binary(every()...), str("zz grüße <&>"), number("1"), str("x").as("custom"), binary(0).as("b.c")} {
					m := wire{Body: "ten of " + last.Type, Attributes: ten()}
					m.Attributes["zz-last"] = last
					if kind == fifo {
						m.Group, m.Dedup = last.Type, last.Type // each has its own
					}
					msgs = append(msgs, m)
				}
				b.unchanged(b.peer.put(t, b.queue, msgs...))
				b.events.NoProblems(b.T)
			}, elasticMQ(t), moto(t))
		})
	}
}

// The id is Watermill's, or the MessageId of the first delivery. It is the same at every attempt and in the DLQ, and
// the user's attribute is unchanged.
func TestTheIDIsTheSameAtEveryAttempt(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		b.start(b.config(policy))
		msgs := b.peer.put(t, b.queue,
			wire{Body: "uuid", Attributes: attributes{"_watermill_message_uuid": str("u-1")}},
			wire{Body: "no text", Attributes: attributes{"_watermill_message_uuid": binary(1, 2)}},
			wire{Body: "a number", Attributes: attributes{"_watermill_message_uuid": number("7")}},
			wire{Body: "none"},
		)
		dead := b.deadLetters(len(msgs))
		for _, m := range msgs {
			want := map[string]string{"uuid": "u-1"}[m.Body]
			if want == "" {
				want = m.ID
			}
			for _, s := range b.observations()[m.Body] {
				if s.id != want && (m.Body == "uuid" || m.Body == "none") || s.uuid != s.id || s.id != b.observations()[m.Body][0].id {
					t.Errorf("%s: attempt %d is %q with UUID %q, want %q", m.Body, s.attempt, s.id, s.uuid, want)
				}
				wantSame(t, m.Body, s.wire, m)
			}
			letter := dead[m.Body]
			if ours := state(t, &letter); ours[redeliver.HeaderID] != b.observations()[m.Body][0].id {
				t.Errorf("%s is %q in the DLQ", m.Body, ours[redeliver.HeaderID])
			}
			wantSame(t, m.Body+", in the DLQ", letter, m)
		}
		b.events.NoProblems(b.T)
	}, elasticMQ(t), moto(t))
}
