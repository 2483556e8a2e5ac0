//go:build compatible

package kit_test

import (
	"crypto/rand"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/gotest"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

const partitions = 2 // of an origin

func TestConformanceCompatible(t *testing.T) {
	addrs := brokers.RequireKafka(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	h := kafkatest.New(t, addrs, nil)
	h.Compresses = false // that needs a topic for messages of 105 MB
	// All topics and groups have the prefix by which they are removed.
	h.Origin = func(tb testing.TB, n int) (origin string, groups []string) {
		tb.Helper()
		origin = os.Getenv(gotest.EnvPrefix) + strings.ToLower(rand.Text()[:12])
		kafkatest.MakeTopic(tb, admin, partitions, nil, origin)
		return origin, []string{"billing-" + origin, "mail-" + origin}[:n]
	}
	adaptertest.Run(t, h)
}
