package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// rabbitRights is a queue with the command's plan for it, and its own users.
type rabbitRights struct {
	*shop
	r *brokers.Rabbit
}

// definitions are the parts of a definitions file that the test reads.
type definitions struct {
	Permissions []struct {
		User      string `json:"user"`
		Configure string `json:"configure"`
		Write     string `json:"write"`
		Read      string `json:"read"`
	} `json:"permissions"`
	Queues []struct {
		Name    string `json:"name"`
		Durable bool   `json:"durable"`
	} `json:"queues"`
}

func newRabbitRights(t *testing.T, r *brokers.Rabbit) *rabbitRights {
	t.Helper()
	b := &rabbitRights{&shop{t: t, url: r.URL(), topic: name() + ".a+b"}, r}
	b.dlq, b.whose = b.topic+".dlq", []string{"--topic", b.topic}
	return b
}

// manage sends a request to the management API.
func (b *rabbitRights) manage(method string, body any, path ...string) {
	b.t.Helper()
	text, ok := body.(string)
	if !ok {
		raw, err := json.Marshal(body)
		if err != nil {
			b.t.Fatal(err)
		}
		text = string(raw)
	}
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.r.Management()+"/api/"+strings.Join(path, "/"), strings.NewReader(text))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	var answer bytes.Buffer
	_, _ = answer.ReadFrom(res.Body)
	if res.StatusCode >= 300 {
		b.t.Fatalf("%s %s: %s: %s", method, req.URL.Path, res.Status, answer.String())
	}
}

// user creates a user without rights.
func (b *rabbitRights) user(whose string) string {
	b.t.Helper()
	user := whose + "-" + b.topic
	b.manage(http.MethodPut, map[string]any{"password": password, "tags": ""}, "users", user)
	return user
}

// planned returns the plan of the command for a user.
func (b *rabbitRights) planned(user, whose string) (text string, read definitions) {
	b.t.Helper()
	text = b.command(0, "plan", "--topic", b.topic, "--retries", "1", "--backoff", "fixed:1s", "--levels", "1s,2m", "--format", "rabbitmq-definitions", "--principal", user, "--for", whose)
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		b.t.Fatalf("%v: %s", err, text)
	}
	if len(read.Permissions) != 1 || read.Permissions[0].User != user || len(read.Queues) == 0 {
		b.t.Fatal(text)
	}
	return text, read
}

// permit sets a user's rights.
func (b *rabbitRights) permit(user, configure, write, read string) {
	b.t.Helper()
	b.manage(http.MethodPut, map[string]any{"configure": configure, "write": write, "read": read}, "permissions", "/", user)
}

func (b *rabbitRights) as(user string) string {
	b.t.Helper()
	u, err := url.Parse(b.r.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

func (b *rabbitRights) config(user string, sink redeliver.SinkFunc) amqp.Config {
	return amqp.Config{
		URLs: []string{b.as(user)}, NoProvisioning: true, Topology: amqp.ExistingQueue(), Sink: sink,
		Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second, 2 * time.Minute}},
	}
}

// sends publishes a message as a user who may do so.
func (b *rabbitRights) sends() {
	b.t.Helper()
	conn, err := amqp091.Dial(b.r.URL())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		b.t.Fatal(err)
	}
	b.send = func(body string, _ ...string) {
		b.t.Helper()
		p := amqp091.Publishing{MessageId: name(), DeliveryMode: amqp091.Persistent, Body: []byte(body)}
		if err := ch.PublishWithContext(b.t.Context(), "", b.topic, true, false, p); err != nil {
			b.t.Fatal(err)
		}
	}
}

// run makes a subscriber do everything that it supports, and returns the first failure.
func (b *rabbitRights) run(user string) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), 3*maxWait)
	defer cancel()
	failed, done := make(chan error, 1000), make(chan string, 1000)
	config := b.config(user, endings(done, failed))
	consuming, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- amqp.Consume(consuming, config, []string{b.topic}, func(ctx context.Context, d amqp091.Delivery) error {
			st, _ := redeliver.FromContext(ctx)
			switch {
			case string(d.Body) == dies:
				return errors.New("no")
			case st.Attempt() == 1:
				return redeliver.RetryAfter(errors.New("not yet"), 50*time.Millisecond)
			default:
				return nil
			}
		})
	}()
	b.send(dies)
	b.send(soon)
	want := map[string]bool{dies: true, soon: true}
	var err error
	for err == nil && len(want) > 0 {
		select {
		case what := <-done:
			delete(want, what)
		case err = <-failed:
		case err = <-ended:
			stop()
			return err
		case <-ctx.Done():
			err = fmt.Errorf("nothing is reported, and %v has not ended", want)
		}
	}
	stop()
	return errors.Join(err, <-ended)
}

// The definitions that the command prints are sufficient: RabbitMQ accepts them, the queues are those that redeliver
// would have declared, and users with only these rights do their work. They are also necessary: without any right
// something is refused, which make prove tests.
func TestOnRabbitMQWithTheRightsOfThePlanAndNoOther(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			b := newRabbitRights(t, r)
			member, ops := b.user("member"), b.user("ops")
			text, defined := b.planned(member, "consumer")
			b.manage(http.MethodPost, text, "definitions")
			b.asDeclared(defined)
			b.sends()
			if err := b.run(member); err != nil {
				t.Fatal(err)
			}
			if brokers.Proving {
				b.withoutAny(member, defined)
			}
			b.operate(ops)
		})
	}
}

