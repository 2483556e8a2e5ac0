package sqs

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
)

// A signed state is only trusted for its own body and by processes that have its key.
func TestStateKeys(t *testing.T) {
	oldKey, newKey := []byte("the old key of 24 bytes."), []byte("the new key of 24 bytes.")
	st := redeliver.State{ID: "u-1", Group: "orders", Origin: "orders", Attempts: 2}
	copyOf := func(keys stateKeys) types.Message {
		r := recordOfParts("body", nil, nil)
		r.keys = keys
		o, ok := r.waitingCopy(&st, 4096)
		if !ok {
			t.Fatal("the state leaves no room")
		}
		return types.Message{MessageId: aws.String("m"), Body: &o.body, MessageAttributes: o.attributes}
	}
	alter := func(m types.Message, old, with string) types.Message {
		value := *m.MessageAttributes[StateAttribute].StringValue
		if !strings.Contains(value, old) {
			t.Fatalf("%s is not in %s", old, value)
		}
		m.MessageAttributes = map[string]types.MessageAttributeValue{StateAttribute: textAttribute(strings.Replace(value, old, with, 1))}
		return m
	}
	otherBody := copyOf(stateKeys{oldKey})
	otherBody.Body = aws.String("another body")
	for name, tt := range map[string]struct {
		m        types.Message
		keys     stateKeys
		believed bool
	}{
		"signed, same key":              {copyOf(stateKeys{oldKey}), stateKeys{oldKey}, true},
		"signed, key became the second": {copyOf(stateKeys{oldKey}), stateKeys{newKey, oldKey}, true},
		"signed, key added as second":   {copyOf(stateKeys{newKey, oldKey}), stateKeys{oldKey, newKey}, true},
		"signed, key removed":           {copyOf(stateKeys{oldKey}), stateKeys{newKey}, false},
		"signed, reader without keys":   {copyOf(stateKeys{oldKey}), nil, true},
		"unsigned":                      {copyOf(nil), stateKeys{oldKey}, false},
		"unsigned, reader without keys": {copyOf(nil), nil, true},
		"attempt changed":               {alter(copyOf(stateKeys{oldKey}), `"attempt":"2"`, `"attempt":"0"`), stateKeys{oldKey}, false},
		"a field added after the mac":   {alter(copyOf(stateKeys{oldKey}), `="}`, `=","id":"x"}`), stateKeys{oldKey}, false},
		"another message's state":       {otherBody, stateKeys{oldKey}, false},
		"an empty mac":                  {alter(copyOf(nil), `}`, `,"mac":""}`), stateKeys{oldKey}, false},
		"shorter than a mac":            {alter(copyOf(nil), *copyOf(nil).MessageAttributes[StateAttribute].StringValue, `{}`), stateKeys{oldKey}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, c := newRecord(&tt.m, "orders", DefaultMarshaler{}, tt.keys)
			if (c != nil) != tt.believed {
				t.Fatalf("accepted: %v, want %v", c != nil, tt.believed)
			}
			if found := foreignAttributes(&r.native); (len(found) == 0) != tt.believed {
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
		r.keys = stateKeys{[]byte("sixteen bytes...")}
		o, ok := r.waitingCopy(&st, limit)
		if !ok {
			continue
		}
		if o.size() > limit {
			t.Fatalf("%d bytes, at most %d are allowed", o.size(), limit)
		}
		if !r.keys.verify(*o.attributes[StateAttribute].StringValue, "body") {
			t.Fatalf("with %d bytes the signature is wrong", limit)
		}
	}
}

// Errors about keys name the setting, not the key.
func TestShortStateKeysAreRefused(t *testing.T) {
	c := Config{StateKeys: [][]byte{[]byte("long enough, with room to spare"), []byte("hunter22")}}.withDefaults()
	err := c.validate()
	if err == nil || !strings.Contains(err.Error(), "StateKeys[1]") || !strings.Contains(err.Error(), "16") || strings.Contains(err.Error(), "hunter22") {
		t.Errorf("the error is %v", err)
	}
}

// The Publisher signs a delayed publish, which then waits. The same attribute without a signature belongs to the
// sender.
func TestDelayedPublishIsSigned(t *testing.T) {
	p := &Publisher{client: &Client{cfg: Config{Marshaler: DefaultMarshaler{}, StateKeys: [][]byte{[]byte("sixteen bytes...")}}}}
	msg := delayedMessage(t)
	o, err := p.composeMessage("orders", &queue{name: "orders", maxSize: 4096}, msg)
	if err != nil {
		t.Fatal(err)
	}
	if v := aws.ToString(o.attributes[StateAttribute].StringValue); !stateKeys(p.client.cfg.StateKeys).verify(v, o.body) || !strings.Contains(v, `"mac"`) {
		t.Errorf("the state is %q", v)
	}
}

func delayedMessage(t *testing.T) *message.Message {
	t.Helper()
	msg := message.NewMessage("u-7", message.Payload("later"))
	delay.Message(msg, delay.For(time.Hour))
	return msg
}
