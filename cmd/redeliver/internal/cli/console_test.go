package cli_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/cli"
	"github.com/redeliver/redeliver/driver"
)

// served is a console that the command serves in this process.
type served struct {
	t    *testing.T
	url  string
	stop context.CancelFunc
	code chan int
	errs *buffer
}

// serve runs redeliver console until the test ends or stop is called.
func serve(t *testing.T, env map[string]string, args ...string) *served {
	t.Helper()
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &served{t: t, stop: stop, code: make(chan int, 1), errs: &buffer{}}
	all := map[string]string{"XDG_CONFIG_HOME": t.TempDir()}
	maps.Copy(all, env)
	out, in := io.Pipe()
	go func() {
		code := cli.Run(ctx, append([]string{"console", "--listen", "127.0.0.1:0", "-o", "jsonl", "--refresh", "1s"}, args...), cli.Streams{
			In: strings.NewReader(""), Out: in, Err: s.errs, Env: func(name string) string { return all[name] }, MaxClose: maxWait,
		})
		_ = in.Close()
		s.code <- code
	}()
	t.Cleanup(func() {
		stop()
		_ = out.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	var row struct {
		URL    string `json:"url"`
		Queues int    `json:"queues"`
	}
	if err != nil || json.Unmarshal([]byte(line), &row) != nil || row.URL == "" {
		t.Fatalf("it prints %q (%v) and says %s", line, err, s.errs.String())
	}
	s.url = row.URL
	return s
}

// end stops the console and requires exit code 0.
func (s *served) end() {
	s.t.Helper()
	s.stop()
	select {
	case code := <-s.code:
		if code != 0 {
			s.t.Errorf("it ends with %d: %s", code, s.errs.String())
		}
	case <-time.After(maxWait):
		s.t.Fatal("it does not end")
	}
}

// ask sends a request, with a form if there is one, and follows redirects.
func (s *served) ask(form url.Values, to string, header ...string) (status int, at, page string) {
	s.t.Helper()
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if form != nil {
		method, body = http.MethodPost, strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+to, body)
	if err != nil {
		s.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer.StatusCode, answer.Request.URL.RequestURI()[1:], string(text)
}

// until requests a page until it contains says.
func (s *served) until(to, says string, header ...string) {
	s.t.Helper()
	page := ""
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(maxWait); !strings.Contains(page, says); {
		select {
		case <-tick.C:
			_, _, page = s.ask(nil, to, header...)
		case <-deadline:
			s.t.Fatalf("/%s never says %q:\n%s", to, says, page)
		}
	}
}

// replay replays no message and waits for the end of the task, so that another one can start.
func (s *served) replay(header ...string) (status int) {
	s.t.Helper()
	status, at, _ := s.ask(url.Values{"dlq": {dlq}, "why": {"x"}, "id": {"none"}}, "replay", header...)
	if status == http.StatusOK {
		s.until(at, `<span class="tag good">done</span>`, header...)
	}
	return status
}

func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The console shows the messages of the broker, replays them, and writes its record.
func TestConsole(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	k.fill()
	// Two messages wait: one on the level 1h, which is not due yet, and one in the retry topic, due since yesterday.
	k.topics("orders.billing.retry.1h")
	for topic, due := range map[string]time.Time{"orders.billing.retry.1h": time.Now().Add(time.Hour), "orders.billing.retry": time.Now().Add(-24 * time.Hour)} {
		st := redeliver.State{ID: "o-1", Origin: "orders", Group: "billing", Attempts: 1, Due: due}
		rec := &kgo.Record{Topic: topic, Value: []byte("{}"), Timestamp: due.Add(-time.Hour)}
		for _, h := range driver.AppendStateHeaders(st, nil) {
			rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: h.Name, Value: []byte(h.Value)})
		}
		k.put(rec)
	}
	audit := write(t, "what was there before\n")
	s := serve(t, nil, "--broker", k.url, "--audit", audit, "--title", "The shop")
	s.until("", ">5 dead letters<")
	s.until("", "The shop")
	s.until("", "1h 1")
	s.until("", "late by 24 h")
	if status, _, page := s.ask(nil, "message?dlq="+dlq+"&at=0/0"); status != http.StatusOK || !strings.Contains(page, "12345678901234567890") {
		t.Errorf("the message is %d: %s", status, page)
	}
	status, at, page := s.ask(url.Values{"dlq": {dlq}, "why": {"INC-7\u202e\u009b"}, "type": {"*bank.NotFoundError"}}, "replay")
	if status != http.StatusOK || !strings.HasPrefix(at, "task?") {
		t.Fatalf("the replay leads to %s, %d: %s", at, status, page)
	}
	s.until(at, `<span class="tag good">done</span>`)
	s.until("", ">3 dead letters<")
	s.end()
	if n := k.written(back); n != 3 {
		t.Errorf("%d are on the retry topic, with the one that was", n)
	}
	text, err := os.ReadFile(audit)
	if err != nil || !strings.HasPrefix(string(text), "what was there before\n{") {
		t.Fatalf("the record is %q: %v", text, err)
	}
	for _, want := range []string{`"action":"reveal"`, `"action":"replay"`, `"result":"done"`, `"why":"INC-7\u202e\u009b"`, `"who":"local"`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the record lacks %s: %s", want, text)
		}
	}
	if said := s.errs.String(); !strings.Contains(said, "everybody on this machine is an operator") {
		t.Errorf("stderr does not say who may do what: %s", said)
	}
	if said := s.errs.String(); strings.Contains(said, "INC-7") {
		t.Errorf("the record is on stderr, too: %s", said)
	}
}

