package examples_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// The same program does the same on each broker. It has one function that knows the broker.
func TestPortableExample(t *testing.T) {
	t.Parallel()
	for broker, connect := range map[string]func(t *testing.T, topics ...string) (url string){
		"kafka": func(t *testing.T, topics ...string) (url string) {
			for _, topic := range topics {
				url = newKafkaTopic(t, topic).broker
			}
			return url
		},
		"rabbitmq": func(t *testing.T, _ ...string) string { return brokers.RequireRabbitMQ(t).VirtualHost(t).URL() },
		"sqs":      func(t *testing.T, _ ...string) string { return brokers.RequireSQS(t) },
	} {
		t.Run(broker, func(t *testing.T) {
			t.Parallel()
			orders, receipts := newName(), newName()
			env := []string{"BROKER=" + connect(t, orders, receipts), "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=x"}
			p := start(t, env, "portable", orders, receipts)
			lines := p.rest()
			if status := p.status(); status != 0 {
				t.Fatalf("exit status %d", status)
			}
			paused := slices.Index(lines, "paused: the bank moves")
			if paused < 0 {
				t.Fatalf("no pause in %q", lines)
			}
			plan, results := strings.Join(lines[:paused], "\n"), lines[paused+1:]
			if !strings.Contains(plan, orders) || !strings.Contains(plan, "dlq") {
				t.Errorf("the plan names no DLQ of %s:\n%s", orders, plan)
			}
			slices.Sort(results[:min(5, len(results))])
			want := []string{
				"order 1 is charged in attempt 1", "order 2 is charged in attempt 2", "order 3 is dead: no such currency",
				"receipt 1 is filed", "receipt 2 is filed", "replayed: 1", "order 3 is charged in attempt 1",
			}
			if !slices.Equal(results, want) {
				t.Errorf("it prints %q, want %q", results, want)
			}
		})
	}
	if n := strings.Count(fmt.Sprint(source(t, "portable")), "switch scheme"); n != 1 {
		t.Errorf("%d switches on the broker in the source", n)
	}
}
