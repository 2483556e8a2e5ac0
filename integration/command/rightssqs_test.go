package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/integration/brokers"
)

// policyDocument has the parts of an IAM policy that the test reads.
type policyDocument struct {
	Statement []struct {
		Effect   string   `json:"Effect"`
		Action   []string `json:"Action"`
		Resource string   `json:"Resource"`
	} `json:"Statement"`
}

// allows reports whether a policy allows an action on a queue.
func (p *policyDocument) allows(action, queue string) bool {
	for _, s := range p.Statement {
		if s.Effect == "Allow" && s.Resource[strings.LastIndexByte(s.Resource, ':')+1:] == queue && slices.Contains(s.Action, action) {
			return true
		}
	}
	return false
}

// without returns a copy of the policy that lacks an action on a queue.
func (p *policyDocument) without(action, queue string) *policyDocument {
	var rest policyDocument
	for _, s := range p.Statement {
		s.Action = slices.Clone(s.Action)
		if s.Resource[strings.LastIndexByte(s.Resource, ':')+1:] == queue {
			s.Action = slices.DeleteFunc(s.Action, func(a string) bool { return a == action })
		}
		rest.Statement = append(rest.Statement, s)
	}
	return &rest
}

// gate is a proxy for an SQS server. It enforces a policy as AWS does, which neither ElasticMQ nor moto does.
type gate struct {
	url    string
	policy atomic.Pointer[policyDocument]
	denied atomic.Int64
	hidden atomic.Int64 // number of requests to hide a message for longer
}