func TestConsoleUsersAndRoles(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	k.fill()
	users := "# the shift\n\nann:viewer,operator@orders.*:a long:password\r\nbob:viewer,operator@refunds.*:another password\n"
	ann := []string{"Authorization", "Basic YW5uOmEgbG9uZzpwYXNzd29yZA=="}
	bob := []string{"Authorization", "Basic Ym9iOmFub3RoZXIgcGFzc3dvcmQ="}
	for name, s := range map[string]*served{
		"file":        serve(t, nil, "--broker", k.url, "--basic-auth", write(t, users)),
		"environment": serve(t, map[string]string{"REDELIVER_CONSOLE_USERS": users}, "--broker", k.url),
	} {
		for who, row := range map[string]struct {
			header        []string
			home, replays int
		}{
			"nobody": {nil, http.StatusUnauthorized, http.StatusUnauthorized}, "ann": {ann, http.StatusOK, http.StatusOK}, "bob": {bob, http.StatusOK, http.StatusForbidden},
		} {
			if status, _, page := s.ask(nil, "", row.header...); status != row.home {
				t.Errorf("%s: %s gets %d: %s", name, who, status, page)
			}
			if status := s.replay(row.header...); status != row.replays {
				t.Errorf("%s: %s replays with %d", name, who, status)
			}
		}
		s.end()
		if said := s.errs.String(); !strings.Contains(said, `"who":"ann"`) || strings.Contains(said, "password") {
			t.Errorf("%s: stderr says %s", name, said)
		} else if strings.Contains(said, "everybody on this machine") {
			t.Errorf("%s: stderr says that it asks nobody: %s", name, said)
		}
	}

	s := serve(t, nil, "--broker", k.url, "--read-only")
	if status := s.replay(); status != http.StatusForbidden {
		t.Errorf("a read-only console replays with %d", status)
	}
	s.end()
	if said := s.errs.String(); !strings.Contains(said, "everybody on this machine may read") {
		t.Errorf("stderr does not say who may do what: %s", said)
	}
}

