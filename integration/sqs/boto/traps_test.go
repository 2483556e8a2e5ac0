//go:build prove

package boto_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/fidelity"
)

// An attribute with redeliver's name that is not of this queue belongs to the user. It is kept at all attempts and in
// the DLQ, reported, and not trusted.
func TestAnAttributeNamedLikeOursBelongsToTheUser(t *testing.T) {
	on(t, standard, func(t *testing.T, b *fixture) {
		// A real state of another queue, copied by a service.
		other := &fixture{T: t, server: b.server, proxy: b.proxy, queue: fidelity.Unique("other"), peer: b.peer}
		other.peer.create(t, other.queue, nil)
		stop := other.start(other.config(redeliver.Policy{MaxRetries: redeliver.NoRetries}))
		other.peer.put(t, other.queue, wire{Body: "x"})
		actual := other.deadLetters(1)["x"].Attributes[stateAttribute]
		stop()
		if actual.Value == "" {
			t.Fatal("a dead letter has no state")
		}

		b.start(b.config(policy))
		forged := map[string]attribute{
			"of another queue": actual, "garbage": str("%zz{\"\x7f"), "blank": str(" "), "a number": number("99"), "binary": binary(every()...),
			"json": str(`{"attempt":"99","origin":"x"}`), "long": str(strings.Repeat("redeliver-attempt=9&", 500)), "custom": str(actual.Value).as("custom"),
		}
		var msgs []wire
		for name, value := range forged {
			msgs = append(msgs, wire{Body: name, Attributes: attributes{stateAttribute: value, "mine": str("x")}})
		}
		full := ten()
		delete(full, "zz-last")
		full[stateAttribute] = actual
		msgs = b.peer.put(t, b.queue, append(msgs, wire{Body: "beside nine", Attributes: full})...)
		dead := b.deadLetters(len(msgs))
		for _, m := range msgs {
			all := b.observations()[m.Body]
			if len(all) != 3 {
				t.Errorf("%s ran %d times, want 3", m.Body, len(all))
			}
			for _, s := range all {
				wantSame(t, m.Body, s.wire, m)
			}
			letter := dead[m.Body]
			if ours := state(t, &letter); ours[redeliver.HeaderReason] != "exhausted" || ours[redeliver.HeaderOrigin] != b.queue {
				t.Errorf("%s is in the DLQ with %v", m.Body, ours)
			}
			wantSame(t, m.Body+", in the DLQ", letter, m)
		}
		if found := b.events.Ignored(); len(found) == 0 {
			t.Error("nothing was reported")
		}
	}, elasticMQ(t), moto(t))
}

// AWS's own redrive puts a dead letter back into the queue unchanged, with redeliver's attribute. It runs again with
// its state, like every dead letter that is sent back; see the conformance kit.
func TestADeadLetterThatAWSRedrivesRunsAgain(t *testing.T) {
	for _, kind := range []string{standard, fifo} {
		t.Run("queue"+kind, func(t *testing.T) {
			on(t, kind, func(t *testing.T, b *fixture) {
				b.start(b.config(policy))
				m := wire{Body: "again", Attributes: ten()}
				if kind == fifo {
					m.Group, m.Dedup = "g", fidelity.Unique("dedup")
				}
				m = b.peer.put(t, b.queue, m)[0]
				letter := b.deadLetters(1)["again"]
				letter.Dedup = map[string]string{fifo: fidelity.Unique("dedup")}[kind]
				before := len(b.observations()["again"])
				b.peer.put(t, b.queue, letter)
				letter = b.deadLetters(1)["again"]
				all := b.observations()["again"][before:]
				if len(all) != 1 {
					t.Errorf("it ran %d times after the redrive, want once more", len(all))
				}
				for _, s := range all {
					wantSame(t, "after the redrive", s.wire, m)
					if s.id != m.ID {
						t.Errorf("after the redrive it is %s, want %s", s.id, m.ID)
					}
				}
				if ours := state(t, &letter); ours[redeliver.HeaderReason] != "exhausted" {
					t.Errorf("it is in the DLQ with %v", ours)
				}
				wantSame(t, "in the DLQ again", letter, m)
			}, elasticMQ(t))
		})
	}
}

