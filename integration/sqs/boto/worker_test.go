//go:build prove

package boto_test

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/fidelity"
	"github.com/redeliver/redeliver/integration/sqs/proxy"
	"github.com/redeliver/redeliver/mq"
)

func TestMain(m *testing.M) {
	// These tests mostly wait, and go test runs only as many in parallel as there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	fidelity.EndPeers()
	os.Exit(code)
}

// server is one of the two servers in the place of SQS.
type server struct {
	name  string
	url   string
	limit int // the size limit of a queue
}

func elasticMQ(t *testing.T) server {
	t.Helper()
	return server{"ElasticMQ", brokers.RequireSQS(t), 256 << 10}
}

func moto(t *testing.T) server {
	t.Helper()
	return server{"moto", brokers.RequireMoto(t), 1 << 20}
}

// on runs a test on servers, each with its own queue. The adapter's requests go through a proxy that refuses what AWS
// documents as refused, because neither server checks all of it.
func on(t *testing.T, kind string, test func(t *testing.T, b *fixture), servers ...server) {
	t.Helper()
	t.Parallel()
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			p, err := proxy.Start(s.url)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			p.SetLimit(s.limit)
			b := &fixture{T: t, server: s, proxy: p, queue: fidelity.Unique("fidelity") + kind, peer: newPeer(t, s.url)}
			b.peer.create(t, b.queue, map[string]string{"VisibilityTimeout": "20"})
			test(t, b)
			if wrong := p.Violations(); len(wrong) > 0 {
				t.Errorf("SQS would have refused: %s", strings.Join(wrong, "\n\t"))
			}
		})
	}
}

const (
	standard = ""
	fifo     = ".fifo"
)

// fixture is one test's server, queue and clients.
type fixture struct {
	*testing.T
	server server
	proxy  *proxy.Proxy
	queue  string
	topic  string // the worker's topic; empty means the queue's name
	peer   *peer

	events  fidelity.Events
	mu      sync.Mutex
	runs    []observation
	handler message.NoPublishHandlerFunc // called before the attempt fails
	client  *mq.Client
}

// beside returns the name of a queue beside the test's.
func (b *fixture) beside(suffix string) string {
	stem, isFIFO := strings.CutSuffix(b.queue, fifo)
	if isFIFO {
		return stem + suffix + fifo
	}
	return stem + suffix
}

// trace returns an AWS trace header, or "" on moto, which forgets it in batches.
func (b *fixture) trace() string {
	if b.server.name == "moto" {
		return ""
	}
	return "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
}

// policy waits with a hold, and then with a copy that SQS delays, and a hold.
var policy = redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Steps(100*time.Millisecond, 1400*time.Millisecond)}

// config returns the configuration of a worker.
func (b *fixture) config(p redeliver.Policy) sqs.Config {
	return sqs.Config{
		AWS:      &aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")},
		Endpoint: b.proxy.URL(), Policy: p, Sink: &b.events, DrainTimeout: 10 * time.Millisecond,
		WaitTime: time.Second, // Close waits for a receive that is under way
		Pollers:  2,
	}
}

// observation is what a handler saw at one attempt.
type observation struct {
	wire
	sdk      types.Message
	id, uuid string
	payload  string
	attempt  int
	metadata message.Metadata
}

// start runs a worker whose handler records its messages and fails. stop ends it.
func (b *fixture) start(cfg sqs.Config) (stop func()) {
	b.Helper()
	client, err := sqs.Open(context.Background(), cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.client = client
	return fidelity.Consume(b.T, cmp.Or(b.topic, b.queue), client.Subscriber(), client.Close, func(msg *message.Message) error {
		b.record(msg)
		if b.handler != nil {
			return b.handler(msg)
		}
		return fidelity.ErrDeclined
	})
}

// record records what the handler sees.
func (b *fixture) record(msg *message.Message) {
	m := sqs.MessageFromContext(msg.Context())
	st, ok := redeliver.FromContext(msg.Context())
	if m == nil || !ok {
		b.Error("the handler has neither SQS's message nor a state")
		return
	}
	s := observation{
		wire: wire{Body: aws.ToString(m.Body), ID: aws.ToString(m.MessageId), Attributes: attributes{}}, sdk: *m,
		id: st.ID, uuid: msg.UUID, payload: string(msg.Payload), attempt: st.Attempt(), metadata: maps.Clone(msg.Metadata),
	}
	for name, v := range m.MessageAttributes {
		s.Attributes[name] = attribute{aws.ToString(v.DataType), aws.ToString(v.StringValue)}
		if v.BinaryValue != nil {
			s.Attributes[name] = attribute{aws.ToString(v.DataType), hex.EncodeToString(v.BinaryValue)}
		}
	}
	s.Group = m.Attributes["MessageGroupId"]
	s.Dedup = m.Attributes["MessageDeduplicationId"]
	s.Trace = m.Attributes["AWSTraceHeader"]
	b.mu.Lock()
	defer b.mu.Unlock()
	b.runs = append(b.runs, s)
}

// observations returns what the handler saw so far of each message, by body.
func (b *fixture) observations() map[string][]observation {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := make(map[string][]observation)
	for _, s := range b.runs {
		found[s.Body] = append(found[s.Body], s)
	}
	return found
}

// deadLetters receives n dead letters, by body.
func (b *fixture) deadLetters(n int) map[string]wire {
	b.Helper()
	found := make(map[string]wire)
	for _, m := range b.peer.Take(b.T, b.beside("-dlq"), n) {
		found[m.Body] = m
	}
	if len(found) != n {
		b.Errorf("%d dead letters are of %d messages", n, len(found))
	}
	return found
}

// wantSame compares the user's part of messages.
func wantSame(t *testing.T, what string, got, want wire) {
	t.Helper()
	if got.Body != want.Body {
		t.Errorf("%s has a body of %d bytes, %.40q, want %d bytes, %.40q", what, len(got.Body), got.Body, len(want.Body), want.Body)
	}
	if got.Group != want.Group || got.Trace != want.Trace {
		t.Errorf("%s is of group %q with trace %q, want %q and %q", what, got.Group, got.Trace, want.Group, want.Trace)
	}
	names := maps.Clone(got.Attributes)
	maps.Copy(names, want.Attributes)
	for name := range names {
		g, w := "nothing", "nothing"
		if v, ok := got.Attributes[name]; ok {
			g = show(v)
		}
		if v, ok := want.Attributes[name]; ok {
			w = show(v)
		}
		if g != w {
			t.Errorf("%s has %.60s %.200s, want %.200s", what, name, g, w)
		}
	}
}

func show(a attribute) string {
	text, err := json.Marshal(a)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
