package kafka_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

// A dead letter says in Watermill's names what happened, and is replayed without them.
func TestADeadLetterSpeaksWatermillsDialect(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, ev := open(t, kafka.Config{
		Brokers: addrs, Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}, DeadLetterHeaders: deadletter.WatermillHeaders,
	})
	replayed := make(chan message.Metadata, 1)
	route(t, c, "orders", func(msg *message.Message) error {
		if st, _ := redeliver.FromContext(msg.Context()); st.Replays > 0 {
			replayed <- msg.Metadata
			return nil
		}
		return errDeclined
	})
	rec := order("orders", "a")
	// One of the user's own, as of a poison queue before: it stays the user's.
	rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: middleware.ReasonForPoisonedKey, Value: []byte("an older reason")})
	write(t, addrs, rec)
	ev.await(t, 1, is[redeliver.DeadLettered])
	said := make(map[string]string)
	for _, h := range read(t, addrs, "orders.billing.dlq", 1)[0].Headers {
		said[h.Key] = string(h.Value) // the last counts
	}
	for name, want := range map[string]string{
		middleware.ReasonForPoisonedKey: errDeclined.Error(), middleware.PoisonedTopicKey: "orders",
		middleware.PoisonedHandlerKey: "h", middleware.PoisonedSubscriberKey: "kafka.Subscriber",
	} {
		if said[name] != want {
			t.Errorf("%s is %q, want %q", name, said[name], want)
		}
	}
	q, err := c.DeadLetters(t.Context(), kafka.DeadLetterConfig{Topic: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	replayAll(t, q, ann)
	if got := fmt.Sprint(<-replayed); got != "map[reason_poisoned:an older reason]" {
		t.Errorf("the handler gets %s", got)
	}
}

// Where there is no room for them a dead letter goes without.
func TestADeadLetterThatIsTooLargeSpeaksNoDialect(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, ev := open(t, kafka.Config{
		Brokers: addrs, Group: "billing", Policy: redeliver.Policy{MaxRetries: redeliver.NoRetries}, DeadLetterHeaders: deadletter.SpringHeaders,
	})
	if err := c.Subscriber().SubscribeInitialize("orders"); err != nil {
		t.Fatal(err)
	}
	const most = 20 << 10
	adm := kadm.NewClient(independent(t, addrs))
	limit := fmt.Sprint(most)
	if _, err := adm.AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "max.message.bytes", Value: &limit}}, "orders.billing.dlq"); err != nil {
		t.Fatal(err)
	}
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	const n = 8
	for i := range n { // from one that has room enough to one that has hardly any
		rec := order("orders", fmt.Sprint(i))
		rec.Value = noise(byte(i), most-1800+i*150)
		write(t, addrs, rec)
	}
	ev.await(t, n, is[redeliver.DeadLettered])
	with := 0
	for _, rec := range read(t, addrs, "orders.billing.dlq", n) {
		if slices.ContainsFunc(rec.Headers, func(h kgo.RecordHeader) bool { return strings.HasPrefix(h.Key, "kafka_dlt-") }) {
			with++
		}
	}
	if with == 0 || with == n {
		t.Errorf("%d of %d speak the dialect, want some", with, n)
	}
}

func TestWhereADLQIsOursNothingElseIsNamed(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	c, _ := open(t, kafka.Config{Brokers: addrs, Group: "billing"})
	for field, cfg := range map[string]kafka.DeadLetterConfig{
		"Back":   {Topic: "orders", Back: "orders-retry"},
		"ReadBy": {Topic: "orders", ReadBy: "billing-retry"},
	} {
		if _, err := c.DeadLetters(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if _, err := kafka.Open(t.Context(), kafka.Config{Brokers: addrs, Group: "billing", DeadLetterHeaders: "klingon"}); err == nil || !strings.Contains(err.Error(), "DeadLetterHeaders") {
		t.Errorf("an unknown dialect: %v", err)
	}
}
