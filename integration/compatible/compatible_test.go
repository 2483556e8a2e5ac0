//go:build prove

package main

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
)

// A few tests of the kit and the loss suite run on a broker that is given by its address, and leave nothing.
func TestByAddress(t *testing.T) {
	addrs := brokers.RequireKafka(t)
	const some = "^(TestConformanceCompatible|TestLossKafkaCompatible)$/^(ARetryThatSucceedsIsCommitted|GroupsDoNotSeeEachOthersRetries)$"
	for _, c := range []struct{ tests, passed string }{
		{some, "pass TestConformanceCompatible/GroupsDoNotSeeEachOthersRetries"},
		{"^TestLossKafkaCompatible$", "pass TestLossKafkaCompatible"},
	} {
		var out strings.Builder
		err := run(t.Context(), []string{"--broker", strings.Join(addrs, ","), "--run", c.tests}, &out)
		if err != nil || !strings.Contains(out.String(), c.passed) || !strings.Contains(out.String(), "groups are deleted") {
			t.Errorf("%s: %v\n%s", c.tests, err, out.String())
		}
		_, rest, _ := strings.Cut(out.String(), "contain ")
		prefix, _, _ := strings.Cut(rest, ".\n")
		wantNothingLeft(t, addrs, prefix)
	}
	if err := run(t.Context(), nil, new(strings.Builder)); err == nil {
		t.Error("it runs without an address")
	}
}

func wantNothingLeft(t *testing.T, addrs []string, prefix string) {
	t.Helper()
	if !strings.HasPrefix(prefix, "redeliver-test-") {
		t.Fatalf("the prefix is %q", prefix)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	groups, err := admin.ListGroups(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(topics.Names(), groups.Groups()...) {
		if strings.Contains(name, prefix) {
			t.Errorf("%s is left", name)
		}
	}
}
