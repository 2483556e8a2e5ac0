package kafkashare

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// The id and the Watermill UUID of a record have its timestamp, as in consumer groups. A message that waited keeps the id in its
// headers, also one of an older form.
func TestIDsHaveTheTimestamp(t *testing.T) {
	at := time.UnixMilli(1764316800123)
	for want, c := range map[string]struct {
		rec   *kgo.Record
		state *redeliver.State
	}{
		"orders/2/17@1764316800123": {&kgo.Record{Topic: "orders", Partition: 2, Offset: 17, Timestamp: at}, nil},
		"derived:orders/2/17":       {&kgo.Record{Topic: "orders", Partition: 2, Offset: 17, Timestamp: time.UnixMilli(-1)}, nil},
		"4711":                      {&kgo.Record{Topic: "orders", Timestamp: at, Headers: []kgo.RecordHeader{{Key: UUIDHeader, Value: []byte("4711")}}}, nil},
		"orders/2/17":               {&kgo.Record{Topic: "orders", Partition: 2, Offset: 17, Timestamp: at}, &redeliver.State{ID: "orders/2/17"}},
	} {
		codec := codec{layout: &layout{origin: "orders", group: "billing"}}
		m := &driver.Message[*kgo.Record]{Record: c.rec, State: c.state}
		msg, err := toWatermill(DefaultMarshaler{})(m)
		if err != nil || msg.UUID != want {
			t.Errorf("the UUID is %q, %v; want %q", msg.UUID, err, want)
		}
		var st redeliver.State
		if codec.State(m, &st); c.state == nil && st.ID != want {
			t.Errorf("the id is %q, want %q", st.ID, want)
		}
	}
}
