package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// service is the policy of the service, as flags.
var service = []string{"--topic", "orders", "--group", "billing", "--retries", "2", "--backoff", "steps:1s,1m", "--levels", "1s,1m"}

func TestPruneRemovesOnlyDrainedLevels(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.writeWaiting() // five messages on 1h
	s.topics("orders.billing.retry.1s", "orders.billing.retry.10m", "orders.billing.retry.20m")
	prune := func(more ...string) ending {
		t.Helper()
		return s.run(append(append([]string{"prune"}, service...), more...)...)
	}
	levels := func() (left []string) {
		t.Helper()
		cl, err := kgo.NewClient(kgo.SeedBrokers(s.broker.ListenAddrs()...)) // the other client caches topics
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		there, err := kadm.NewClient(cl).ListTopics(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range there.Names() {
			if level, ok := strings.CutPrefix(name, "orders.billing.retry."); ok {
				left = append(left, level)
			}
		}
		return left
	}
	all := []string{"10m", "1h", "1s", "20m"}
	would := prune("--dry-run", "--output", "json").want(t, 0).objects(t)
	if len(would) != 3 || would[0]["place"] != "orders.billing.retry.10m" || would[0]["drained"] != true || would[0]["removed"] != false || would[0]["level"] != "10m" ||
		would[0]["messages"] != 0.0 || would[0]["group"] != "billing" || would[2]["drained"] != false || would[2]["keep"] != "5 messages wait on it" || would[2]["messages"] != 5.0 {
		t.Errorf("%v", would)
	}
	prune().want(t, 2, "--yes")
	s.with(call{in: strings.NewReader("n\n"), terminal: true}, append([]string{"prune"}, service...)...).want(t, 1, "Remove 2 empty levels of orders", "not confirmed")
	s.run("prune", "--topic", "orders", "--group", "billing", "--yes").want(t, 2, "no policy given")
	s.run(append([]string{"prune", "--yes"}, service[4:]...)...).want(t, 2, "missing required flag --topic")
	s.run(append([]string{"prune", "--yes", "--topic", "orders"}, service[4:]...)...).want(t, 2, "missing required flag --group")
	if got := levels(); !slices.Equal(got, all) {
		t.Fatalf("the levels are %q, want %q", got, all)
	}
	done := prune("--yes").want(t, 5, "1 of 3 levels of an older policy remain").out
	if !strings.Contains(done, "5 messages wait on it") || strings.Count(done, "removed") != 2 {
		t.Error(done)
	}
	if got := levels(); !slices.Equal(got, []string{"1h", "1s"}) {
		t.Errorf("the levels are %q", got)
	}
}

func TestPruneWhereThereIsNothing(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.run(append([]string{"prune", "--yes"}, service...)...).want(t, 0, "orders has no levels of an older policy")
	if rows := s.run(append([]string{"prune", "--dry-run", "--output", "json"}, service...)...).want(t, 0).objects(t); len(rows) != 0 {
		t.Errorf("%v", rows)
	}
	call{}.run(t, "prune", "--broker", "sqs+http://127.0.0.1:1", "--topic", "orders", "--retries", "3", "--yes").want(t, 1, "SQS has no levels")
}
