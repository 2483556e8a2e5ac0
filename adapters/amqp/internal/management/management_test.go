package management

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
)

func managementAt(url string) *API {
	return New(url, "amqp://guest:guest@localhost/my%2Fhost", amqp091.Config{})
}

func withPassword(url string) string {
	return strings.Replace(url, "http://", "http://boss:s3cret@", 1)
}

// For every wrong answer the error names the problem and the address, and no password.
func TestInvalidAnswersOfTheManagementAPI(t *testing.T) {
	for name, row := range map[string]struct {
		answer http.HandlerFunc
		want   string
	}{
		"a page":        {text(200, "<html>Welcome</html>"), "answers with something other than its JSON"},
		"nothing":       {text(200, ""), "answers with something other than its JSON"},
		"a part":        {text(200, `{"rabbitmq_version":"3.1`), "answers with something other than its JSON"},
		"a list":        {text(200, `[1]`), "answers with something other than its JSON"},
		"other JSON":    {text(200, `{"status":"ok"}`), "does not report RabbitMQ's version"},
		"null":          {text(200, `null`), "does not report RabbitMQ's version"},
		"login":         {text(401, `{"error":"not_authorized"}`), `refuses the user "boss" of Config.ManagementURL (401 Unauthorized)`},
		"forbidden":     {text(403, ``), `refuses the user "boss"`},
		"wrong path":    {text(404, `not here`), "answers 404 Not Found: not here"},
		"overload":      {text(503, "see http://boss:s3cret@host/"), "answers 503 Service Unavailable: see http://***@host/"},
		"too much":      {func(w http.ResponseWriter, _ *http.Request) { flood(w) }, "answers with more than 32 MiB"},
		"broken off":    {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
		"an error page": {text(500, strings.Repeat("x", 1000)), "answers 500 Internal Server Error: xxx"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(row.answer)
			t.Cleanup(server.Close)
			m := managementAt(withPassword(server.URL))
			m.retryTime = 100 * time.Millisecond
			_, err := m.Overview(context.Background())
			if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "s3cret") || len(err.Error()) > 500 {
				t.Errorf("%v\nwant: %s", err, row.want)
			}
			if errors.Is(err, redeliver.ErrConfig) {
				t.Error("an API that does not answer is not a problem of the configuration")
			}
		})
	}
}

func text(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func flood(w http.ResponseWriter) {
	block := []byte(strings.Repeat(" ", 1<<20))
	for range maxAnswer>>20 + 2 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
}

func TestUnreachableManagementAPI(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	m := managementAt(withPassword(server.URL))
	_, err := m.Overview(context.Background())
	if err == nil || !strings.Contains(err.Error(), "connection refused") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

func TestSilentManagementAPI(t *testing.T) {
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(over) })
	m := managementAt(withPassword(server.URL))
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := m.Overview(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestCredentialsDoNotFollowARedirect(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	t.Cleanup(other.Close)
	server := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	t.Cleanup(server.Close)
	m := managementAt(withPassword(server.URL))
	if _, err := m.Overview(context.Background()); err == nil || !strings.Contains(err.Error(), "answers 302 Found") {
		t.Error(err)
	}
}

// A path prefix is kept, an /api at the end is not doubled, the virtual host is escaped, and all pages are read.
func TestManagementURLs(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.EscapedPath()+" "+r.URL.Query().Get("page"))
		_, _ = w.Write([]byte(`{"page_count":2,"items":[{"name":"orders` + r.URL.Query().Get("page") + `","arguments":[],"effective_policy_definition":[]}]}`))
	}))
	t.Cleanup(server.Close)
	m := managementAt(withPassword(server.URL) + "/rabbit/api/")
	found, err := m.Queues(context.Background(), "^orders")
	if err != nil || len(found) != 2 || found["orders1"].Effective == nil || found["orders2"].Messages != nil {
		t.Error(found, err)
	}
	if got := strings.Join(asked, ", "); got != "/rabbit/api/queues/my%2Fhost 1, /rabbit/api/queues/my%2Fhost 2" {
		t.Error(got)
	}
}

// The management API may answer an empty list for an empty object.
func FuzzManagementAnswer(f *testing.F) {
	f.Add([]byte(`[{"name":"orders","type":"quorum","durable":true,"arguments":{"x-message-ttl":60000},"policy":null,"effective_policy_definition":[],"delivery_limit":"unlimited","messages":3}]`))
	f.Add([]byte(`[{"arguments":[ ],"effective_policy_definition":{},"delivery_limit":-1,"head_message_timestamp":""}]`))
	f.Add([]byte(`[{"arguments":[1],"messages":1e400}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var all []QueueInfo
		if json.Unmarshal(text, &all) != nil {
			return
		}
		for _, q := range all {
			if q.Effective != nil && *q.Effective == nil && !strings.Contains(string(text), "null") {
				t.Errorf("%s has a policy that is nil", text)
			}
			if _, err := json.Marshal(q); err != nil {
				t.Error(err)
			}
		}
	})
}
