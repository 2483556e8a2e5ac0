package wire

import (
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// A signed state is only trusted for its own body and by processes that have its key.
func TestStateKeys(t *testing.T) {
	oldKey, newKey := []byte("the old key of 24 bytes."), []byte("the new key of 24 bytes.")
	st := redeliver.State{ID: "u-1", Group: "orders", Origin: "orders", Attempts: 2}
	copyOf := func(keys Keys) types.Message {
		r := recordOfParts("body", nil, nil)
		r.Keys = keys
		o, ok := r.WaitingCopy(&st, 4096)
		if !ok {
			t.Fatal("the state leaves no room")
		}
		return types.Message{MessageId: aws.String("m"), Body: &o.Body, MessageAttributes: o.Attributes}
	}
	alter := func(m types.Message, old, with string) types.Message {
		value := *m.MessageAttributes[StateAttribute].StringValue
		if !strings.Contains(value, old) {
			t.Fatalf("%s is not in %s", old, value)
		}
		m.MessageAttributes = map[string]types.MessageAttributeValue{StateAttribute: TextAttribute(strings.Replace(value, old, with, 1))}
		return m
	}
	otherBody := copyOf(Keys{oldKey})
	otherBody.Body = aws.String("another body")
	for name, tt := range map[string]struct {
		m        types.Message
		keys     Keys
		believed bool
	}{
		"signed, same key":              {copyOf(Keys{oldKey}), Keys{oldKey}, true},
		"signed, key became the second": {copyOf(Keys{oldKey}), Keys{newKey, oldKey}, true},
		"signed, key added as second":   {copyOf(Keys{newKey, oldKey}), Keys{oldKey, newKey}, true},
		"signed, key removed":           {copyOf(Keys{oldKey}), Keys{newKey}, false},
		"signed, reader without keys":   {copyOf(Keys{oldKey}), nil, true},
		"unsigned":                      {copyOf(nil), Keys{oldKey}, false},
		"unsigned, reader without keys": {copyOf(nil), nil, true},
		"attempt changed":               {alter(copyOf(Keys{oldKey}), `"attempt":"2"`, `"attempt":"0"`), Keys{oldKey}, false},
		"a field added after the mac":   {alter(copyOf(Keys{oldKey}), `="}`, `=","id":"x"}`), Keys{oldKey}, false},
		"another message's state":       {otherBody, Keys{oldKey}, false},
		"an empty mac":                  {alter(copyOf(nil), `}`, `,"mac":""}`), Keys{oldKey}, false},
		"shorter than a mac":            {alter(copyOf(nil), *copyOf(nil).MessageAttributes[StateAttribute].StringValue, `{}`), Keys{oldKey}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := NewRecord(&tt.m, "orders", statekeys.Waiting, tt.keys)
			if (c != nil) != tt.believed {
				t.Fatalf("accepted: %v, want %v", c != nil, tt.believed)
			}
			if found := ForeignAttributes(&r.Native); (len(found) == 0) != tt.believed {
				t.Errorf("findings %v", found)
			}
		})
	}
}

// A signed state stays within the limit too.
func TestSignedStateShrinksToItsLimit(t *testing.T) {
	st := redeliver.State{ID: "u", Group: "orders", Origin: "orders", Attempts: 1, Error: strings.Repeat("e", 500)}
	for limit := range 1024 {
		r := recordOfParts("body", nil, nil)
		r.Keys = Keys{[]byte("sixteen bytes...")}
		o, ok := r.WaitingCopy(&st, limit)
		if !ok {
			continue
		}
		if o.Size() > limit {
			t.Fatalf("%d bytes, at most %d are allowed", o.Size(), limit)
		}
		if !r.Keys.verify(statekeys.Waiting, *o.Attributes[StateAttribute].StringValue, "body") {
			t.Fatalf("with %d bytes the signature is wrong", limit)
		}
	}
}

// A dead letter that somebody puts into the queue is not believed there. The DLQ also has what SQS moved there while it waited.
func TestASignatureNamesTheQueueOrTheDLQ(t *testing.T) {
	st := redeliver.State{ID: "u-1", Group: "orders", Origin: "orders", Attempts: 2}
	r := recordOfParts("body", nil, nil)
	r.Keys = Keys{[]byte("sixteen bytes...")}
	waiting, _ := r.WaitingCopy(&st, 4096)
	dead := r.DeadCopy(&st, 4096)
	for _, row := range []struct {
		o        Outgoing
		at       statekeys.Place
		believed bool
	}{{waiting, statekeys.Waiting, true}, {waiting, statekeys.DeadLetter, true}, {dead, statekeys.DeadLetter, true}, {dead, statekeys.Waiting, false}} {
		m := types.Message{MessageId: aws.String("m"), Body: &row.o.Body, MessageAttributes: maps.Clone(row.o.Attributes)}
		if _, c := NewRecord(&m, "orders", row.at, r.Keys); (c != nil) != row.believed {
			t.Errorf("at %q: believed is %t, want %t", row.at, c != nil, row.believed)
		}
	}
}
