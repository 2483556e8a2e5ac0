package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// posted posts a message and returns the answer.
func posted(t *testing.T, url, body string, header map[string]string) (code int, text string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(answer)
}

// A handler gets what another program has published over HTTP, with key, id, headers and event, and not before its delay has passed.
func TestRunPublishes(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments", "letters")
	var mu sync.Mutex
	arrived := make(map[string]time.Time)
	p := newProgram(t, func(_ http.ResponseWriter, a asked) {
		mu.Lock()
		defer mu.Unlock()
		arrived[a.body] = time.Now()
	})
	h := s.handleIn(map[string]string{"REDELIVER_PUBLISH_TOKEN": "t0ken\n"}, "--http", p.URL, "--publish", "127.0.0.1:0", "--cloudevents")
	var row struct {
		Publish string `json:"publish"`
	}
	s.await("it says where to publish", func() bool { return json.Unmarshal([]byte(h.out.String()), &row) == nil })
	token := map[string]string{"Authorization": "Bearer t0ken"}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{"Authorization": token["Authorization"]}
		maps.Copy(all, more)
		return all
	}
	code, text := posted(t, row.Publish+"payments", `{"n": 1}`, with(map[string]string{
		"Redeliver-Id": "order-1", "Redeliver-Key": "k%C3%A4", "Redeliver-Header-Tenant%5Fid": "acme %25", "Content-Type": "application/json",
		"Redeliver-Expires": "1h", "Ce-Id": "e-1", "Ce-Source": "/shop", "Ce-Type": "ordered", "Ce-Specversion": "1.0",
	}))
	if code != http.StatusOK || text != `{"id":"order-1","topic":"payments"}`+"\n" {
		t.Fatalf("%d: %s", code, text)
	}
	sent := time.Now()
	if code, text := posted(t, row.Publish+"payments", "later", with(map[string]string{"Redeliver-Delay": "1s"})); code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	s.await("both arrive", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(arrived) == 2
	})
	if waited := arrived["later"].Sub(sent); waited < time.Second {
		t.Errorf("it was delivered after %s", waited)
	}
	p.mu.Lock()
	for _, a := range p.all {
		if a.body == "later" {
			continue
		}
		got := fmt.Sprint(a.header["Redeliver-Id"], a.header["Redeliver-Key"], a.header["Redeliver-Header-Tenant%5fid"], a.header["Content-Type"], a.header["Ce-Type"], a.header["Ce-Source"], a.header["Ce-Id"])
		if want := "[order-1][k%C3%A4][acme%20%25][application/json][ordered][/shop][e-1]"; strings.ReplaceAll(got, " ", "") != want {
			t.Errorf("the handler gets %s, want %s: %v", got, want, a.header)
		}
	}
	p.mu.Unlock()
	for _, c := range []struct {
		topic  string
		header map[string]string
		code   int
		says   string
	}{
		{"payments", nil, http.StatusUnauthorized, "Bearer"},
		{"payments", map[string]string{"Authorization": "Bearer other"}, http.StatusUnauthorized, "Bearer"},
		{"payments", with(map[string]string{"Redeliver-Dealy": "1s"}), http.StatusBadRequest, "Redeliver-Dealy is no header of a message"},
		{"payments", with(map[string]string{"Redeliver-Delay": "soon"}), http.StatusBadRequest, "must be a duration"},
		{"payments", with(map[string]string{"Redeliver-Delay": "-1s"}), http.StatusBadRequest, "must be from 0 to"},
		{"payments", with(map[string]string{"Redeliver-Expires": "tomorrow"}), http.StatusBadRequest, "must be a duration, such as 1h, or a time"},
		{"payments", with(map[string]string{"Redeliver-Header-redeliver-attempt": "9"}), http.StatusBadRequest, "one of redeliver's"},
		{"payments", with(map[string]string{"Ce-Type": "x"}), http.StatusBadRequest, "the CloudEvent has no id"},
		{"payments", with(map[string]string{"Redeliver-Key": "%zz"}), http.StatusBadRequest, "percent-encoded"},
		{"letters", with(map[string]string{"Redeliver-Delay": "1s"}), http.StatusBadRequest, "none is known for letters"},
		{"letters", token, http.StatusOK, `"topic":"letters"`},
	} {
		if code, text := posted(t, row.Publish+c.topic, "x", c.header); code != c.code || !strings.Contains(text, c.says) {
			t.Errorf("%s with %v: %d %s", c.topic, c.header, code, text)
		}
	}
	if code, _ := posted(t, row.Publish+"payments", strings.Repeat("x", 17<<20), token); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body is answered with %d", code)
	}
	s.broker.Close()
	if code, text := posted(t, row.Publish+"payments", "lost", with(map[string]string{"Redeliver-Id": "order-9"})); code != http.StatusServiceUnavailable || !strings.Contains(text, "order-9") {
		t.Errorf("without a broker: %d %s", code, text)
	}
}

