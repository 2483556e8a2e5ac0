package kafkashare_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// A record of a few kilobytes can have millions of headers, each of which would be copied for the handler, the retry and
// the DLQ.
func TestARecordWithTooManyHeadersIsAStub(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	seen := newEvents()
	s, origin, group := openService(t, kafkatest.NewShare(t, addrs), seen)
	ids := handle(t, s, origin)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DefaultProduceTopic(origin))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	level := origin + "." + group + ".retry"
	waits := redeliver.State{ID: "waits", Group: group, Origin: origin, Attempts: 1}
	dust := &kgo.Record{Topic: level, Value: []byte("x"), Headers: make([]kgo.RecordHeader, 10_065)}
	for _, h := range driver.AppendStateHeaders(waits, nil) {
		dust.Headers = append(dust.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
	}
	id := func(text string) kgo.RecordHeader {
		return kgo.RecordHeader{Key: "_watermill_message_uuid", Value: []byte(text)}
	}
	err = cl.ProduceSync(t.Context(),
		&kgo.Record{Value: []byte("x"), Headers: append(make([]kgo.RecordHeader, 10_000), id("dust"))},
		&kgo.Record{Value: []byte("x"), Headers: append(make([]kgo.RecordHeader, 9_999), id("behind"))}, dust).FirstErr()
	if err != nil {
		t.Fatal(err)
	}
	for _, attempts := range []int{0, 1} {
		d := await(t, seen, func(e redeliver.DeadLettered) bool { return e.State.Attempts == attempts })
		if st := d.State; st.Reason != redeliver.ReasonUndecodable || !strings.HasPrefix(st.Truncated, "1 sha256:") || !strings.Contains(st.Error, "headers") {
			t.Errorf("dead-lettered as %+v", st)
		}
	}
	await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == "behind" })
	if got := ids(); !slices.Equal(got, []string{"behind"}) {
		t.Errorf("%q have run", got)
	}
}
