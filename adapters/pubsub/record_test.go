package pubsub

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A record shares with the subscriber's message what nobody changes; a handler's message,
// which it may change, is the one copy.
func TestAMessageIsCopiedOnce(t *testing.T) {
	raw := message.NewMessage("a", []byte("payload"))
	raw.Metadata["tenant"] = "acme"
	rec, _ := newRecord(raw, true, nil)
	if &rec.payload[0] != &raw.Payload[0] {
		t.Error("the record copies the payload, and a handler's message would be the second")
	}
	msg, err := rec.Message()
	if err != nil {
		t.Fatal(err)
	}
	msg.Payload[0], msg.Metadata["tenant"] = 'P', "another"
	if string(raw.Payload) != "payload" || raw.Metadata["tenant"] != "acme" {
		t.Errorf("a handler has changed what the subscriber delivered: %q, %v", raw.Payload, raw.Metadata)
	}
	ours, err := rec.with(&carried{publish: true})
	if err != nil {
		t.Fatal(err)
	}
	entry := ours.Metadata[StateKey]
	if rec, c := newRecord(ours, true, nil); c == nil || rec.metadata[StateKey] != "" || ours.Metadata[StateKey] != entry {
		t.Errorf("our entry stays with the record, or is taken from the message: %v, %v", rec.metadata, ours.Metadata)
	}
}
