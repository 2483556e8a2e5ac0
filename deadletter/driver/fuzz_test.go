package driver_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/deadletter/driver"
	msgdriver "github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// FuzzRead parses the headers of a message in a DLQ from lines "name=value". No header is lost, whatever the headers
// contain, and everything that was read can be written.
func FuzzRead(f *testing.F) {
	f.Add("kafka_dlt-original-topic=orders\nkafka_dlt-original-partition=\x00\x00\x00\x01\nkafka_dlt-original-offset=\x00\x00\x00\x00\x00\x00\x00\x07\nkafka_dlt-exception-fqcn=a.B\ncustomer=17")
	f.Add("kafka_dlt-original-partition=\xff\xff\xff\xff\nkafka_dlt-original-offset=1\nkafka_dlt-original-timestamp=\x7f\xff\xff\xff\xff\xff\xff\xff")
	f.Add("__connect.errors.topic=orders\n__connect.errors.partition=-1\n__connect.errors.offset=99999999999999999999\n__connect.errors.stage=VALUE_CONVERTER")
	f.Add(`x-death=[{"count":9223372036854775807,"reason":"rejected","queue":"orders","time":"2026-01-31T12:00:00Z"},{"count":-1,"queue":"orders"}]`)
	f.Add("x-first-death-queue=orders\nx-death=[null]\nx-death={}")
	f.Add("DeadLetterQueueSourceArn=arn:aws:sqs:eu-central-1:1:orders\nDeadLetterQueueSourceArn=:")
	f.Add("reason_poisoned=http://user:pass@host/\ntopic_poisoned=refunds\nhandler_poisoned=charge\nkafka_dlt-original-topic=x")
	f.Add("redeliver-id=fallback\nredeliver-replays=2\ncustomer=17\nredeliver-id=fallback")
	info := deadletter.Info{DLQ: "orders.billing.dlq", Origin: "orders", Group: "billing"}
	f.Fuzz(func(t *testing.T, block string) {
		m := &deadletter.Message{}
		for line := range strings.SplitSeq(block, "\n") {
			name, value, _ := strings.Cut(line, "=")
			m.Headers = append(m.Headers, deadletter.Header{Name: name, Value: []byte(value)})
		}
		before := slices.Clone(m.Headers)
		driver.ReadHeaders(m, info, nil, func() string { return "fallback" })
		if len(m.Headers)+len(m.Foreign) != len(before) {
			t.Fatalf("of %d headers %d are the user's and %d the writer's", len(before), len(m.Headers), len(m.Foreign))
		}
		if m.Writer == deadletter.WriterUnknown && len(m.Foreign) > 0 && m.State.Replays == 0 {
			t.Errorf("%q was never written", m.Foreign)
		}
		if m.ID != "fallback" || m.State.ID != m.ID {
			t.Errorf("it has the id of a foreign header, %q", m.ID)
		}
		if !utf8.ValidString(m.State.Error) || len(m.State.Error) > limits.MaxErrorText {
			t.Errorf("its error is %q", m.State.Error)
		}
		if m.State.Group != info.Group && m.Mismatch == "" || m.State.Origin != info.Origin && m.Mismatch == "" {
			t.Errorf("group %q, origin %q: not those of the DLQ, and no mismatch", m.State.Group, m.State.Origin)
		}
		if _, found := msgdriver.ParseHeaders(m.State.Group, msgdriver.AppendStateHeaders(m.State, nil)); len(found) > 0 {
			t.Errorf("a header that redeliver wrote is a finding: %v", found)
		}
		deadletter.Fingerprint(m)
	})
}
