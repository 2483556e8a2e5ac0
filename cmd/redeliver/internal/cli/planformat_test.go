package cli_test

import (
	"strings"
	"testing"
)

// The script for a Kafka administrator is deterministic, sets every setting, and passes the group's name as an
// argument, with any characters.
func TestPlanForKafkasOwnTools(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	plan := func(args ...string) []string {
		return append([]string{"plan", "--topic", "payments", "--group", "bil'ling; $(boom)", "--retries", "1", "--backoff", "fixed:10s", "--levels", "10s"}, args...)
	}
	before := s.everything()
	topics := s.run(plan("--format", "kafka-topics")...).want(t, 0)
	script := strings.ReplaceAll(topics.out, strings.TrimPrefix(s.url, "kafka://"), "HOSTS")
	ending{out: script}.golden(t, "plan-kafka-topics.sh")
	for _, whose := range []string{"consumer", "operator"} {
		acls := s.run(plan("--format", "kafka-acls", "--principal", "User:CN=bill, O=the shop's", "--for", whose)...).want(t, 0)
		script := strings.ReplaceAll(acls.out, strings.TrimPrefix(s.url, "kafka://"), "HOSTS")
		ending{out: script}.golden(t, "plan-kafka-acls-"+whose+".sh")
	}
	acls := s.run(plan("--format", "kafka-acls", "--principal", "User:b", "--order", "through-retries")...).want(t, 0)
	if !strings.Contains(acls.out, "Without NoProvisioning it also needs Alter on the delay and retry topics") {
		t.Errorf("the script does not name the right that adding partitions needs:\n%s", acls.out)
	}
	if after := s.everything(); len(after) != len(before) {
		t.Errorf("there were topics %v and now are %v", before, after)
	}
	for args, says := range map[string]string{
		"--format kafka-acls":                                 "User:billing",
		"--format kafka-acls --principal billing":             "User:billing",
		"--format kafka-acls --principal User:b --for nobody": "--for",
		"--format kafka-acls --principal User:b --group *":    "reads as every name",
		"--format rabbitmq-definitions":                       "for RabbitMQ, and the broker is Kafka",
		"--format iam":                                        "for SQS",
		"--format terraform":                                  "must be one of kafka-topics, kafka-acls, rabbitmq-definitions, sqs-cloudformation, iam",
	} {
		s.run(plan(strings.Fields(args)...)...).want(t, 2, says)
	}
	s.run(plan("--format", "kafka-acls", "--principal", "User:b", "--group", "a\x1bb")...).want(t, 2, "control characters")
	s.run(plan("--format", "kafka-acls", "--principal", "User:b", "--group", " b")...).want(t, 2, "spaces")
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	args := []string{"doctor", "--topic", "orders", "--group", "billing"}
	// The DLQ and the retry topic of the test have only their two partitions.
	well := s.run(args...).want(t, 3, "problems found")
	for _, want := range []string{"settings", "orders.billing.dlq", "max.message.bytes", "checked", "not checked", "the policy of the group is not given"} {
		if !strings.Contains(well.out, want) {
			t.Errorf("the table lacks %q:\n%s", want, well.out)
		}
	}
	row := s.run(append(args, "--output", "json", "--retries", "2", "--backoff", "steps:10s,1m30s")...).want(t, 3).object(t)
	missing := 0
	for _, f := range row["findings"].([]any) {
		f := f.(map[string]any)
		if f["kind"] == "missing" && strings.HasPrefix(f["place"].(string), "orders.billing.retry.") && f["text"] != "" {
			missing++
		}
	}
	if row["broker"] != "kafka" || row["origin"] != "orders" || row["group"] != "billing" || missing < 2 || len(row["checked"].([]any)) < 3 || len(row["not_checked"].([]any)) != 0 {
		t.Errorf("%v", row)
	}
	s.run("doctor", "--topic", "orders").want(t, 2, "--group")
	s.run("doctor", "--group", "billing").want(t, 2, "--topic")
	s.run(append(args, "--late", "-1s")...).want(t, 2, "--late")
	s.run("doctor", "--topic", "nosuch", "--group", "billing").want(t, 1, "nosuch")
}
