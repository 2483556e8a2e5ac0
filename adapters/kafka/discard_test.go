package kafka_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
)

func TestDiscardCreatesNoDLQ(t *testing.T) {
	t.Parallel()
	addrs := fake(t, "orders").ListenAddrs()
	cl := independent(t, addrs)
	discarded := make(chan redeliver.Discarded, 1)
	var mu sync.Mutex
	var dead []redeliver.Event
	client, _ := openClient(t, kafka.Config{
		Brokers: addrs, Group: "billing", Policy: quick(1), DLQ: deadletter.Config{Discard: true},
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.Discarded:
				discarded <- e
			case redeliver.DeadLettered, redeliver.PublishFailed:
				mu.Lock()
				defer mu.Unlock()
				dead = append(dead, e)
			}
		}),
	})
	msgs, err := client.Subscriber().Subscribe(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for msg := range msgs {
			msg.Nack()
		}
	}()
	if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if e := <-discarded; e.State.Reason != redeliver.ReasonExhausted || e.State.Attempts != 2 {
		t.Errorf("discarded: %+v", e)
	}
	mu.Lock()
	if len(dead) > 0 {
		t.Errorf("there were the events %+v", dead)
	}
	mu.Unlock()
	p, err := client.Plan(t.Context(), "orders")
	if err != nil || !slices.ContainsFunc(p.Notes, func(n string) bool { return strings.Contains(n, "there is no DLQ") }) {
		t.Errorf("the plan is %+v, %v", p, err)
	}
	existing, err := kadm.NewClient(cl).ListTopics(t.Context())
	if err != nil || !existing.Has("orders.billing.retry") {
		t.Errorf("there are the topics %v, %v", existing.Names(), err)
	}
	for _, name := range existing.Names() {
		if strings.Contains(name, ".dlq") {
			t.Errorf("there is the topic %s", name)
		}
	}
	for _, r := range slices.Concat(p.Rights, p.OperatorRights) {
		if strings.Contains(r.Name, ".dlq") {
			t.Errorf("the plan has the right %+v", r)
		}
	}
}
