//go:build prove

package observe_test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"

	"github.com/redeliver/redeliver"
)

// scrape gets the series of a handler, as Prometheus does.
func scrape(t *testing.T, r *prometheus.Registry) exported {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(r, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}))
	defer server.Close()
	return scrapeAt(t, server.URL)
}

// scrapeAt gets the series at a URL.
func scrapeAt(t *testing.T, url string) exported {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("the scrape is answered with %s", res.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	all := make(exported)
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if family.GetType() != dto.MetricType_HISTOGRAM {
				all[name] = append(all[name], labels)
				continue
			}
			all[name+"_sum"], all[name+"_count"] = append(all[name+"_sum"], labels), append(all[name+"_count"], labels)
			bucket := maps.Clone(labels)
			bucket["le"] = "1"
			all[name+"_bucket"] = append(all[name+"_bucket"], bucket)
		}
	}
	return all
}

// troubles are changes that no broker makes on demand. They are set by hand, so that every name in a rule is known
// to exist.
var troubles = []string{
	"disconnected", "intake paused", "an operation fails", "blocked", "throttled", "outage", "probing", "flood",
	"commands are not read", "dedup store lost", "dedup marks lost",
}

// Rules and dashboard use only metrics that a service exports, on a real Kafka, when it fails in all possible ways. The
// dashboard and docs/reference/metrics.md have all metrics that it exports.
func TestRulesAndDashboardUseExportedMetrics(t *testing.T) {
	t.Parallel()
	s := newService(t)
	s.fail()
	running := scrape(t, s.registry) // it exports what is in flight as long as it reads
	s.end()
	met := scrape(t, s.registry)
	docs := string(read(t, "../../docs/reference/metrics.md"))
	for name := range met {
		base := regexp.MustCompile(`_(sum|count|bucket)$`).ReplaceAllString(name, "")
		if !strings.Contains(docs, "`"+base+"`") {
			t.Errorf("docs/reference/metrics.md has no %s", base)
		}
	}
	for _, change := range troubles {
		s.sink.Event(redeliver.SubscriptionChanged{Origin: s.topic, Group: s.group, Change: redeliver.Change(change)})
	}
	all := scrape(t, s.registry)
	for _, name := range []string{"redeliver_in_flight_messages", "redeliver_held_messages"} {
		met[name], all[name] = running[name], running[name]
	}

	lacks, want := all.lacks(t), unavailable(t, inService)
	if got := slices.Sorted(maps.Keys(lacks)); !slices.Equal(got, want) {
		t.Errorf("these alerts cannot fire: %v\nand %s excludes %v", lacks, operations, want)
	}
	for _, r := range rules(t) {
		if !slices.Contains(want, r.Alert) {
			all.check(t, r.Alert, r.Expr)
		}
		for _, text := range r.Annotations {
			shows(t, r.Alert, r.Expr, text)
		}
	}
	shown := make(map[string]bool)
	d := board(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all.check(t, p.Title, promQL(target.Expr))
			for _, s := range selectors(t, promQL(target.Expr)) {
				shown[s.Name] = true
			}
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(v.Definition)
		if m == nil || !strings.Contains(string(v.Query), `"query"`) {
			t.Errorf("the variable %s asks for %s", v.Name, v.Definition)
			continue
		}
		all.check(t, "variable "+v.Name, "sum by ("+m[2]+") ("+m[1]+")")
	}
	for name := range met {
		parts := []string{name}
		if base, ok := strings.CutSuffix(name, "_sum"); ok {
			parts = append(parts, base+"_bucket", base+"_count")
		} else if strings.HasSuffix(name, "_bucket") || strings.HasSuffix(name, "_count") {
			continue
		}
		if !slices.ContainsFunc(parts, func(part string) bool { return shown[part] }) {
			t.Errorf("%s is not on the dashboard", name)
		}
	}
}
