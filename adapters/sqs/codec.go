package sqs

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/wire"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
)

// codec reads the parts of a message. It implements driver.Codec.
type codec struct{}

var _ driver.Codec[*delivery] = codec{}

// toWatermill makes the Watermill message of a delivery.
func toWatermill(m *driver.Message[*delivery]) (*message.Message, error) {
	return m.Record.source.client.cfg.Marshaler.Unmarshal(&m.Record.Native)
}

// Key implements [driver.Codec].
func (codec) Key(m *driver.Message[*delivery]) []byte {
	if group, ok := m.Record.Attributes[wire.GroupID]; ok {
		return []byte(group)
	}
	return nil
}

// Body implements [driver.Codec].
func (codec) Body(m *driver.Message[*delivery]) []byte { return m.Record.PublishedBody() }

// Headers implements [driver.Codec].
func (codec) Headers(m *driver.Message[*delivery]) redeliver.Headers { return &m.Record.Record }

// Age implements [driver.Codec].
func (codec) Age(m *driver.Message[*delivery]) (state *redeliver.State, created, expires time.Time) {
	d := m.Record
	if d.state != nil {
		return d.state, time.Time{}, time.Time{}
	}
	return nil, wire.SentAt(&d.Native), d.OwnExpiry()
}

// State implements [driver.Codec].
func (codec) State(m *driver.Message[*delivery], st *redeliver.State) {
	*st = m.Record.source.stateOf(m.Record)
}

// MessageFromContext returns the SQS message behind the message whose handler got
// ctx, as it came first: body, attributes of every type, MessageId, SentTimestamp,
// group and deduplication id. It has no receipt handle; the other system
// attributes are those of the copy in hand. It is nil for a context of another
// message. It must not be changed.
func MessageFromContext(ctx context.Context) *types.Message {
	if d := engine.FromContext(ctx); d != nil {
		if m, ok := d.Record().(*delivery); ok {
			return &m.Native
		}
	}
	return nil
}
