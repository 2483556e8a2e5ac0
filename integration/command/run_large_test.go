//go:build prove && linux

package command_test

import (
	"context"
	"encoding/hex"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
)

// A compressed message that its topic accepts is handled, although it is larger than the bound for batches of other
// topics. The bound once stopped all partitions of its broker.
func TestRunReadsWhatItsTopicAccepts(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	const maxBytes = 20 << 20
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.ProducerBatchMaxBytes(maxBytes), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	topic, limit := name(), "20971520"
	if res, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, map[string]*string{"max.message.bytes": &limit}, topic); err != nil || res.Err != nil {
		t.Fatal(err, res.Err)
	}
	random := make([]byte, 6<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	body := []byte(hex.EncodeToString(random)) // 12 MiB, compressed to some 6
	for _, value := range [][]byte{body, []byte("behind")} {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	sizes := make(chan int, 10)
	handler := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		sizes <- int(n)
	}))
	defer handler.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var said lines
	cmd := exec.CommandContext(ctx, filepath.Join(built, "redeliver"), "run", "--broker", "kafka://"+addrs[0], "--topic", topic, "--group", topic, "--http", handler.URL)
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer cancel()
	for got := map[int]bool{}; len(got) < 2; {
		select {
		case n := <-sizes:
			got[n] = true
		case <-ctx.Done():
			t.Fatalf("bodies of %v bytes came; the command said:\n%s", got, said.String())
		}
	}
}
