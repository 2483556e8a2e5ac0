package topology

import (
	"sync/atomic"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/internal/engine"
)

// After a restore another broker may list the topics, and not know all of them. A member with OrderThroughRetries used to panic.
func TestARestoreOnABrokerThatDoesNotKnowTheOriginIsAnError(t *testing.T) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fake.Close)
	client, err := sarama.NewClient(fake.ListenAddrs(), sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() }) // closes client, too
	lists := new(atomic.Int32)
	fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		fake.KeepControl()
		m, _ := req.(*kmsg.MetadataRequest)
		return req.ResponseKind(), nil, m.Topics == nil && lists.Add(1) == 2
	})
	k := NewKeeper(&Provisioner{Admin: cluster.Admin{Client: client, Sarama: admin}}, &Layout{
		Origin: "orders", Group: "billing", Policy: redeliver.Policy{Order: redeliver.OrderThroughRetries}.WithDefaults(),
		Topics: []Topic{{Name: "orders.billing.retry", Kind: Retry, Partitions: 1, Replicas: 1}},
	}, &engine.Subscription{}, func(what string, _ redeliver.Change, _ string, err error) { t.Errorf("%s: %v", what, err) })
	if _, err := k.CheckTopics(); err == nil || lists.Load() != 2 {
		t.Errorf("error %v after %d lists of all topics", err, lists.Load())
	}
}
