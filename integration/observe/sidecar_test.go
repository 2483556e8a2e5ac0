//go:build prove

package observe_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.yaml.in/yaml/v3"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/programs"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// The two ways to use redeliver, as docs/how-to/alerts.md names them.
const (
	inService = "a Go service"
	inSidecar = "the sidecar"
)

// open has the labels whose values differ between services.
var open = []string{"messaging_system", "dlq", "origin", "group", "level", "le", "instance", "exact"}

// firing returns, for each alert, promtool's tests in which it fires, with the series that each test needs.
func firing(t *testing.T) map[string][]map[string][]labels.Labels {
	t.Helper()
	var file struct {
		Tests []struct {
			Input []struct {
				Series string `yaml:"series"`
				Values string `yaml:"values"`
			} `yaml:"input_series"`
			Steps []struct {
				Samples []struct {
					Labels string `yaml:"labels"`
				} `yaml:"exp_samples"`
			} `yaml:"promql_expr_test"`
		} `yaml:"tests"`
	}
	if err := yaml.Unmarshal(read(t, rulesDir+"/redeliver.test.yml"), &file); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`alertname="(\w+)"`)
	needs := make(map[string][]selector)
	for _, r := range rules(t) {
		needs[r.Alert] = selectors(t, r.Expr)
	}
	zero := regexp.MustCompile(`^0x\d+$`)
	all := make(map[string][]map[string][]labels.Labels)
	for _, test := range file.Tests {
		fires := make(map[string]bool)
		for _, step := range test.Steps {
			for _, s := range step.Samples {
				fires[named.FindStringSubmatch(s.Labels)[1]] = true
			}
		}
		for alert := range fires {
			series, zeros := make(map[string][]labels.Labels), make(map[string][]labels.Labels)
			for _, in := range test.Input {
				parsed, err := parser.ParseMetric(in.Series)
				if err != nil {
					t.Fatal(err)
				}
				name, of := parsed.Get("__name__"), series
				if zero.MatchString(in.Values) {
					of = zeros
				}
				if slices.ContainsFunc(needs[alert], func(s selector) bool { return s.selects(parsed) }) {
					of[name] = append(of[name], parsed)
				}
			}
			for name, forms := range zeros { // they matter only where there are no others
				if series[name] == nil {
					series[name] = forms
				}
			}
			all[alert] = append(all[alert], series)
		}
	}
	return all
}

// selects reports whether a selector matches a series.
func (s *selector) selects(series labels.Labels) bool {
	return series.Get("__name__") == s.Name && !slices.ContainsFunc(s.Matchers, func(m *labels.Matcher) bool { return !m.Matches(series.Get(m.Name)) })
}

// lacks returns, for each alert, the series that are not exported, for the test that lacks the fewest. An alert that
// lacks none can fire: in promtool's test it fires with series of the same names and labels.
func (e exported) lacks(t *testing.T) map[string][]string {
	t.Helper()
	all := make(map[string][]string)
	for alert, tests := range firing(t) {
		for i, series := range tests {
			var missing []string
			for name, forms := range series {
				for _, form := range forms {
					if !e.has(name, form) {
						missing = append(missing, form.String())
					}
				}
			}
			if i == 0 || len(missing) < len(all[alert]) {
				all[alert] = missing
			}
		}
	}
	maps.DeleteFunc(all, func(_ string, missing []string) bool { return len(missing) == 0 })
	return all
}

// has reports whether a series of that name is exported with all labels of form, and with the same value of each label
// that has a fixed set of values.
func (e exported) has(name string, form labels.Labels) bool {
	return slices.ContainsFunc(e[name], func(series map[string]string) bool {
		ok := true
		form.Range(func(l labels.Label) {
			value, there := series[l.Name]
			if l.Name != "__name__" && l.Name != "instance" {
				ok = ok && there && (slices.Contains(open, l.Name) || value == l.Value)
			}
		})
		return ok
	})
}

// unavailable returns the alerts that docs/how-to/alerts.md excludes for one way to use redeliver.
func unavailable(t *testing.T, way string) (all []string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, operations))) {
		if cells := strings.Split(line, " | "); len(cells) == 3 && strings.HasPrefix(line, "| Redeliver") && cells[1] == way {
			all = append(all, strings.TrimPrefix(cells[0], "| "))
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s has no table of alerts that %s does not have", operations, way)
	}
	slices.Sort(all)
	return all
}