func TestConsoleBehindAProxy(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	k.fill()
	s := serve(t, nil, "--broker", k.url, "--behind-proxy", "10.0.0.0/8,127.0.0.1", "--user-header", "X-User", "--grant", "viewer=*", "--grant", "operator=@ops, ann ", "--grant", "reader=ann",
		"--grant", "operator@orders.*=ivy", "--grant", "operator@refunds.*=bob", "--proxy-secret-file", write(t, "a-secret-of-the-proxy\n"))
	for name, row := range map[string]struct {
		header        []string
		home, replays int
	}{
		"ivy":             {[]string{"X-User", "ivy"}, http.StatusOK, http.StatusOK},
		"a process":       {[]string{"X-User", "ann", "X-Proxy-Secret", "guessed-by-somebody"}, http.StatusForbidden, http.StatusForbidden},
		"nobody":          {nil, http.StatusForbidden, http.StatusForbidden},
		"ann":             {[]string{"X-User", "ann", "X-Forwarded-For", "192.0.2.1"}, http.StatusOK, http.StatusOK},
		"bob":             {[]string{"X-User", "bob"}, http.StatusOK, http.StatusForbidden},
		"bob of ops":      {[]string{"X-User", "bob", "X-Forwarded-Groups", "dev, ops"}, http.StatusOK, http.StatusOK},
		"somebody @ops":   {[]string{"X-User", "@ops"}, http.StatusOK, http.StatusForbidden},
		"the other field": {[]string{"X-Forwarded-User", "ann"}, http.StatusForbidden, http.StatusForbidden},
	} {
		if name != "a process" {
			row.header = append(row.header, "X-Proxy-Secret", "a-secret-of-the-proxy")
		}
		if status, _, page := s.ask(nil, "", row.header...); status != row.home {
			t.Errorf("%s gets %d: %s", name, status, page)
		}
		if status := s.replay(row.header...); status != row.replays {
			t.Errorf("%s replays with %d", name, status)
		}
	}
	s.end()
	s = serve(t, nil, "--broker", k.url, "--behind-proxy", "10.0.0.0/8", "--grant", "viewer=*")
	if status, _, _ := s.ask(nil, "", "X-Forwarded-User", "ann"); status != http.StatusForbidden {
		t.Errorf("from elsewhere it is %d", status)
	}
	s.end()
	s = serve(t, nil, "--broker", k.url)
	if status, _, page := s.ask(nil, "", "X-Forwarded-For", "192.0.2.1"); status != http.StatusForbidden || !strings.Contains(page, "--behind-proxy") {
		t.Errorf("through a proxy that was not named it is %d: %s", status, page)
	}
	s.end()
}

