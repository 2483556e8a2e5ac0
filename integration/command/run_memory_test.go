//go:build prove && linux

package command_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver/integration/brokers"
)

// podMemory is the memory of the chart's containers.
const podMemory = 512 << 20

// memoryGroup is a cgroup of the memory of a pod.
type memoryGroup struct{ dir, peak string }

// newMemoryGroup makes a cgroup, of version 1 or 2.
func newMemoryGroup(t *testing.T) memoryGroup {
	t.Helper()
	const root = "/sys/fs/cgroup"
	g, limit, swap := memoryGroup{filepath.Join(root, "memory", name()), "memory.max_usage_in_bytes"}, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		g, limit, swap = memoryGroup{filepath.Join(root, name()), "memory.peak"}, "memory.max", "memory.swap.max"
	}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		t.Skipf("no cgroup can be made, which needs root: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(g.dir) })
	if err := os.WriteFile(filepath.Join(g.dir, limit), []byte(strconv.Itoa(podMemory)), 0o600); err != nil {
		t.Skipf("the cgroup has no memory controller: %v", err)
	}
	most := strconv.Itoa(podMemory)
	if swap == "memory.swap.max" {
		most = "0"
	}
	if err := os.WriteFile(filepath.Join(g.dir, swap), []byte(most), 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		t.Fatal(err)
	}
	return g
}

// used returns the largest use of memory, in MiB.
func (g memoryGroup) used(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, g.peak))
	if errors.Is(err, fs.ErrNotExist) { // an older kernel
		return 0
	}
	n, bad := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || bad != nil {
		t.Fatal(err, bad)
	}
	return n >> 20
}

// dustBatch returns a batch of one record with n headers of two bytes, compressed to some hundred bytes.
func dustBatch(n int) []byte {
	rec := []byte{0, 0, 0}             // attributes, and two deltas
	rec = binary.AppendVarint(rec, -1) // no key
	rec = append(binary.AppendVarint(rec, 2), "hi"...)
	rec = append(binary.AppendVarint(rec, int64(n)), make([]byte, 2*n)...)
	rec = append(binary.AppendVarint(nil, int64(len(rec))), rec...)
	enc, _ := zstd.NewWriter(nil)
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 4, FirstTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: 1, Records: enc.EncodeAll(rec, nil),
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// putBatch writes a batch to partition 0 as it is.
func putBatch(t *testing.T, cl *kgo.Client, topic string, batch []byte) {
	t.Helper()
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{{Topic: &topic}}
	m, err := meta.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	leader := int32(-1)
	for _, p := range m.Topics[0].Partitions {
		if p.Partition == 0 {
			leader = p.Leader
		}
	}
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = 9, -1, 30_000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, TopicID: m.Topics[0].TopicID, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: batch}}}}
	res, err := cl.Broker(int(leader)).Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if code := res.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("the broker refuses the batch with code %d", code)
	}
}

// lines is a writer that counts the lines with a text.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// A record of a few hundred bytes with millions of headers once killed the process of a pod at every start. If its batch
// is within the bound, it goes to the DLQ and its neighbours run. A larger batch is not decompressed: it holds up the
// partitions of its broker, which is reported, and the process lives.
func TestRunSurvivesRecordsOfHeadersInAPod(t *testing.T) {
	addrs := brokers.RequireKafka(t) // without TLS, which it does not offer
	for _, headers := range []int{4_000_000, 10_000_000, 45_000_000} {
		t.Run(fmt.Sprintf("%d headers", headers), func(t *testing.T) {
			s, batch := kafkaShop(t), dustBatch(headers)
			cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cl.Close)
			put := func(partition int32, body string) {
				t.Helper()
				rec := &kgo.Record{Topic: s.topic, Partition: partition, Value: []byte(body), Headers: []kgo.RecordHeader{{Key: "tenant", Value: []byte("acme")}}}
				if err := cl.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			put(0, "before")
			putBatch(t, cl, s.topic, batch)
			put(0, "behind")
			put(1, "elsewhere")
			for start := range 3 {
				h := newHandler(t, func(w http.ResponseWriter, _, _ string) { w.WriteHeader(http.StatusOK) })
				g, said := newMemoryGroup(t), &lines{}
				group := fmt.Sprint(s.group, start)
				cmd := exec.Command("sh", "-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.dir,
					filepath.Join(built, "redeliver"), "run", "--topic", s.topic, "--group", group, "--http", h.URL)
				cmd.Env = append(os.Environ(), "REDELIVER_BROKER="+s.url, fmt.Sprint("GOMEMLIMIT=", podMemory))
				cmd.Stderr = said
				c := &sidecar{t: t, cmd: cmd}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if cmd.ProcessState == nil {
						_ = cmd.Process.Kill()
						_ = cmd.Wait()
					}
				})
				within := 2*headers < 8<<20
				await(t, func() string {
					return fmt.Sprintf("start %d handled %v, and says\n%s", start, h.seen(), said.text.String())
				}, func() bool {
					if within {
						return len(h.seen()) == 3 && said.has("undecodable")
					}
					return said.has("cannot decode")
				})
				used := g.used(t)
				t.Logf("report: %d headers in a batch of %d bytes: start %d used %d MiB, and handled %v", headers, len(batch), start, used, h.seen())
				c.end() // alive
			}
		})
	}
}