func newGate(t *testing.T, endpoint string) *gate {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	g, proxy := &gate{}, httputil.NewSingleHostReverseProxy(target)
	// The client has gone.
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var in struct {
			QueueName string `json:"QueueName"`
			QueueURL  string `json:"QueueUrl"`
		}
		if err == nil {
			err = json.Unmarshal(body, &in)
		}
		_, action, ok := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if err != nil || !ok {
			t.Errorf("%s %s is not a call of SQS: %v", r.Method, r.URL, err)
		}
		queue := in.QueueName + in.QueueURL[strings.LastIndexByte(in.QueueURL, '/')+1:]
		action = "sqs:" + strings.TrimSuffix(action, "Batch") // the right to an action includes its batch form
		if action == "sqs:ChangeMessageVisibility" {
			g.hidden.Add(1)
		}
		if !g.policy.Load().allows(action, queue) {
			g.denied.Add(1)
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"not authorized to perform %s on %s"}`, action, queue)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

// sqsQueue is a queue on an SQS server, with the command's plan for it.
type sqsQueue struct {
	*shop
	api  *awssqs.Client
	gate *gate
	fifo string // ".fifo", or empty
	sent atomic.Int64
}

func newCounter(t *testing.T, endpoint, fifo string) *sqsQueue {
	t.Helper()
	c := &sqsQueue{shop: &shop{t: t, url: "sqs+" + endpoint, topic: name() + fifo}, gate: newGate(t, endpoint), fifo: fifo}
	c.dlq, c.whose = c.beside(c.topic, "-dlq"), []string{"--topic", c.topic}
	c.api = awssqs.NewFromConfig(keys(), func(o *awssqs.Options) { o.BaseEndpoint = aws.String(endpoint) })
	c.send = func(body string, _ ...string) {
		t.Helper()
		in := &awssqs.SendMessageInput{QueueUrl: aws.String(c.address(c.topic)), MessageBody: aws.String(body)}
		if fifo != "" {
			in.MessageGroupId, in.MessageDeduplicationId = aws.String(body), aws.String(fmt.Sprint(c.sent.Add(1)))
		}
		if _, err := c.api.SendMessage(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func keys() aws.Config {
	return aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("x", "x", "")}
}

func (c *sqsQueue) beside(queue, suffix string) string {
	return strings.TrimSuffix(queue, c.fifo) + suffix + c.fifo
}

func (c *sqsQueue) address(queue string) string {
	c.t.Helper()
	out, err := c.api.GetQueueUrl(c.t.Context(), &awssqs.GetQueueUrlInput{QueueName: &queue})
	if err != nil {
		c.t.Fatalf("queue %s: %v", queue, err)
	}
	return *out.QueueUrl
}

// planned returns the output of the command in a format.
func (c *sqsQueue) planned(format string, more ...string) []byte {
	c.t.Helper()
	return []byte(c.command(0, append([]string{"plan", "--topic", c.topic, "--retries", "1", "--backoff", "fixed:2s", "--format", format}, more...)...))
}

// deploy creates the queues of a template, as CloudFormation would. It sets attributes from properties of the same
// name.
func (c *sqsQueue) deploy(template []byte) (made []string) {
	c.t.Helper()
	var read struct {
		Version   string `json:"AWSTemplateFormatVersion"`
		Resources map[string]struct {
			Type       string         `json:"Type"`
			Properties map[string]any `json:"Properties"`
		} `json:"Resources"`
	}
	dec := json.NewDecoder(bytes.NewReader(template))
	dec.UseNumber()
	if err := dec.Decode(&read); err != nil || read.Version != "2010-09-09" || len(read.Resources) == 0 {
		c.t.Fatalf("%v: %s", err, template)
	}
	arns := make(map[string]string)
	for len(arns) < len(read.Resources) {
		before := len(arns)
		for id, r := range read.Resources {
			if arns[id] == "" && r.Type == "AWS::SQS::Queue" {
				if queue, ok := c.make(r.Properties, arns); ok {
					arns[id] = c.arn(queue)
					made = append(made, queue)
				}
			}
		}
		if len(arns) == before {
			c.t.Fatalf("the template has no order: %s", template)
		}
	}
	return made
}

// make creates a queue from its properties. ok is false if they refer to a queue that does not exist yet.
func (c *sqsQueue) make(properties map[string]any, arns map[string]string) (queue string, ok bool) {
	c.t.Helper()
	in := &awssqs.CreateQueueInput{Attributes: map[string]string{}}
	for property, value := range properties {
		switch v := value.(type) {
		case string:
			if property == "QueueName" {
				in.QueueName = &v
				continue
			}
			in.Attributes[property] = v
		case json.Number:
			in.Attributes[property] = v.String()
		case bool:
			in.Attributes[property] = fmt.Sprint(v)
		case map[string]any:
			if ref, isRef := v["deadLetterTargetArn"].(map[string]any); isRef {
				of := ref["Fn::GetAtt"].([]any)
				if len(of) != 2 || of[1] != "Arn" {
					c.t.Fatalf("%v", of)
				}
				if v["deadLetterTargetArn"] = arns[of[0].(string)]; v["deadLetterTargetArn"] == "" {
					v["deadLetterTargetArn"] = ref
					return "", false
				}
			}
			text, err := json.Marshal(v)
			if err != nil {
				c.t.Fatal(err)
			}
			in.Attributes[property] = string(text)
		}
	}
	if _, err := c.api.CreateQueue(c.t.Context(), in); err != nil {
		c.t.Fatalf("%v: %v", properties, err)
	}
	return *in.QueueName, true
}

func (c *sqsQueue) attributes(queue string) map[string]string {
	c.t.Helper()
	out, err := c.api.GetQueueAttributes(c.t.Context(), &awssqs.GetQueueAttributesInput{
		QueueUrl: aws.String(c.address(queue)), AttributeNames: []types.QueueAttributeName{types.QueueAttributeNameAll},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return out.Attributes
}

func (c *sqsQueue) set(queue, name, value string) {
	c.t.Helper()
	if _, err := c.api.SetQueueAttributes(c.t.Context(), &awssqs.SetQueueAttributesInput{
		QueueUrl: aws.String(c.address(queue)), Attributes: map[string]string{name: value},
	}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *sqsQueue) arn(queue string) string { return c.attributes(queue)["QueueArn"] }

func (c *sqsQueue) config(endpoint string, sink redeliver.SinkFunc) sqs.Config {
	cfg := keys()
	cfg.Retryer = func() aws.Retryer { return aws.NopRetryer{} }
	return sqs.Config{
		AWS: &cfg, Endpoint: endpoint, NoProvisioning: true, Sink: sink, WaitTime: time.Second, VisibilityTimeout: 2 * time.Second,
		Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(2 * time.Second)},
	}
}

// run makes a subscriber do everything that it supports, through the gate, and returns the first failure.
func (c *sqsQueue) run() error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*maxWait)
	defer cancel()
	denied, hidden := c.gate.denied.Load(), c.gate.hidden.Load()
	failed, done := make(chan error, 1000), make(chan string, 1000)
	config := c.config(c.gate.url, endings(done, failed))
	consuming, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- sqs.Consume(consuming, config, []string{c.topic}, func(ctx context.Context, m types.Message) error {
			if *m.Body == dies {
				return errors.New("no")
			}
			for c.gate.hidden.Load() == hidden { // run until the message must be hidden for longer
				select {
				case <-time.After(20 * time.Millisecond):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	}()
	c.send(dies)
	c.send(soon)
	want := map[string]bool{dies: true, soon: true}
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	var err error
	for err == nil && len(want) > 0 {
		select {
		case what := <-done:
			delete(want, what)
		case err = <-failed:
		case err = <-ended:
			stop()
			return err
		case <-look.C:
			if c.gate.denied.Load() > denied {
				err = errors.New("a call was denied")
			}
		case <-ctx.Done():
			err = fmt.Errorf("nothing is reported, and %v has not ended", want)
		}
	}
	stop()
	return errors.Join(err, <-ended)
}

// provisioned returns the attributes of the queues that redeliver creates itself, by the names of these queues.
func (c *sqsQueue) provisioned() map[string]map[string]string {
	c.t.Helper()
	twin := name() + c.fifo
	config := c.config(strings.TrimPrefix(c.url, "sqs+"), func(redeliver.Event) {})
	config.NoProvisioning, config.VisibilityTimeout = false, 0 // as in the command's plan
	client, err := sqs.Open(c.t.Context(), config)
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close(c.t.Context())
	if err := client.Subscriber().SubscribeInitialize(twin); err != nil {
		c.t.Fatal(err)
	}
	all := make(map[string]map[string]string)
	stem, other := strings.TrimSuffix(c.topic, c.fifo), strings.TrimSuffix(twin, c.fifo)
	queues := map[string]string{c.topic: twin, c.beside(c.topic, "-suspects"): c.beside(twin, "-suspects"), c.beside(c.topic, "-dlq"): c.beside(twin, "-dlq")}
	if c.fifo != "" {
		queues[stem+"-place"] = other + "-place"
	}
	for queue, twin := range queues {
		attributes := c.attributes(twin)
		for name, value := range attributes {
			attributes[name] = strings.ReplaceAll(value, other, stem)
		}
		all[queue] = attributes
	}
	return all
}

// The template and the policy that the command prints are sufficient: the queues are those that redeliver would have
// created. With only the policy a consumer retries and dead-letters, and an operator replays. A test of adapters/sqs checks
// that no right is missing or superfluous.
func TestOnSQSWithTheRightsOfThePlanAndNoOther(t *testing.T) {
	t.Parallel()
	for kind, fifo := range map[string]string{"standard": "", "FIFO": ".fifo"} {
		for server, endpoint := range brokers.RequireSQSServers(t) {
			t.Run(kind+" "+server, func(t *testing.T) {
				t.Parallel()
				c := newCounter(t, endpoint, fifo)
				var policy, ops policyDocument
				read := func(into *policyDocument, whose string) {
					if err := json.Unmarshal(c.planned("iam", "--account", "000000000000", "--for", whose), into); err != nil {
						t.Fatal(err)
					}
				}
				read(&policy, "consumer")
				read(&ops, "operator")
				made := c.deploy(c.planned("sqs-cloudformation"))
				if want := map[string]int{"": 4, ".fifo": 5}[fifo]; len(made) != want { // a FIFO queue has one of notes
					t.Errorf("the template has %q", made)
				}
				c.compare()
				c.gate.policy.Store(&policy)
				if err := c.run(); err != nil || c.gate.denied.Load() > 0 {
					t.Fatalf("%v; %d calls were denied", err, c.gate.denied.Load())
				}
				c.operate(&ops)
			})
		}
	}
}

// compare fails the test if redeliver would have created a queue differently.
func (c *sqsQueue) compare() {
	c.t.Helper()
	passing := []string{"CreatedTimestamp", "LastModifiedTimestamp"}
	for queue, want := range c.provisioned() {
		got := c.attributes(queue)
		for name := range want {
			if got[name] != want[name] && !slices.Contains(passing, name) && !strings.HasPrefix(name, "Approximate") && !sameJSON(got[name], want[name]) {
				c.t.Errorf("%s has %s %q, want %q", queue, name, got[name], want[name])
			}
		}
		if len(got) != len(want) {
			c.t.Errorf("%s has %v, want %v", queue, got, want)
		}
	}
}

func sameJSON(x, y string) bool {
	var a, b map[string]any
	return json.Unmarshal([]byte(x), &a) == nil && json.Unmarshal([]byte(y), &b) == nil && fmt.Sprint(a) == fmt.Sprint(b)
}

// operate does an operator's work, and checks that some of the rights are necessary.
func (c *sqsQueue) operate(policy *policyDocument) {
	c.t.Helper()
	ops := *c.shop
	ops.url = "sqs+" + c.gate.url
	replay := []string{"dlq", "replay", c.dlq, "--note", "test", "--yes"}
	state := strings.TrimSuffix(c.dlq, c.fifo) + "-state.fifo"
	for _, r := range [][2]string{{"sqs:SendMessage", state}, {"sqs:ReceiveMessage", state}, {"sqs:ReceiveMessage", c.dlq}, {"sqs:GetQueueUrl", c.topic}} {
		if !policy.allows(r[0], r[1]) {
			c.t.Errorf("the operator may not %s on %s", r[0], r[1])
		}
		c.gate.policy.Store(policy.without(r[0], r[1]))
		ops.command(1, replay...)
	}
	c.gate.policy.Store(policy)
	exported := c.t.TempDir() + "/dead.jsonl"
	ops.command(0, "dlq", "export", c.dlq, "--file", exported)
	ops.command(0, replay...)
	ops.command(0, "dlq", "import", c.dlq, "--file", exported, "--note", "test", "--yes")
	ops.command(0, "dlq", "purge", c.dlq, "--all", "--note", "test", "--yes")
	if left := ops.rows(0, "dlq", "show", c.dlq); len(left) > 0 {
		c.t.Errorf("%v are left", left)
	}
}