// asDeclared fails the test if redeliver would have declared anything differently.
func (b *rabbitRights) asDeclared(defined definitions) {
	b.t.Helper()
	c, err := amqp.Open(b.t.Context(), amqp.Config{
		URLs: []string{b.r.URL()}, ManagementURL: b.r.Management(), Policy: b.config("", nil).Policy, Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close(b.t.Context())
	plan, err := c.Plan(b.t.Context(), b.topic)
	if err != nil {
		b.t.Fatal(err)
	}
	names := map[string]bool{plan.OperatorPlaces[0].Name: true}
	for _, q := range plan.Places {
		names[q.Name] = true
		if !q.Exists {
			b.t.Errorf("%s was not defined", q.Name)
		}
	}
	for _, q := range defined.Queues {
		if !names[q.Name] || !q.Durable {
			b.t.Errorf("%+v is not in the plan", q)
		}
		delete(names, q.Name)
	}
	if len(names) > 0 {
		b.t.Errorf("%v are not defined", names)
	}
	if err := c.Subscriber().SubscribeInitialize(b.topic); err != nil { // declares all again, and RabbitMQ compares
		b.t.Error(err)
	}
}

// withoutAny removes one name after another from the patterns.
func (b *rabbitRights) withoutAny(user string, defined definitions) {
	b.t.Helper()
	all := defined.Permissions[0]
	if all.Configure != "^$" {
		b.t.Errorf("the subscriber may configure %s", all.Configure)
	}
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(all.Read, "^("), ")$"), "|")
	if len(parts) != 5 { // the queue, the retry queue, the suspects, the mark of a pause, the short level
		b.t.Errorf("the subscriber may read %q", parts)
	}
	for i := range parts {
		rest := append(append([]string{}, parts[:i]...), parts[i+1:]...)
		b.permit(user, all.Configure, all.Write, "^("+strings.Join(rest, "|")+")$")
		unquoted := regexp.MustCompile(`\\(.)`).ReplaceAllString(parts[i], "$1")
		b.refuses(user, "right to read is missing: must be given to the user for "+unquoted+" (")
	}
	b.permit(user, all.Configure, "^$", all.Read)
	b.refuses(user, "right to write is missing: must be given to the user for exchange amq.default")
	if err := b.run(user); err == nil || !strings.Contains(err.Error(), "right to write is missing") {
		b.t.Errorf("a subscriber that may not write says: %v", err)
	}
	b.permit(user, all.Configure, all.Write, all.Read)
	b.refuses(user, "")
	if err := b.run(user); err != nil {
		b.t.Error(err)
	}
}

// refuses fails the test unless a plan of the user's reports exactly the missing right.
func (b *rabbitRights) refuses(user, want string) {
	b.t.Helper()
	c, err := amqp.Open(b.t.Context(), b.config(user, func(redeliver.Event) {}))
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close(b.t.Context())
	_, err = c.Plan(b.t.Context(), b.topic)
	refused, _ := errors.AsType[*redeliver.ConfigError](err)
	if want == "" && err == nil {
		return
	}
	if refused == nil || len(refused.Problems) != 1 || want == "" || !strings.HasPrefix(refused.Problems[0].String(), want) {
		b.t.Errorf("%v, want: %s", err, want)
	}
}

// operate does an operator's work, and checks that the rights for it are necessary.
func (b *rabbitRights) operate(user string) {
	b.t.Helper()
	text, defined := b.planned(user, "operator")
	b.manage(http.MethodPost, text, "definitions")
	ops := *b.shop
	ops.url = b.as(user)
	all := defined.Permissions[0]
	replay := []string{"dlq", "replay", b.dlq, "--note", "test", "--yes"}
	b.permit(user, "^$", all.Write, all.Read)
	ops.command(1, replay...)
	b.permit(user, all.Configure, "^$", all.Read)
	ops.command(1, replay...)
	b.permit(user, all.Configure, all.Write, "^$")
	ops.command(1, replay...)
	b.permit(user, all.Configure, all.Write, all.Read)
	ops.command(0, "pause", "--topic", b.topic, "--reason", "test")
	ops.command(0, "resume", "--topic", b.topic)
	shown := ops.rows(0, "dlq", "show", b.dlq)
	if len(shown) == 0 || shown[0]["body_text"] != dies {
		b.t.Fatalf("%v", shown)
	}
	exported := b.t.TempDir() + "/dead.jsonl"
	ops.command(0, "dlq", "export", b.dlq, "--file", exported)
	ops.command(0, replay...)
	ops.command(0, "dlq", "import", b.dlq, "--file", exported, "--note", "test", "--yes")
	ops.command(0, "dlq", "purge", b.dlq, "--all", "--note", "test", "--yes")
	if left := ops.rows(0, "dlq", "show", b.dlq); len(left) > 0 {
		b.t.Errorf("%v are left", left)
	}
	_, now := b.planned(user, "operator")
	if !reflect.DeepEqual(now.Permissions, defined.Permissions) {
		b.t.Errorf("the permissions are %v and were %v", now.Permissions, defined.Permissions)
	}
}
