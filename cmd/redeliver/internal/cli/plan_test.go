package cli_test

import (
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	args := []string{"plan", "--topic", "payments", "--group", "billing", "--retries", "2", "--backoff", "steps:10s,1m30s"}
	before := s.everything()
	text := s.run(args...).want(t, 0)
	for _, want := range []string{"payments.billing.retry.1m30s", "payments.billing.dlq", "delay topic 1m30s", "longest wait"} {
		if !strings.Contains(text.out, want) {
			t.Errorf("the plan lacks %q:\n%s", want, text.out)
		}
	}
	plan := s.run(append(args, "--output", "json")...).want(t, 0).object(t)
	delays := plan["delays"].([]any)
	if len(delays) != 2 || plan["broker"] != "kafka" || plan["origin"] != "payments" || plan["group"] != "billing" {
		t.Fatalf("%v", plan)
	}
	if d := delays[1].(map[string]any); d["retry"] != 2.0 || d["after"] != "1m30s" || d["jitter"] != "0s" || len(d["hops"].([]any)) != 1 || d["mechanism"] == "" {
		t.Errorf("%v", d)
	}
	kinds := make(map[string]int)
	for _, p := range plan["places"].([]any) {
		place := p.(map[string]any)
		kinds[place["kind"].(string)]++
		if place["exists"] != false || place["settings"].(map[string]any)["cleanup.policy"] != "delete" || place["partitions"] == 0.0 {
			t.Errorf("%v", place)
		}
	}
	if kinds["delay"] < 2 || kinds["retry"] != 1 || kinds["dlq"] != 1 {
		t.Errorf("%v", kinds)
	}
	if after := s.everything(); len(after) != len(before) {
		t.Errorf("there were topics %v and now are %v", before, after)
	}
	// A policy that the broker cannot implement is a failure, and an invalid policy is wrong usage.
	s.run("plan", "--topic", "orders", "--group", "billing").want(t, 1, "max.message.bytes")
	s.run("plan", "--topic", "payments", "--group", "billing", "--backoff", "fixed:9000h").want(t, 2, "must not be longer")
	s.run("plan", "--topic", "payments").want(t, 2, "--group")
	s.run("plan", "--topic", "nosuch", "--group", "billing").want(t, 1, "nosuch")
	if got := s.run("plan", "--topic", "payments", "--group", "billing", "--retries", "0").want(t, 0); strings.Contains(got.out, "delay topic") {
		t.Errorf("a plan without retries waits:\n%s", got.out)
	}
}
