//go:build prove && linux

package command_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math/big"
	"net"
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
	"github.com/twmb/franz-go/pkg/kadm"
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

// command returns a run of the command in the cgroup.
func (g memoryGroup) command(args ...string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, g.dir, filepath.Join(built, "redeliver")}, args...)...)
	cmd.Env = append(os.Environ(), fmt.Sprint("GOMEMLIMIT=", podMemory))
	return cmd
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

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) has(text string) bool {
	return strings.Contains(l.String(), text)
}

// tlsKafka starts a Kafka with a listener for TLS. It returns the addresses of the listener without TLS, those of the one
// with TLS, and the file of the CA that clients must trust.
func tlsKafka(t *testing.T) (addrs, tlsAddrs []string, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Kafka of a test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	signed, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	ca, store := filepath.Join(t.TempDir(), "ca.pem"), filepath.Join(t.TempDir(), "store.pem")
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	both := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), public...)
	if err := errors.Join(os.WriteFile(ca, public, 0o600), os.WriteFile(store, both, 0o600)); err != nil {
		t.Fatal(err)
	}
	b := brokers.OwnKafka(t, brokers.KafkaOptions{
		Heap:  "512m",
		Users: map[string]string{"nobody": "unused"}, // their listener becomes the one with TLS
		Properties: map[string]string{
			"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,USERS:SSL",
			"ssl.keystore.type":              "PEM", "ssl.keystore.location": store,
		},
	})
	return b.Addrs(), b.UserAddrs(), ca
}

// maxNeighbours is within what time the messages beside a record of many headers are handled.
const maxNeighbours = time.Minute

// A record of a few hundred bytes with millions of headers once killed the process of a pod at every start. If its batch
// is within the bound, it goes to the DLQ and its neighbours run. A larger batch is not decompressed: it holds up the
// partitions of its broker, which is reported, and the process lives.
func TestRunSurvivesRecordsOfHeadersInAPod(t *testing.T) {
	addrs, tlsAddrs, ca := tlsKafka(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for _, headers := range []int{4_000_000, 10_000_000, 45_000_000} {
		t.Run(fmt.Sprintf("%d headers", headers), func(t *testing.T) {
			t.Parallel()
			s, batch := kafkaShopAt(t, addrs), dustBatch(headers)
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
				cmd := g.command("run", "--topic", s.topic, "--group", fmt.Sprint(s.group, start), "--http", h.URL)
				cmd.Env = append(cmd.Env, "REDELIVER_BROKER=kafka+tls://"+strings.Join(tlsAddrs, ","), "SSL_CERT_FILE="+ca)
				cmd.Stderr = said
				c, began := &sidecar{t: t, cmd: cmd}, time.Now()
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
					return fmt.Sprintf("start %d handled %v, and says\n%s", start, h.seen(), said)
				}, func() bool {
					if within {
						return len(h.seen()) == 3 && said.has("undecodable")
					}
					return said.has("cannot decode") && time.Since(began) > maxNeighbours
				})
				took := time.Since(began)
				if within && took > maxNeighbours {
					t.Errorf("start %d handled the neighbours after %s, want %s", start, took, maxNeighbours)
				}
				t.Logf("report: %d headers in a batch of %d bytes: start %d used %d MiB in %s, and handled %v",
					headers, len(batch), start, g.used(t), took.Round(time.Second), h.seen())
				c.end() // alive
			}
		})
	}
}

// A batch that is larger than the bound can be in a DLQ, too, if its writer may write there. Nobody can read it, but the
// programs live in a pod, say where it is, and a purge removes it.
func TestABatchThatIsTooLargeIsPurgedInAPod(t *testing.T) {
	addrs := brokers.RequireKafka(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	for _, by := range []string{"--all", "--position"} {
		t.Run(by, func(t *testing.T) {
			s := kafkaShopAt(t, addrs)
			h := newHandler(t, func(w http.ResponseWriter, _, _ string) { w.WriteHeader(http.StatusUnprocessableEntity) })
			c := s.sidecar("--http", h.URL)
			s.send("before", "tenant=acme")
			await(t, func() string { return "nothing was handled" }, func() bool { return len(h.seen()) == 1 }) // the DLQ exists
			s.awaitDeadLetters(1)
			c.end()
			putBatch(t, cl, s.dlq, dustBatch(45_000_000))
			g := newMemoryGroup(t)
			run := func(code int, args ...string) string {
				t.Helper()
				var out bytes.Buffer
				cmd := g.command(append(args, s.whose...)...)
				cmd.Env, cmd.Stdout, cmd.Stderr = append(cmd.Env, "REDELIVER_BROKER="+s.url), &out, &out
				if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
					t.Fatalf("%q ends with %v, want %d:\n%s", args, err, code, out.String())
				}
				return out.String()
			}
			bomb := offsetOfBomb(t, cl, s.dlq)
			for _, read := range [][]string{{"dlq", "show", "--limit", "0"}, {"dlq", "groups"}} {
				if said := run(1, read...); !strings.Contains(said, fmt.Sprintf("%s/0: the batch at offset %d", s.dlq, bomb)) {
					t.Errorf("%q does not say where the batch is:\n%s", read, said)
				}
			}
			which, left := []string{by}, 0
			if by == "--position" {
				which, left = []string{by, fmt.Sprint("0/", bomb)}, 1
			}
			for _, how := range [][]string{{"--dry-run"}, {"--yes", "--note", "a test"}} {
				run(0, append(append([]string{"dlq", "purge"}, which...), how...)...)
			}
			if dead := s.rows(0, append([]string{"dlq", "show", "--limit", "0"}, s.whose...)...); len(dead) != left {
				t.Errorf("the DLQ has %v, want %d", dead, left)
			}
			t.Logf("report: %d MiB were used", g.used(t))
		})
	}
}

// offsetOfBomb returns the last offset of partition 0.
func offsetOfBomb(t *testing.T, cl *kgo.Client, topic string) int64 {
	t.Helper()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	return end.Offset - 1
}
