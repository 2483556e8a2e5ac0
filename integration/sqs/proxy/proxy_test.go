package proxy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/sqs/proxy"
)

// sqs is a server that accepts everything and counts requests.
func sqs(t *testing.T) (*proxy.Proxy, *atomic.Int32) {
	t.Helper()
	var entries atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		type entry struct {
			ID string `json:"Id"`
		}
		var in struct {
			Entries []entry `json:"Entries"`
		}
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		entries.Add(int32(max(1, len(in.Entries))))
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_ = json.NewEncoder(w).Encode(map[string]any{"Successful": in.Entries})
	}))
	t.Cleanup(server.Close)
	p, err := proxy.Start(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, &entries
}

func post(ctx context.Context, p *proxy.Proxy, action string, in map[string]any) (int, string, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL()+"/", bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	resp, err := http.DefaultTransport.RoundTrip(req) // it retries nothing
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func send(body string) map[string]any {
	return map[string]any{"QueueUrl": "http://h/1/orders", "MessageBody": body}
}

func deletes(n int) map[string]any {
	var entries []any
	for i := range n {
		entries = append(entries, map[string]any{"Id": fmt.Sprint(i), "ReceiptHandle": "r"})
	}
	return map[string]any{"QueueUrl": "http://h/1/orders", "Entries": entries}
}

// Each fault does what its name says: the request is carried out or not, and answered or not.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		fault  proxy.Fault
		status int // 0 means no answer
		says   string
		done   int32
	}{
		{proxy.ServerError, 500, "InternalFailure", 0},
		{proxy.Throttled, 400, "RequestThrottled", 0},
		{proxy.ExpiredCredentials, 403, "ExpiredTokenException", 0},
		{proxy.Refused, 400, "AccessDeniedException", 0},
		{proxy.Cut, 0, "", 0},
		{proxy.Unread, 0, "", 3},
		{proxy.Silent, 0, "", 3},
		{proxy.Partial, 200, `"Failed":[{"Code":"InternalError","Id":"0","Message":"injected by the test","SenderFault":false},{"Code":"InternalError","Id":"2"`, 1},
		{proxy.FalseFailure, 200, `"Successful":[{"Id":"1"}]`, 3},
	} {
		t.Run(c.fault.String(), func(t *testing.T) {
			p, done := sqs(t)
			rule := p.Add(proxy.Rule{Fault: c.fault, Queue: "orders", Times: 1})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if c.fault == proxy.Silent {
				go func() {
					for done.Load() < c.done && ctx.Err() == nil {
						<-time.After(time.Millisecond)
					}
					<-time.After(200 * time.Millisecond) // an answer would have come by then
					cancel()
				}()
			}
			status, said, err := post(ctx, p, "DeleteMessageBatch", deletes(3))
			if status != c.status || !strings.Contains(said, c.says) || (err == nil) != (c.status != 0) {
				t.Errorf("answered with %d %s (%v), want %d with %s", status, said, err, c.status, c.says)
			}
			if got := done.Load(); got != c.done {
				t.Errorf("the server was asked for %d entries, want %d", got, c.done)
			}
			wait, stop := context.WithTimeout(t.Context(), time.Minute)
			defer stop()
			if err := rule.Await(wait, 1); err != nil {
				t.Error(err)
			}
			if status, said, err := post(t.Context(), p, "DeleteMessageBatch", deletes(2)); status != 200 || strings.Contains(said, "Failed") {
				t.Errorf("the fault hit the second, too: %d %s %v", status, said, err)
			}
		})
	}
}

func TestARuleAppliesOnlyToMatchingRequests(t *testing.T) {
	p, _ := sqs(t)
	rule := p.Add(proxy.Rule{Fault: proxy.Throttled, Action: "SendMessage", Queue: "orders", Match: func(c *proxy.Call) bool {
		return c.In["MessageBody"] == "this"
	}})
	for body, want := range map[string]int{"this": 400, "that": 200} {
		if status, said, _ := post(t.Context(), p, "SendMessage", send(body)); status != want {
			t.Errorf("%s: %d %s, want %d", body, status, said, want)
		}
	}
	if status, _, _ := post(t.Context(), p, "DeleteMessage", send("this")); status != 200 {
		t.Error("the rule applied to another action")
	}
	rule.Remove()
	if status, _, _ := post(t.Context(), p, "SendMessage", send("this")); status != 200 || rule.Met() != 1 {
		t.Errorf("after its removal the rule still applies: %d", rule.Met())
	}
	if counts := p.Counts(); counts["SendMessage"] != 3 || counts["DeleteMessage"] != 1 {
		t.Errorf("counted %v", counts)
	}
}

func TestChanceIsAFractionOfTheRequests(t *testing.T) {
	p, _ := sqs(t)
	rule := p.Add(proxy.Rule{Fault: proxy.Throttled, Chance: 0.5})
	for range 100 {
		_, _, _ = post(t.Context(), p, "SendMessage", send("x")) // the rule decides the result
	}
	if met := rule.Met(); met < 20 || met > 80 {
		t.Errorf("a rule with a chance of a half applied to %d of 100", met)
	}
}