// process starts a program of this repository and returns the URL that it prints under a name.
func process(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		late := time.AfterFunc(maxWait, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Logf("%q ends: %v\n%s", args, err, errs.String())
		}
	})
	var text strings.Builder
	row := make(map[string]any)
	for lines := bufio.NewScanner(out); row[name] == nil && lines.Scan(); {
		text.WriteString(lines.Text())
		_ = json.Unmarshal([]byte(text.String()), &row) // until it is complete
	}
	url, ok := row[name].(string)
	if !ok {
		t.Fatalf("%q prints %s", args, text.String())
	}
	return url
}

// Every alert can fire for a sidecar with an exporter beside it, except for those that docs/how-to/alerts.md excludes.
// docs/reference/metrics.md has all metrics of both.
func TestASidecarAlerts(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	client, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	unique := strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "-")
	orders, flooded, group := "alerts.orders."+unique, "alerts.flood."+unique, "billing-"+unique
	admin := kadm.NewClient(client)
	kafkatest.MakeTopic(t, admin, 1, nil, orders)
	kafkatest.MakeTopic(t, admin, 1, nil, flooded)
	handler := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		first := r.Header.Get("Redeliver-Attempt") == "1"
		switch text := string(body); {
		case text == "recovers" && first, strings.HasPrefix(text, "down"):
			http.Error(w, "the bank is closed", http.StatusInternalServerError)
		case text == "waits":
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusServiceUnavailable)
		case text == "hangs":
			<-r.Context().Done()
		case text == "bad":
			http.Error(w, "no such card", http.StatusUnprocessableEntity)
		}
	}))
	t.Cleanup(handler.Close)
	dir, err := programs.Build("", "./cmd/redeliver")
	if err != nil {
		t.Fatal(err)
	}
	redeliver, broker := filepath.Join(dir, "redeliver"), "kafka://"+strings.Join(addrs, ",")
	run := process(t, "health", redeliver, "run", "--output", "json", "--broker", broker, "--topic", orders, "--topic", flooded, "--group", group,
		"--http", handler.URL, "--health", "127.0.0.1:0", "--metrics", "--retries", "1", "--backoff", "fixed:1s", "--timeout", "2s",
		"--retention", "96h", "--dead-letter-rate", "1")
	put := func(topic string, bodies ...string) {
		t.Helper()
		for _, body := range bodies {
			if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(body), Value: []byte(body)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(orders, "ok", "recovers", "hangs", "waits")
	put(flooded, "bad", "bad", "bad", "bad")
	exporter := process(t, "metrics", redeliver, "exporter", "--output", "json", "--broker", broker, "--listen", "127.0.0.1:0", "--every", "1s",
		"--dlq", fmt.Sprintf("%[1]s.%[2]s.dlq,topic=%[1]s,group=%[2]s", orders, group), // it may not be there yet
		"--dlq", fmt.Sprintf("%[1]s.%[2]s.dlq,topic=%[1]s,group=%[2]s", flooded, group))

	want := unavailable(t, inSidecar)
	awaitAlerts := func(n int) (all exported, lacks map[string][]string) {
		t.Helper()
		late := time.After(maxWait)
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			all = make(exported)
			for _, url := range []string{run + "/metrics", exporter} {
				for name, series := range scrapeAt(t, url) {
					all[name] = append(all[name], series...)
				}
			}
			if lacks = all.lacks(t); len(lacks) <= n {
				return all, lacks
			}
			select {
			case <-tick.C:
			case <-late:
				t.Fatalf("these alerts cannot fire within %s:\n%v", maxWait, lacks)
			}
		}
	}
	_, _ = awaitAlerts(len(want) + 1) // an outage postpones what would be exhausted
	for i := range 40 {
		put(orders, fmt.Sprintf("down %d", i))
	}
	all, lacks := awaitAlerts(len(want))
	if got := slices.Sorted(maps.Keys(lacks)); !slices.Equal(got, want) {
		t.Errorf("these alerts cannot fire: %v\nand %s excludes %v", lacks, operations, want)
	}
	docs := string(read(t, "../../docs/reference/metrics.md"))
	for name := range all {
		base := regexp.MustCompile(`_(sum|count|bucket)$`).ReplaceAllString(name, "")
		if regexp.MustCompile(`^(redeliver|messaging)_`).MatchString(base) && !strings.Contains(docs, "`"+base+"`") {
			t.Errorf("docs/reference/metrics.md has no %s", base)
		}
	}
}
