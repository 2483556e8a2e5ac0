package kafkashare_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/mq"
)

func problems(t *testing.T, err error) (fields []string) {
	t.Helper()
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatalf("%v is no redeliver.ConfigError", err)
	}
	for _, p := range refused.Problems {
		fields = append(fields, p.Field)
	}
	return fields
}

func TestAConfigurationIsRefusedWithAllItsProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  kafkashare.Config
		want []string
	}{
		"nothing":      {kafkashare.Config{}, []string{"Brokers", "Group"}},
		"a long id":    {kafkashare.Config{Brokers: []string{"b:1"}, Group: strings.Repeat("g", 250)}, []string{"Group + -retry"}},
		"no numbers":   {kafkashare.Config{Brokers: []string{"b:1"}, Group: "g", Clients: -1, MaxInFlight: -1, DrainTimeout: -1}, []string{"MaxInFlight", "MaxRetriesInFlight", "DrainTimeout", "Clients"}},
		"a long drain": {kafkashare.Config{Brokers: []string{"b:1"}, Group: "g", DrainTimeout: 41 * time.Second}, []string{"DrainTimeout"}},
		"orders": {kafkashare.Config{
			Brokers: []string{"b:1"}, Group: "g", Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries},
			Topics: map[string]redeliver.Policy{"orders": {Order: redeliver.OrderBlocking, Backoff: redeliver.Steps(time.Second)}},
		}, []string{"Policy.Order", `Topics["orders"].Order`}},
	} {
		_, err := kafkashare.Open(t.Context(), c.cfg)
		if got := problems(t, err); !slices.Equal(got, c.want) {
			t.Errorf("%s: the problems are %v, want %v: %v", name, got, c.want, err)
		}
	}
}

func TestACallIsRefusedWithAllItsProblems(t *testing.T) {
	t.Parallel()
	cfg := kafkashare.Config{Marshaler: kafkashare.DefaultMarshaler{}, NackDelay: time.Second, Group: "g"}
	common := []string{"Marshaler", "NackDelay", "topics[1]", "handler"}
	err := kafkashare.Consume(t.Context(), cfg, []string{"orders", "orders"}, nil)
	if got, want := problems(t, err), slices.Concat(common, []string{"Brokers"}); !slices.Equal(got, want) {
		t.Errorf("the problems are %v, want %v: %v", got, want, err)
	}
	err = kafkashare.ConsumeBatch(t.Context(), cfg, []string{"orders", "orders"}, redeliver.BatchConfig{Size: 200}, nil)
	if got, want := problems(t, err), slices.Concat(common, []string{"BatchConfig.Size", "Brokers"}); !slices.Equal(got, want) {
		t.Errorf("the problems are %v, want %v: %v", got, want, err)
	}
}

// Brokers of Kafka 4.1 list the requests of share groups, and share groups are off.
func TestABrokerWithoutShareGroupsIsRefused(t *testing.T) {
	t.Parallel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.MaxVersions(kversion.V4_1_0()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	_, err = kafkashare.Open(t.Context(), kafkashare.Config{Brokers: c.ListenAddrs(), Group: "billing"})
	if got, want := problems(t, err), []string{"share.version", "ShareFetch"}; !slices.Equal(got, want) {
		t.Errorf("the problems are %v, want %v: %v", got, want, err)
	}
}

func TestTheDefaultMarshalerKeepsAMessage(t *testing.T) {
	t.Parallel()
	msg := message.NewMessage("4711", []byte("body"))
	msg.Metadata.Set("trace", "t")
	kafkashare.SetKey(msg, []byte("customer"))
	rec, err := kafkashare.DefaultMarshaler{}.Marshal("orders", msg)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Topic != "orders" || string(rec.Key) != "customer" {
		t.Errorf("marshaled as %+v", rec)
	}
	back, err := kafkashare.DefaultMarshaler{}.Unmarshal(rec)
	if err != nil || !back.Equals(msg) {
		t.Errorf("came back as %+v, %v", back, err)
	}
	rec.Value = append(rec.Value[:0], "hand"...)
	if string(back.Payload) != "body" {
		t.Error("the message shares the record's bytes")
	}
}

var (
	_ message.Subscriber           = (*mq.Subscriber)(nil)
	_ message.SubscribeInitializer = (*mq.Subscriber)(nil)
	_ message.Publisher            = (*mq.Publisher)(nil)
)
