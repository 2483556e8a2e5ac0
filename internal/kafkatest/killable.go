package kafkatest

import (
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
)

// KillableConfig returns a client's configuration for a member of group. kill cuts its connections and ends its
// membership, as a crash does.
func KillableConfig(tb testing.TB, addrs []string, group string) (cfg *sarama.Config, kill func()) {
	tb.Helper()
	k := &harness{addrs: addrs, guard: &produceGuard{}}
	k.client = k.connect(tb)
	k.admin = kadm.NewClient(k.client)
	dialer := newKillableDialer(k.guard)
	return clientConfig(dialer), func() { k.killMember(group, dialer) }
}
