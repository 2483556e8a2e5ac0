package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// The user chooses how long dead letters are kept, even if that is less than the policy's longest wait needs.
func TestAnyRetentionOfADLQIsAccepted(t *testing.T) {
	t.Parallel()
	const fourDays = 96 * time.Hour
	for name, c := range map[string]struct {
		exists  string // retention.ms of the existing DLQ
		asked   time.Duration
		want    string // retention.ms in the end
		refused bool
	}{
		"made as asked":           {asked: fourDays, want: "345600000"},
		"made to keep":            {want: "-1"},
		"there, and nothing said": {exists: "345600000", want: "345600000"},
		"there as asked":          {exists: "345600000", asked: fourDays, want: "345600000"},
		"there otherwise":         {exists: "-1", asked: fourDays, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addrs := fake(t, "orders").ListenAddrs()
			adm := kadm.NewClient(independent(t, addrs))
			if c.exists != "" {
				size, never := "2000000", "-1"
				kafkatest.MakeTopic(t, adm, 4, map[string]*string{"retention.ms": &c.exists, "retention.bytes": &never, "max.message.bytes": &size}, "orders.billing.dlq")
			}
			client, _ := openClient(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), DLQ: deadletter.Config{Retention: c.asked}})
			_, err := client.Plan(t.Context(), "orders")
			if c.refused {
				if err == nil || !strings.Contains(err.Error(), "DLQ.Retention") {
					t.Errorf("it is not refused: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := client.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			all, err := adm.DescribeTopicConfigs(t.Context(), "orders.billing.dlq")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all[0].Configs {
				if e.Key == "retention.ms" && *e.Value != c.want {
					t.Errorf("retention.ms is %s, want %s", *e.Value, c.want)
				}
			}
		})
	}
}
