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

	"github.com/cenkalti/backoff/v4"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

// admin changes a broker through its management API.
type admin struct{ r *brokers.Rabbit }

func newAdmin(t testing.TB, r *brokers.Rabbit) *admin {
	t.Helper()
	if r.Management() == "" {
		t.Fatal("this test needs the management API of RabbitMQ: set " + brokers.EnvRabbitMQManagement)
	}
	return &admin{r}
}

func (a *admin) do(t testing.TB, method string, body, into any, path ...string) {
	t.Helper()
	for i, p := range path {
		path[i] = url.PathEscape(p)
	}
	callAPI(t, a.r.Management(), method, "/api/"+strings.Join(path, "/"), body, into)
}

// callAPI calls the management API. It repeats requests that fail because the broker is overloaded. RabbitMQ 3.10
// answers a list of queues with 500 if one is deleted meanwhile, and caches that answer. An internal error of AMQP,
// such as a queue without a leader within 5 s, is a 400. All requests here are idempotent.
func callAPI(t testing.TB, management, method, path string, in, out any) {
	t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	again := false
	answer, err := backoff.RetryWithData(func() ([]byte, error) {
		req, err := http.NewRequestWithContext(context.Background(), method, strings.TrimSuffix(management, "/")+path, bytes.NewReader(body))
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, backoff.Permanent(err)
		}
		defer res.Body.Close()
		answer, err := io.ReadAll(res.Body)
		switch {
		case err != nil:
			return nil, backoff.Permanent(err)
		case res.StatusCode < http.StatusMultipleChoices, again && method == http.MethodDelete && res.StatusCode == http.StatusNotFound:
			return answer, nil
		}
		again = true
		err = fmt.Errorf("%s %s: %s %s", method, path, res.Status, answer)
		if res.StatusCode < http.StatusInternalServerError && res.StatusCode != http.StatusBadRequest {
			err = backoff.Permanent(err)
		}
		return nil, err
	}, backoff.NewExponentialBackOff(backoff.WithMaxElapsedTime(time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
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
	a.put(t, map[string]any{"durable": true, "arguments": arguments}, "queues", a.r.VHost(), name)
}

func (a *admin) policy(t *testing.T, name, pattern string, definition map[string]any) {
	t.Helper()
	a.put(t, map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"}, "policies", a.r.VHost(), name)
}

func (a *admin) operatorPolicy(t *testing.T, name, pattern string, definition map[string]any) {
	t.Helper()
	a.put(t, map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"}, "operator-policies", a.r.VHost(), name)
}

// queues returns the sorted names of a queue and those beside it, if they exist.
func (a *admin) queues(t testing.TB, queue string) []string {
	t.Helper()
	var all []struct {
		Name string `json:"name"`
	}
	a.do(t, http.MethodGet, nil, &all, "queues", a.r.VHost())
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

// publish publishes a message to a queue and waits for the confirm.
func (a *admin) publish(t *testing.T, queue string) {
	t.Helper()
	ch := a.channel(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	confirmed(t, ch, "", queue, amqp091.Publishing{DeliveryMode: amqp091.Persistent, Body: []byte(fmt.Sprint("to ", queue))})
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
	case <-time.After(maxWait): // an unread level takes 10 s longer
		t.Fatalf("no message arrives on %s", queue)
	}
}
