package sidecar

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
)

func (r *runner) sqs(ctx context.Context) error {
	own, err := r.Broker.AWS(ctx)
	if err != nil {
		return err
	}
	c := sqs.Config{
		AWS: own, Endpoint: r.Broker.Endpoint(), Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight, MinInFlight: r.MinInFlight,
		DrainTimeout: r.Drain, NoProvisioning: r.NoProvisioning, DLQ: r.DLQ, StateKeys: r.Broker.StateKeys, Sink: r.Sink,
	}
	if r.Batch.Size == 0 {
		return sqs.Consume(ctx, c, r.Topics, func(ctx context.Context, m types.Message) error {
			state, _ := redeliver.FromContext(ctx)
			return r.handleOne(ctx, fromSQS(state, &m))
		})
	}
	return sqs.ConsumeBatch(ctx, c, r.Topics, r.Batch, func(ctx context.Context, b *sqs.Batch) error {
		return handleAll(ctx, r, b.Messages, func(m *sqs.BatchMessage) *Message { return fromSQS(m.State(), &m.Record) })
	})
}

// systemNames are SQS system attributes for programs, with the names that programs see.
var systemNames = []struct {
	attribute types.MessageSystemAttributeName
	name      string
}{
	{types.MessageSystemAttributeNameMessageGroupId, "Message-Group-Id"},
	{types.MessageSystemAttributeNameMessageDeduplicationId, "Message-Deduplication-Id"},
	{types.MessageSystemAttributeNameSequenceNumber, "Sequence-Number"},
	{types.MessageSystemAttributeNameAWSTraceHeader, "Aws-Trace-Header"},
}

func fromSQS(state redeliver.State, s *types.Message) *Message {
	m := &Message{
		State: state, Body: []byte(aws.ToString(s.Body)),
		Properties: []Header{{"Message-Id", aws.ToString(s.MessageId)}},
	}
	if ms, err := strconv.ParseInt(s.Attributes[string(types.MessageSystemAttributeNameSentTimestamp)], 10, 64); err == nil {
		m.Timestamp = time.UnixMilli(ms)
	}
	for _, n := range systemNames {
		if value := s.Attributes[string(n.attribute)]; value != "" {
			m.Properties = append(m.Properties, Header{n.name, value})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.MessageAttributes)) {
		v := s.MessageAttributes[name]
		value := aws.ToString(v.StringValue)
		if v.StringValue == nil {
			value = string(v.BinaryValue)
		}
		m.Headers = append(m.Headers, Header{name, value})
	}
	return m
}
