//go:build prove

// Package faults_test tests adapters/sqs against faults of SQS, which a proxy in front of ElasticMQ simulates.
package faults_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/sqs/proxy"
	"github.com/redeliver/redeliver/middleware"
)

func TestMain(m *testing.M) {
	// These tests mostly wait, and go test runs only as many in parallel as there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// Texts that must never be in an event or an error.
const (
	secretKey    = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYSECRETKEY"
	sessionToken = "FwoGZXIvYXdzEBYaSESSIONTOKEN"
)

// anyAWS returns a client configuration for servers that accept any credentials.
func anyAWS() *aws.Config {
	return &aws.Config{Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", secretKey, sessionToken)}
}

// maxWait bounds the wait for something that must happen.
const maxWait = 2 * time.Minute

// fixture is a queue on ElasticMQ that the adapter reads through a proxy with faults.
type fixture struct {
	*testing.T
	proxy *proxy.Proxy
	queue string
	plain *awssqs.Client // bypasses the proxy
	url   string

	mu      sync.Mutex
	events  []redeliver.Event
	runs    map[string][]int  // attempts by body
	done    map[string]int    // commits by body
	bodies  map[string]string // by redeliver's id
	changed chan struct{}     // closed and replaced at every run, commit and event
}

func newFixture(t *testing.T, end string) *fixture {
	t.Helper()
	endpoint := brokers.RequireSQS(t)
	p, err := proxy.Start(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	l := &fixture{
		T: t, proxy: p, queue: "lab-" + strings.ToLower(watermill.NewShortUUID()) + end,
		plain: awssqs.NewFromConfig(*anyAWS(), func(o *awssqs.Options) { o.BaseEndpoint = aws.String(endpoint) }),
		runs:  make(map[string][]int), done: make(map[string]int), bodies: make(map[string]string), changed: make(chan struct{}),
	}
	in := &awssqs.CreateQueueInput{QueueName: aws.String(l.queue)}
	if end != "" {
		in.Attributes = map[string]string{"FifoQueue": "true"}
	}
	out, err := l.plain.CreateQueue(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	l.url = *out.QueueUrl
	t.Cleanup(func() {
		if wrong := p.Violations(); len(wrong) > 0 {
			t.Errorf("SQS would have refused: %s", strings.Join(wrong, "\n\t"))
		}
		l.wantNoSecrets()
	})
	return l
}

// send puts messages into the queue, bypassing the proxy. The body decides the result: "once 7" fails at the first
// attempt, "always 7" at every attempt, any other never.
func (l *fixture) send(bodies ...string) {
	l.Helper()
	for _, body := range bodies {
		in := &awssqs.SendMessageInput{QueueUrl: aws.String(l.url), MessageBody: aws.String(body)}
		if strings.HasSuffix(l.queue, ".fifo") {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String("group"), aws.String(watermill.NewUUID())
		}
		if _, err := l.plain.SendMessage(l.Context(), in); err != nil {
			l.Fatal(err)
		}
	}
}

func numbered(rule string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = rule + " " + strconv.Itoa(i)
	}
	return bodies
}

var errRule = errors.New("the body says so")

func (l *fixture) config() sqs.Config {
	return sqs.Config{
		AWS: anyAWS(), Endpoint: l.proxy.URL(), Sink: redeliver.SinkFunc(l.event),
		Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Fixed(1200 * time.Millisecond)},
		// Generous, because a busy machine is not a fault.
		VisibilityTimeout: 12 * time.Second, WaitTime: time.Second, SendTimeout: 15 * time.Second, DrainTimeout: 2 * time.Second,
	}
}

func (l *fixture) event(e redeliver.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
	l.notifyLocked()
}

// notifyLocked wakes all waiting goroutines.
func (l *fixture) notifyLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// work runs a worker. If handler is nil, the body decides the result.
func (l *fixture) work(cfg sqs.Config, handler message.NoPublishHandlerFunc) (stop func()) {
	l.Helper()
	client, err := sqs.Open(context.Background(), cfg)
	if err != nil {
		l.Fatal(err)
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		l.Fatal(err)
	}
	router.AddMiddleware(middleware.Retry())
	router.AddConsumerHandler("lab", l.queue, client.Subscriber(), func(msg *message.Message) error {
		st, _ := redeliver.FromContext(msg.Context())
		body := string(msg.Payload)
		l.mu.Lock()
		l.runs[body], l.bodies[st.ID] = append(l.runs[body], st.Attempt()), body
		l.notifyLocked()
		l.mu.Unlock()
		if handler != nil {
			if err := handler(msg); err != nil {
				return err
			}
		} else if strings.HasPrefix(body, "always") || strings.HasPrefix(body, "once") && st.Attempt() == 1 {
			return errRule
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done[body]++
		l.notifyLocked()
		return nil
	})
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := router.Run(context.Background()); err != nil {
			l.Errorf("the router: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		_ = router.Close() // a handler that is cut off says nothing about its message
		if err := client.Close(context.Background()); err != nil {
			l.Error(err)
		}
		ended.Wait()
	})
	l.Cleanup(stop)
	select {
	case <-router.Running():
	case <-time.After(maxWait):
		l.Fatal("the router does not run")
	}
	return stop
}

// until waits until ok, which is called with the lock held, returns true.
func (l *fixture) until(what string, ok func() bool) {
	l.Helper()
	deadline := time.After(maxWait)
	for {
		l.mu.Lock()
		now, grown := ok(), l.changed
		l.mu.Unlock()
		if now {
			return
		}
		select {
		case <-grown:
		case <-deadline:
			l.mu.Lock()
			defer l.mu.Unlock()
			l.Fatalf("%s did not happen; %d kinds of message ran, %d committed, %d events; the last: %+v",
				what, len(l.runs), len(l.done), len(l.events), l.events[max(0, len(l.events)-5):])
		}
	}
}

// committed waits until all of these have succeeded.
func (l *fixture) committed(bodies []string) {
	l.Helper()
	l.until("the commits", func() bool {
		return !slices.ContainsFunc(bodies, func(b string) bool { return l.done[b] == 0 })
	})
}

// count returns the number of events of a kind.
func count[E redeliver.Event](events []redeliver.Event) int {
	n := 0
	for _, e := range events {
		if _, ok := e.(E); ok {
			n++
		}
	}
	return n
}

// lateLocked returns the bodies of messages of which a write was not answered in time.
func (l *fixture) lateLocked() map[string]bool {
	bodies := make(map[string]bool)
	for _, e := range l.events {
		if e, ok := e.(redeliver.PublishFailed); ok && errors.Is(e.Err, context.DeadlineExceeded) {
			bodies[l.bodies[e.State.ID]] = true
		}
	}
	return bodies
}

// awaitDepth waits until the queue has this many visible, in-flight and delayed messages.
func (l *fixture) awaitDepth(want int) {
	l.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(maxWait)
	for {
		n, detail := l.depth()
		if n == want {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			l.Fatalf("the queue holds%s, want %d", detail, want)
		}
	}
}

func (l *fixture) depth() (n int, detail string) {
	l.Helper()
	out, err := l.plain.GetQueueAttributes(l.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: aws.String(l.url), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		l.Fatal(err)
	}
	for _, name := range []string{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed"} {
		k, err := strconv.Atoi(out.Attributes[name])
		if err != nil {
			l.Fatal(err)
		}
		n += k
		detail += fmt.Sprint(" ", k, " ", name)
	}
	return n, detail
}

// dead receives dead letters until there are n different ones and returns their sorted bodies.
func (l *fixture) dead(n int) []string {
	l.Helper()
	dlq := l.beside("-dlq")
	var bodies []string
	seen := map[string]bool{}
	for deadline := time.Now().Add(maxWait); len(seen) < n && time.Now().Before(deadline); {
		out, err := l.plain.ReceiveMessage(l.Context(), &awssqs.ReceiveMessageInput{QueueUrl: aws.String(dlq), MaxNumberOfMessages: 10, WaitTimeSeconds: 1})
		if err != nil {
			l.Fatal(err)
		}
		for _, m := range out.Messages {
			bodies, seen[*m.Body] = append(bodies, *m.Body), true
			if _, err := l.plain.DeleteMessage(l.Context(), &awssqs.DeleteMessageInput{QueueUrl: aws.String(dlq), ReceiptHandle: m.ReceiptHandle}); err != nil {
				l.Fatal(err)
			}
		}
	}
	slices.Sort(bodies)
	return bodies
}

// beside returns the URL of a queue beside the fixture's.
func (l *fixture) beside(suffix string) string {
	stem, isFIFO := strings.CutSuffix(l.url, ".fifo")
	if isFIFO {
		return stem + suffix + ".fifo"
	}
	return stem + suffix
}

// wantNoSecrets searches all events and logs for the keys.
func (l *fixture) wantNoSecrets() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		for _, secret := range []string{secretKey, sessionToken} {
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, secret) {
				l.Errorf("an event contains a secret: %s", text)
			}
		}
	}
}
