package sqs

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/internal/statekeys"
)

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
	p := &client{cfg: Config{Marshaler: DefaultMarshaler{}, StateKeys: [][]byte{[]byte("sixteen bytes...")}}}
	msg := delayedMessage(t)
	o, err := p.composeMessage("orders", &api.Queue{Name: "orders", MaxSize: 4096}, msg)
	if err != nil {
		t.Fatal(err)
	}
	text := aws.ToString(o.Attributes[StateAttribute].StringValue)
	signed := types.Message{Body: &o.Body, MessageAttributes: o.Attributes}
	if _, c := wire.NewRecord(&signed, "orders", statekeys.Waiting, p.cfg.StateKeys); c == nil || !strings.Contains(text, `"mac"`) {
		t.Errorf("the state is %q", text)
	}
}

func delayedMessage(t *testing.T) *message.Message {
	t.Helper()
	msg := message.NewMessage("u-7", message.Payload("later"))
	delay.Message(msg, delay.For(time.Hour))
	return msg
}
