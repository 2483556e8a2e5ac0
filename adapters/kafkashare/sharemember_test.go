package kafkashare

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

const testTimeout = time.Minute // of every wait

// openFake opens a client of the share group billing on a cluster with one broker and the topics.
func openFake(t *testing.T, partitions int32, topics ...string) (*kfake.Cluster, *client) {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(partitions, topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	cfg := Config{Brokers: cluster.ListenAddrs(), Group: "billing", Clients: 1, Sink: redeliver.SinkFunc(func(redeliver.Event) {})}
	c := &client{cfg: cfg.withDefaults()}
	cl, err := c.newClient()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := (admin{cl}).configureGroup(t.Context(), cfg.Group, map[string]string{lockSetting: "30000"}); err != nil { // the fake has no defaults
		t.Fatal(err)
	}
	if c, err = openClient(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mq.NewClient(c).Close(context.Background()) })
	return cluster, c
}

// If a member stayed in its poll after a refused ack, nobody would read its partitions.
func TestABrokenMemberEndsWhileItPolls(t *testing.T) {
	t.Parallel()
	cluster, c := openFake(t, 1, "orders")
	polls := make(chan struct{}, 1)
	cluster.ControlKey(kmsg.ShareFetch.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		select {
		case polls <- struct{}{}:
		default:
		}
		return nil, nil, false
	})
	r, err := c.openReader(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	m, err := r.joinShareGroup(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.start(nil)
	defer func() { _ = m.close() }()
	defer close(m.flushed) // ends renew
	m.Accept(1)
	deadline := time.After(testTimeout)
	select {
	case <-polls:
	case <-deadline:
		t.Fatal("the member does not poll")
	}
	m.fail(errors.New("refused"))
	select {
	case _, more := <-m.Messages():
		if more {
			t.Error("a message came")
		}
	case <-deadline:
		t.Error("the member is broken and still polls")
	}
}

// A record whose lock ends before the next renewal goes back, because another member would get it, too. A record at its
// last delivery stays, because the broker would drop it.
func TestALateRecordGoesBackUnlessItWouldBeDropped(t *testing.T) {
	t.Parallel()
	group := groupSettings{lockDuration: 30 * time.Second, deliveryLimit: 10}
	for _, c := range []struct {
		delivery int32
		lock     time.Duration // time until its end
		want     bool
	}{
		{1, 30 * time.Second, false},
		{1, 10 * time.Second, false},
		{1, 10*time.Second - 1, true},
		{9, -time.Second, true},
		{10, 5 * time.Second, false},
		{10, -time.Second, false},
		{11, -time.Second, false}, // the limit was lowered
	} {
		if got := group.isLate(c.delivery, c.lock); got != c.want {
			t.Errorf("delivery %d with a lock of %s goes back: %t, want %t", c.delivery, c.lock, got, c.want)
		}
	}
}
