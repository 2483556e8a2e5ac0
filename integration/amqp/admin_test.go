package amqp_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

// admin changes a broker through its management API.
type admin struct{ r *brokers.Rabbit }

func newAdmin(t *testing.T, r *brokers.Rabbit) *admin {
	t.Helper()
	if r.Management() == "" {
		t.Fatal("this test needs the management API of RabbitMQ: set " + brokers.EnvRabbitMQManagement)
	}
	return &admin{r}
}

func (a *admin) do(t *testing.T, method string, body, into any, path ...string) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	address := a.r.Management() + "/api"
	for _, p := range path {
		address += "/" + url.PathEscape(p)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, address, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode >= 300 {
		t.Fatalf("%s %v: %s %s %v", method, path, res.Status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			t.Fatal(err)
		}
	}
}

func (a *admin) put(t *testing.T, body any, path ...string) {
	t.Helper()
	a.do(t, http.MethodPut, body, nil, path...)
}

func (a *admin) delete(t *testing.T, path ...string) {
	t.Helper()
	a.do(t, http.MethodDelete, nil, nil, path...)
}

func (a *admin) declareQueue(t *testing.T, name string, arguments map[string]any) {
	t.Helper()
	a.put(t, map[string]any{"durable": true, "arguments": arguments}, "queues", "/", name)
}

func (a *admin) policy(t *testing.T, name, pattern string, definition map[string]any) {
	t.Helper()
	a.put(t, map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"}, "policies", "/", name)
}

func (a *admin) operatorPolicy(t *testing.T, name, pattern string, definition map[string]any) {
	t.Helper()
	a.put(t, map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"}, "operator-policies", "/", name)
}

// queues is the names, in order, of a queue and those beside it, as far as they
// are there.
func (a *admin) queues(t *testing.T, queue string) []string {
	t.Helper()
	var all []struct {
		Name string `json:"name"`
	}
	a.do(t, http.MethodGet, nil, &all, "queues", "/")
	var names []string
	for _, q := range all {
		if q.Name == queue || strings.HasPrefix(q.Name, queue+".") {
			names = append(names, q.Name)
		}
	}
	slices.Sort(names)
	return names
}

func (a *admin) channel(t *testing.T) *amqp091.Channel {
	t.Helper()
	conn, err := amqp091.Dial(a.r.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// publish puts a message on a queue and waits for the broker's word.
func (a *admin) publish(t *testing.T, queue string) {
	t.Helper()
	ch := a.channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	sent, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, false, false, amqp091.Publishing{
		DeliveryMode: amqp091.Persistent, Body: []byte(fmt.Sprint("to ", queue)),
	})
	if err != nil || !sent.Wait() {
		t.Fatal(err)
	}
}

// arrives waits until a message is on a queue.
func (a *admin) arrives(t *testing.T, queue string) {
	t.Helper()
	in, err := a.channel(t).Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-in:
	case <-time.After(patience): // a level that nobody reads takes 10 s longer
		t.Fatalf("nothing arrives on %s", queue)
	}
}
