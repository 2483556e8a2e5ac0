package amqptest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

type Fields = map[string]any

// API fakes the management API of RabbitMQ with canned answers. It refuses the paths in Deny.
type API struct {
	Version          string
	Flags            []Fields
	Policy, Operator []Fields
	Queues           []Fields
	Deny             []string
}

func (a API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	reply := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			panic(err)
		}
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/")
	if user, password, _ := r.BasicAuth(); user != "monitor" || password != "s3cret" || slices.Contains(a.Deny, strings.Split(path, "/")[0]) {
		w.WriteHeader(http.StatusUnauthorized)
		reply(Fields{"error": "not_authorized", "reason": "Login failed"})
		return
	}
	switch path {
	case "overview":
		reply(Fields{"rabbitmq_version": a.Version, "cluster_name": "rabbit@one"})
	case "feature-flags":
		reply(a.Flags)
	case "policies//":
		reply(a.Policy)
	case "operator-policies//":
		reply(a.Operator)
	case "queues//":
		reply(Fields{"items": append([]Fields{}, a.Queues...), "page_count": 1})
	default:
		http.NotFound(w, r)
	}
}

// Start starts a server and returns its URL with credentials.
func (a API) Start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "http://monitor:s3cret@", 1)
}

// Greeting returns the properties of a broker of that version.
func Greeting(version string) amqp091.Table {
	return amqp091.Table{"product": "RabbitMQ", "version": version, "cluster_name": "rabbit@one"}
}

// QueueAnswer returns the API's answer for an existing queue with statistics.
func QueueAnswer(name string, args Fields, more Fields) Fields {
	kind := args[amqp091.QueueTypeArg]
	if kind == nil {
		kind = "classic"
	}
	q := Fields{
		"name": name, "type": kind, "durable": true, "arguments": args, "state": "running",
		"messages": 0, "messages_ready": 0, "messages_unacknowledged": 0, "effective_policy_definition": []any{}, "policy": nil,
	}
	maps.Copy(q, more)
	return q
}

func Policy(name, pattern string, definition Fields, more Fields) Fields {
	p := Fields{"vhost": "/", "name": name, "pattern": pattern, "apply-to": "all", "priority": 0, "definition": definition}
	maps.Copy(p, more)
	return p
}

var (
	Quorum = Fields{"x-queue-type": "quorum"}
	Level  = Fields{
		"x-queue-type": "quorum", "x-message-ttl": 20_000, "x-overflow": "reject-publish",
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.retry", "x-dead-letter-strategy": "at-least-once",
	}
)

func With(args Fields, key string, value any) Fields {
	out := maps.Clone(args)
	out[key] = value
	return out
}