// The proxy refuses and reports what AWS documents as refused, although the server would accept it.
func TestDocumentedLimits(t *testing.T) {
	attributes := func(n int, name, kind, value string) map[string]any {
		list := map[string]any{}
		for i := range n {
			list[fmt.Sprintf("%s%d", name, i)] = map[string]any{"DataType": kind, "StringValue": value}
		}
		return list
	}
	with := func(m map[string]any, more ...any) map[string]any {
		for i := 0; i < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	twice := deletes(2)
	twice["Entries"].([]any)[1].(map[string]any)["Id"] = "0"
	fifo := func(more ...any) map[string]any {
		return with(map[string]any{"QueueUrl": "http://h/1/orders.fifo", "MessageBody": "b"}, more...)
	}
	full := strings.Repeat("x", proxy.DefaultLimit)
	for name, c := range map[string]struct {
		action string
		in     map[string]any
		code   string // "" if it is accepted
	}{
		"at the limit":               {"SendMessage", send(full), ""},
		"above the limit":            {"SendMessage", send(full + "x"), "InvalidParameterValue"},
		"attributes above the limit": {"SendMessage", with(send(full[:len(full)-8]), "MessageAttributes", attributes(1, "a", "String", "x")), "InvalidParameterValue"},
		"attributes at the limit":    {"SendMessage", with(send(full[:len(full)-9]), "MessageAttributes", attributes(1, "a", "String", "x")), ""},
		"ten attributes":             {"SendMessage", with(send("b"), "MessageAttributes", attributes(10, "a", "Number.x", "1")), ""},
		"eleven attributes":          {"SendMessage", with(send("b"), "MessageAttributes", attributes(11, "a", "String", "1")), "InvalidParameterValue"},
		"an empty attribute":         {"SendMessage", with(send("b"), "MessageAttributes", attributes(1, "a", "String", "")), "InvalidParameterValue"},
		"a name with a space":        {"SendMessage", with(send("b"), "MessageAttributes", attributes(1, "a ", "String", "1")), "InvalidParameterValue"},
		"a reserved name":            {"SendMessage", with(send("b"), "MessageAttributes", attributes(1, "AWS.x", "String", "1")), "InvalidParameterValue"},
		"an unknown type":            {"SendMessage", with(send("b"), "MessageAttributes", attributes(1, "a", "Text", "1")), "InvalidParameterValue"},
		"NUL":                        {"SendMessage", send("a\x00"), "InvalidMessageContents"},
		"NUL in an attribute":        {"SendMessage", with(send("b"), "MessageAttributes", attributes(1, "a", "String", "\x00")), "InvalidParameterValue"},
		"emoji":                      {"SendMessage", send("😀\t\r\n"), ""},
		"no body":                    {"SendMessage", send(""), "MissingParameter"},
		"900 s":                      {"SendMessage", with(send("b"), "DelaySeconds", 900), ""},
		"901 s":                      {"SendMessage", with(send("b"), "DelaySeconds", 901), "InvalidParameterValue"},
		"a delay on FIFO":            {"SendMessage", fifo("MessageGroupId", "g", "DelaySeconds", 1), "InvalidParameterValue"},
		"no group on FIFO":           {"SendMessage", fifo(), "MissingParameter"},
		"FIFO":                       {"SendMessage", fifo("MessageGroupId", "g", "MessageDeduplicationId", "a!\\]"), ""},
		"a long group":               {"SendMessage", fifo("MessageGroupId", strings.Repeat("g", 129)), "InvalidParameterValue"},
		"a group, standard":          {"SendMessage", with(send("b"), "MessageGroupId", "g"), ""},
		"a deduplication, standard":  {"SendMessage", with(send("b"), "MessageDeduplicationId", "g"), "InvalidParameterValue"},
		"12 h":                       {"ChangeMessageVisibility", with(send(""), "VisibilityTimeout", 43200), ""},
		"above 12 h":                 {"ChangeMessageVisibility", with(send(""), "VisibilityTimeout", 43201), "InvalidParameterValue"},
		"eleven to receive":          {"ReceiveMessage", with(send(""), "MaxNumberOfMessages", 11), "InvalidParameterValue"},
		"21 s to wait":               {"ReceiveMessage", with(send(""), "WaitTimeSeconds", 21), "InvalidParameterValue"},
		"ten entries":                {"DeleteMessageBatch", deletes(10), ""},
		"eleven entries":             {"DeleteMessageBatch", deletes(11), "TooManyEntriesInBatchRequest"},
		"no entries":                 {"DeleteMessageBatch", deletes(0), "EmptyBatchRequest"},
		"an id twice":                {"DeleteMessageBatch", twice, "BatchEntryIdsNotDistinct"},
		"a batch above the limit": {"SendMessageBatch", map[string]any{"QueueUrl": "http://h/1/orders", "Entries": []any{
			map[string]any{"Id": "0", "MessageBody": full}, map[string]any{"Id": "1", "MessageBody": "x"}}}, "BatchRequestTooLong"},
	} {
		t.Run(name, func(t *testing.T) {
			p, done := sqs(t)
			status, said, err := post(t.Context(), p, c.action, c.in)
			if err != nil {
				t.Fatal(err)
			}
			accepted := status == 200 && done.Load() > 0 && len(p.Violations()) == 0
			refused := status == 400 && strings.Contains(said, `#`+c.code+`"`) && done.Load() == 0 && len(p.Violations()) == 1
			if c.code == "" && !accepted || c.code != "" && !refused {
				t.Errorf("answered with %d %s, the server had %d, violations %q; want %q", status, said, done.Load(), p.Violations(), c.code)
			}
		})
	}
}