// Others than programs on this host need a token, and pages in a browser get nowhere.
func TestPublishingIsForThisHost(t *testing.T) {
	t.Parallel()
	for _, address := range []string{":8082", "0.0.0.0:8082", "10.0.0.7:8082"} {
		call{}.run(t, strings.Fields("run --check --broker kafka://h:1 --topic a --group g --http http://h --publish "+address)...).want(t, 2, "--publish is "+address, "REDELIVER_PUBLISH_TOKEN")
		call{env: map[string]string{"REDELIVER_PUBLISH_TOKEN": "x"}}.run(t, strings.Fields("run --check --broker kafka://h:1 --topic a --group g --http http://h --publish "+address)...).want(t, 0)
	}
	call{}.run(t, strings.Fields("run --check --broker kafka://h:1 --topic a --group g --http http://h --publish nowhere")...).want(t, 2, "must be an address")
	s := newTestKafka(t)
	s.topics("payments")
	h := s.handle("--http", "http://127.0.0.1:1", "--publish", "127.0.0.1:0")
	var row struct {
		Publish string `json:"publish"`
	}
	s.await("it says where to publish", func() bool { return json.Unmarshal([]byte(h.out.String()), &row) == nil })
	if code, _ := posted(t, row.Publish+"payments", "x", map[string]string{"Origin": "http://evil.example"}); code != http.StatusForbidden {
		t.Errorf("a browser gets %d", code)
	}
}

// The command publishes with everything, and refuses what it cannot keep.
func TestPublish(t *testing.T) {
	t.Parallel()
	s := newTestKafka(t)
	s.topics("payments")
	got := s.run("publish", "payments", "--key", "k", "--header", "tenant=acme", "--id", "order-1", "--content-type", "application/json", "--event-type", "ordered", "--expires", "2030-01-31T12:00:00Z", "-o", "json", "--body-file", write(t, "body")).want(t, 0)
	if !strings.Contains(got.out, `"id": "order-1"`) {
		t.Errorf("it prints %s", got.out)
	}
	r := s.records("payments", 1)[0]
	headers := make(map[string]string)
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	want := map[string]string{"tenant": "acme", "content-type": "application/json", "ce_type": "ordered", "ce_source": "/payments", "ce_id": "order-1", "_watermill_message_uuid": "order-1", "redeliver-expires": "2030-01-31T12:00:00.000Z"}
	for name, value := range want {
		if headers[name] != value {
			t.Errorf("%s is %q, want %q", name, headers[name], value)
		}
	}
	if string(r.Key) != "k" || string(r.Value) != "body" {
		t.Errorf("the record is %q: %q", r.Key, r.Value)
	}
	s.run("publish", "payments", "--delay", "1m", "--body-file", write(t, "x")).want(t, 2, "missing required flag --group")
	s.run("publish", "payments", "--delay", "1m", "--group", "billing", "--body-file", write(t, "x")).want(t, 0)
	s.run("publish", "payments", "--delay", "9000h", "--group", "billing", "--body-file", write(t, "x")).want(t, 2, "must be from 0 to")
	s.run("publish", "payments", "--header", "tenant").want(t, 2, "must be name=value")
	s.run("publish", "payments", "--header", "Redeliver-Attempt=3").want(t, 2, "one of redeliver's")
	s.run("publish", "payments", "--event-source", "x").want(t, 2, "--event-source means nothing without --event-type")
	s.run("publish").want(t, 2, "the name of a topic or queue")
}
