package amqp

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

type fields = map[string]any

// fakeAPI is a management API with a test's answers. It refuses the paths in deny.
type fakeAPI struct {
	version          string
	flags            []fields
	policy, operator []fields
	queues           []fields
	deny             []string
}

func (f fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	say := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(v); err != nil {
			panic(err)
		}
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/")
	if user, password, _ := r.BasicAuth(); user != "monitor" || password != "s3cret" || slices.Contains(f.deny, strings.Split(path, "/")[0]) {
		w.WriteHeader(http.StatusUnauthorized)
		say(fields{"error": "not_authorized", "reason": "Login failed"})
		return
	}
	switch path {
	case "overview":
		say(fields{"rabbitmq_version": f.version, "cluster_name": "rabbit@one"})
	case "feature-flags":
		say(f.flags)
	case "policies//":
		say(f.policy)
	case "operator-policies//":
		say(f.operator)
	case "queues//":
		say(fields{"items": append([]fields{}, f.queues...), "page_count": 1})
	default:
		http.NotFound(w, r)
	}
}

// start starts a server and returns its URL with credentials.
func (f fakeAPI) start(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return strings.Replace(server.URL, "http://", "http://monitor:s3cret@", 1)
}

// greeting returns the properties of a broker of that version.
func greeting(version string) amqp091.Table {
	return amqp091.Table{"product": "RabbitMQ", "version": version, "cluster_name": "rabbit@one"}
}

// queueAnswer returns the API's answer for an existing queue with statistics.
func queueAnswer(name string, args fields, more fields) fields {
	kind := args[amqp091.QueueTypeArg]
	if kind == nil {
		kind = "classic"
	}
	q := fields{
		"name": name, "type": kind, "durable": true, "arguments": args, "state": "running",
		"messages": 0, "messages_ready": 0, "messages_unacknowledged": 0, "effective_policy_definition": []any{}, "policy": nil,
	}
	maps.Copy(q, more)
	return q
}

func policy(name, pattern string, definition fields, more fields) fields {
	p := fields{"vhost": "/", "name": name, "pattern": pattern, "apply-to": "all", "priority": 0, "definition": definition}
	maps.Copy(p, more)
	return p
}

var (
	quorum = fields{"x-queue-type": "quorum"}
	level  = fields{
		"x-queue-type": "quorum", "x-message-ttl": 20_000, "x-overflow": "reject-publish",
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.retry", "x-dead-letter-strategy": "at-least-once",
	}
)

func with(args fields, key string, value any) fields {
	out := maps.Clone(args)
	out[key] = value
	return out
}