// Of several brokers, each has a name and its own DLQs.
func TestConsoleOfSeveralBrokers(t *testing.T) {
	t.Parallel()
	one, two := newTestKafka(t), newTestKafka(t)
	one.fill()
	two.topics("mails", "mails.sender.retry", "mails.sender.dlq", "strange", "others.dlq")
	two.put(dead(1, 0, declined))
	s := serve(t, nil, "--broker", "eu="+one.url, "--broker", two.url)
	s.until("", ">6 dead letters<")
	for _, want := range []string{"eu · orders → billing", "kafka · orders → billing", "kafka · mails → sender", "dlq?dlq=eu%2F" + dlq, "dlq?dlq=kafka%2F" + dlq} {
		if _, _, page := s.ask(nil, ""); !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
	s.end()
	if said := s.errs.String(); !strings.Contains(said, "kafka/others.dlq is not shown") {
		t.Errorf("it says %s", said)
	}

	profiles := write(t, "eu:\n  broker: "+one.url+"\nus:\n  broker: "+two.url+"\n")
	s = serve(t, nil, "--config", profiles, "--profile", "eu", "--profile", "us", "--dlq", "us/mails.sender.dlq", "--dlq", "us/strange,topic=orders,group=billing")
	s.until("", "eu · orders → billing")
	_, _, page := s.ask(nil, "")
	if !strings.Contains(page, "us · mails → sender") || !strings.Contains(page, ">strange<") || strings.Contains(page, "us%2F"+dlq) {
		t.Errorf("the page is\n%s", page)
	}
	s.end()

	for says, args := range map[string][]string{
		"name one of the brokers": {"--broker", one.url, "--broker", two.url, "--dlq", dlq},
		"must be unique":          {"--broker", "a=" + one.url, "--broker", "a=" + two.url},
		"topic: give both":        {"--broker", one.url, "--dlq", dlq + ",group=billing"},
		"names no DLQ":            {"--broker", "a=" + one.url, "--dlq", "a/"},
		"the URL has a password":  {"--broker", "kafka://ann:" + password + "@127.0.0.1:1", "--password-file", write(t, password)},
	} {
		got := call{}.run(t, append([]string{"console", "--listen", "127.0.0.1:0"}, args...)...).want(t, 2, says)
		if got.out != "" || strings.Contains(got.err, password) {
			t.Errorf("%q: it prints %s, and says %s", says, got.out, got.err)
		}
	}
	call{}.run(t, "console", "--broker", one.url, "--dlq", "nosuch.dlq").want(t, 1, "no DLQ nosuch.dlq")
	call{}.run(t, "console", "--broker", "kafka://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
	call{}.run(t, "console", "--broker", "sqs+http://127.0.0.1:1").want(t, 1, "127.0.0.1:1")
	call{}.run(t, "console", "--broker", "a="+one.url, "--broker", "b=amqp://127.0.0.1:1", "--management-url", "http://h:1").want(t, 1, "127.0.0.1:1") // the address is that of the only RabbitMQ
	call{}.run(t, "console", "--broker", "a="+one.url, "--broker", "b=sqs://eu-west-1", "--management-url", "http://h:1").want(t, 2, "none of the brokers needs it")
	for _, env := range []map[string]string{nil, {"REDELIVER_MANAGEMENT_URL": "http://h:1"}} { // one error, and what helps
		said := call{env: env}.run(t, "console", "--broker", "a=amqp://127.0.0.1:1", "--broker", "b=amqp://127.0.0.1:1").want(t, 2, "2 of the RabbitMQ brokers", "--profile")
		if strings.Contains(said.err, "give --management-url") {
			t.Errorf("%v: it says %s", env, said.err)
		}
	}
	call{}.run(t, "console", "--broker", one.url, "--management-url", "http://h:1").want(t, 2, "for RabbitMQ")
}

// The id of a trace is a link to the tool that shows it.
func TestConsoleLinksTraces(t *testing.T) {
	t.Parallel()
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	k := newTestKafka(t)
	k.put(dead(0, 0, redeliver.State{Trace: "00-" + trace + "-00f067aa0ba902b7-01"}))
	s := serve(t, nil, "--broker", k.url, "--trace-url", "https://jaeger.example.com/trace/{trace}")
	s.until("message?dlq="+dlq+"&at=0/0", `href="https://jaeger.example.com/trace/`+trace+`"`)
	s.end()
}

// If there is no DLQ yet, the console says so and serves.
func TestConsoleWithoutADLQ(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	if _, err := k.adm.DeleteTopics(t.Context(), dlq); err != nil {
		t.Fatal(err)
	}
	s := serve(t, nil, "--broker", k.url)
	if status, _, page := s.ask(nil, ""); status != http.StatusOK || !strings.Contains(page, "there are no DLQs yet") || !strings.Contains(page, "No dead-letter queues") {
		t.Errorf("it is %d: %s", status, page)
	}
	// A DLQ that is created later needs no restart.
	k.topics("mails.sender.dlq", "mails", "mails.sender.retry")
	s.until("", "mails → sender")
	if _, _, page := s.ask(nil, ""); strings.Contains(page, "there are no DLQs yet") {
		t.Errorf("it still says that there is none: %s", page)
	}
	if status, _, page := s.ask(nil, "tasks"); status != http.StatusOK {
		t.Errorf("the tasks are %d: %s", status, page)
	}
	s.end()
	if said := s.errs.String(); !strings.Contains(said, "there are no DLQs yet") {
		t.Errorf("it says %s", said)
	}
}

// The certificate is read before the address is printed.
func TestConsoleWithABadCertificate(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	bad := write(t, "no certificate")
	if got := (call{}).run(t, "console", "--broker", k.url, "--listen", "127.0.0.1:0", "--tls-cert", bad, "--tls-key", bad).want(t, 1, "the certificate"); got.out != "" {
		t.Errorf("it prints %s", got.out)
	}
}

// Unsafe settings are refused, and no password is quoted.
func TestConsoleRefuses(t *testing.T) {
	t.Parallel()
	k := newTestKafka(t)
	users := write(t, "ann:operator:"+password+"\n")
	for says, args := range map[string][]string{
		"on 0.0.0.0:0: the console":   {"--listen", "0.0.0.0:0"},
		"open to other machines":      {"--listen", ":0", "--read-only"},
		"passwords would be readable": {"--listen", "0.0.0.0:0", "--basic-auth", users},
		"belong together":             {"--tls-cert", users},
		"--tls-key belong together":   {"--tls-key", users},
		"exclude each other":          {"--basic-auth", users, "--behind-proxy", "10.0.0.0/8", "--grant", "viewer=*"},
		"without --behind-proxy":      {"--basic-auth", users, "--grant", "viewer=*"},
		"need addresses in":           {"--behind-proxy", "", "--grant", "viewer=*"},
		"needs --grant":               {"--behind-proxy", "10.0.0.0/8"},
		"must be ROLE=WHO":            {"--behind-proxy", "10.0.0.0/8", "--grant", "owner=ann"},
		"viewer=ann, ,bob":            {"--behind-proxy", "10.0.0.0/8", "--grant", "viewer=ann, ,bob"},
		"--behind-proxy is":           {"--behind-proxy", "localhost", "--grant", "viewer=*"},
		"Secret is":                   {"--behind-proxy", "127.0.0.0/8", "--grant", "viewer=*"},
		"at least 16 bytes":           {"--behind-proxy", "127.0.0.0/8", "--grant", "viewer=*", "--proxy-secret-file", write(t, brief)},
		"--proxy-secret-file means":   {"--proxy-secret-file", users},
		"--trace-url is":              {"--trace-url", "https://jaeger.example.com/"},
		"schema registry must begin":  {"--schema-registry", "registry:8081"},
		"--grant is":                  {"--behind-proxy", "10.0.0.0/8", "--grant", "operator@[=ann"},
		"operator@=ann":               {"--behind-proxy", "10.0.0.0/8", "--grant", "operator@=ann"},
		"covers all addresses":        {"--behind-proxy", "0.0.0.0/0", "--grant", "viewer=*"},
		"reading the users":           {"--basic-auth", filepath.Join(t.TempDir(), "nosuch")},
		"there are no users":          {"--basic-auth", write(t, "# nobody\n")},
		"line 2 of":                   {"--basic-auth", write(t, "\nann:"+password+"\n")},
		"must be viewer, reader":      {"--basic-auth", write(t, "ann:"+password+":x\n")},
		"at least 8 bytes":            {"--basic-auth", write(t, "ann:viewer:"+brief+"\n")},
		"--audit: ":                   {"--audit", filepath.Join(t.TempDir(), "no", "such", "place")},
		"only flags":                  {"orders.billing.dlq"},
		"--refresh is":                {"--refresh", "1ms"},
	} {
		got := call{}.run(t, append([]string{"console", "--broker", k.url}, args...)...).want(t, 2, says)
		if got.out != "" || strings.Contains(got.err, password) || strings.Contains(got.err, brief) {
			t.Errorf("%q: it prints %s, and says %s", args, got.out, got.err)
		}
	}
}