// A topic may be the queue's name, URL or ARN; the origin is its name.
func TestATopicIsANameOrAURLOrAnARN(t *testing.T) {
	for what, topic := range map[string]func(b *fixture) string{
		"name": func(b *fixture) string { return b.queue },
		"URL":  func(b *fixture) string { return b.server.url + "/000000000000/" + b.queue },
		"ARN":  func(b *fixture) string { return b.peer.settings(b.T, b.queue)["QueueArn"] },
	} {
		t.Run(what, func(t *testing.T) {
			on(t, standard, func(t *testing.T, b *fixture) {
				b.topic = topic(b)
				b.handler = func(msg *message.Message) error {
					st, _ := redeliver.FromContext(msg.Context())
					return redeliver.Permanent(errors.New(st.Origin))
				}
				b.start(b.config(policy))
				if err := b.client.Publisher().Publish(b.topic, message.NewMessage("m", []byte("x"))); err != nil {
					t.Fatalf("publishing to %s: %v", b.topic, err)
				}
				letter := b.deadLetters(1)["x"]
				if ours := state(t, &letter); ours[redeliver.HeaderError] != b.queue || ours[redeliver.HeaderOrigin] != b.queue {
					t.Errorf("%s: in the DLQ with %v", b.topic, ours)
				}
			}, elasticMQ(t))
		})
	}
}

// Queues that redeliver creates have the expected attributes: the retention of dead letters, and SQS's own limit
// beyond redeliver's.
func TestCreatedQueuesHaveTheirAttributes(t *testing.T) {
	for _, kind := range []string{standard, fifo} {
		t.Run("queue"+kind, func(t *testing.T) {
			// ElasticMQ reports no retention.
			on(t, kind, func(t *testing.T, b *fixture) {
				b.queue = fidelity.Unique("created") + kind
				client := b.open(b.config(policy))
				if err := client.Subscriber().SubscribeInitialize(b.queue); err != nil {
					t.Fatal(err)
				}
				dlq := b.peer.settings(t, b.beside("-dlq"))
				if dlq["MessageRetentionPeriod"] != fmt.Sprint(14*24*60*60) {
					t.Errorf("a dead letter stays for %q s", dlq["MessageRetentionPeriod"])
				}
				own := b.peer.settings(t, b.queue)
				if redrive := own["RedrivePolicy"]; !strings.Contains(redrive, dlq["QueueArn"]) || !strings.Contains(redrive, "1000") {
					t.Errorf("the redrive policy is %q", redrive)
				}
				for _, settings := range []map[string]string{own, dlq, b.peer.settings(t, b.beside("-suspects"))} {
					if (settings["FifoQueue"] == "true") != (kind == fifo) {
						t.Errorf("it is a FIFO queue: %v", settings)
					}
				}
			}, moto(t))
		})
	}
}

// A queue is refused at the start, with the reason, if its own redrive would cut retries short or if it loses waiting
// messages. moto, like SQS, refuses a redrive to a DLQ of the other kind. ElasticMQ does not, so it shows what
// happens to an existing one.
func TestQueuesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		kind     string
		settings map[string]string
		dlq      string // suffix of the user's own DLQ of the queue
		redrive  int
		say      string
		servers  []server
	}{
		"few receives on FIFO": {fifo, nil, "-mine.fifo", 2, "maxReceiveCount", []server{elasticMQ(t), moto(t)}},
		"a standard DLQ":       {fifo, nil, "-mine", 1000, ".fifo", []server{elasticMQ(t)}},
		// ElasticMQ keeps no retention.
		"a minute's retention": {standard, map[string]string{"MessageRetentionPeriod": "60"}, "", 0, "MessageRetentionPeriod", []server{moto(t)}},
	} {
		t.Run(name, func(t *testing.T) {
			on(t, c.kind, func(t *testing.T, b *fixture) {
				stem := fidelity.Unique("refused")
				settings := map[string]string{}
				maps.Copy(settings, c.settings)
				if c.dlq != "" {
					b.peer.create(t, stem+c.dlq, nil)
					settings["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":"%d"}`, b.peer.settings(t, stem+c.dlq)["QueueArn"], c.redrive)
				}
				b.queue = stem + c.kind
				b.peer.create(t, b.queue, settings)
				cfg := b.config(redeliver.Policy{MaxRetries: 5, Backoff: redeliver.Fixed(600_000_000_000)})
				client := b.open(cfg)
				_, err := client.Plan(t.Context(), b.queue)
				_, subscribed := client.Subscriber().Subscribe(t.Context(), b.queue)
				for what, err := range map[string]error{"Plan": err, "Subscribe": subscribed} {
					if err == nil || !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), c.say) || !strings.Contains(err.Error(), b.queue) {
						t.Errorf("%s: %v; want a refusal with %q", what, err, c.say)
					}
				}
			}, c.servers...)
		})
	}
}
