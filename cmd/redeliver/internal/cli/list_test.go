package cli_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Missing settings for a list of RabbitMQ's queues are reported before any connection, and no password is quoted.
func TestListOnRabbitMQRequiresTheManagementAPI(t *testing.T) {
	t.Parallel()
	const rabbit = "amqp://127.0.0.1:1"
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("mine:\n  broker: "+rabbit+"\n  management-url: ftp://h:1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		args string
		env  map[string]string
		code int
		says string
	}{
		"list":              {"dlq list --broker " + rabbit, nil, 2, "--management-url"},
		"check":             {"dlq check --broker " + rabbit, nil, 2, "--management-url"},
		"no URL":            {"dlq list --management-url h:1 --broker " + rabbit, nil, 2, "must be http://"},
		"no URL, variable":  {"dlq list --broker " + rabbit, map[string]string{"REDELIVER_MANAGEMENT_URL": "ftp://a:pa55-phrase@h:1"}, 2, "must be http://"},
		"no URL, profile":   {"dlq list --profile mine --config " + config, nil, 2, "must be http://"},
		"another broker":    {"dlq list --broker " + rabbit + " --profile mine --config " + config, nil, 2, "--management-url"},
		"another user":      {"dlq list --management-url http://eve@h:1 --broker " + rabbit, nil, 2, "without a password"},
		"of another broker": {"dlq list --management-url http://h:1 --broker kafka://127.0.0.1:1", nil, 2, "for RabbitMQ"},
		"given":             {"dlq list --management-url http://h:1 --broker " + rabbit, nil, 1, "127.0.0.1:1"},
	} {
		got := call{env: test.env}.run(t, strings.Fields(test.args)...)
		if got.code != test.code || !strings.Contains(got.err, test.says) || strings.Contains(got.err, password) {
			t.Errorf("%s: exit code %d, want %d: %s", name, got.code, test.code, got.err)
		}
	}
}

// SQS DLQs are recognised by their names. Their origin is known if their queue and the other queues of a subscription
// exist. A DLQ that cannot be opened does not affect the others.
func TestListOnSQS(t *testing.T) {
	t.Parallel()
	names := `"http://h/1/payments-dlq","http://h/1/payments","http://h/1/orders"`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		answer := `{"QueueUrls":[` + names + `]}`
		if r.Header.Get("X-Amz-Target") != "AmazonSQS.ListQueues" {
			w.WriteHeader(http.StatusBadRequest)
			answer = `{"__type":"com.amazonaws.sqs#AccessDenied","message":"not yours"}`
		}
		if _, err := w.Write([]byte(answer)); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	broker := "sqs+" + server.URL
	rows := call{}.run(t, "dlq", "list", "-o", "json", "--broker", broker).want(t, 0).objects(t)
	if len(rows) != 1 || rows[0]["dlq"] != "payments-dlq" || rows[0]["origin"] != nil || rows[0]["messages"] != nil || rows[0]["broker"] != "sqs" {
		t.Errorf("%v", rows)
	}
	call{}.run(t, "dlq", "check", "--broker", broker).want(t, 3, "1 of 1 DLQs")
	names += `,"http://h/1/orders-dlq","http://h/1/orders-suspects"`
	rows = call{}.run(t, "dlq", "list", "-o", "json", "--broker", broker).want(t, 5, "1 of 2 DLQs", "not yours").objects(t)
	if len(rows) != 2 || rows[0]["dlq"] != "orders-dlq" || rows[0]["origin"] != "orders" || rows[0]["messages"] != nil {
		t.Errorf("%v", rows)
	}
	call{}.run(t, "dlq", "check", "--broker", broker).want(t, 1, "orders-dlq")
	names = `"http://h/1/orders","http://h/1/orders-dlq","http://h/1/orders-suspects"`
	call{}.run(t, "dlq", "list", "--broker", broker).want(t, 1, "none of the 1 DLQs could be opened")
}
