package wire

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
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
			r, c := NewRecord(&tt.m, "orders", tt.keys)
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
		if !r.Keys.verify(*o.Attributes[StateAttribute].StringValue, "body") {
			t.Fatalf("with %d bytes the signature is wrong", limit)
		}
	}
}
