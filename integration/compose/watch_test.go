//go:build prove

package compose_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// The configuration of Prometheus is valid with the rules beside it, as in its container.
func TestPrometheusAcceptsItsConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, v := range load(t, "all").Services["prometheus"].Volumes {
		text, err := os.ReadFile(v.Source)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(v.Target)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), "promtool", "check", "config", filepath.Join(dir, "prometheus.yml")).CombinedOutput()
	if err != nil {
		t.Fatalf("promtool (Debian's package prometheus has it): %v: %s", err, out)
	}
	if !strings.Contains(string(out), "1 rule files found") {
		t.Errorf("it does not find our rules:\n%s", out)
	}
}

// Every handler of a suite is a target, because redeliver run answers at its address.
func TestPrometheusFindsEverySidecar(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("suites/prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, suite := range each {
		p := load(t, suite)
		if mode := p.Services[suite+"-run"].NetworkMode; mode != "service:"+suite+"-handler" {
			t.Errorf("suite %s: the sidecar is in %q", suite, mode)
		}
		if !strings.Contains(string(text), suite+"-handler") {
			t.Errorf("prometheus does not look for the sidecar of suite %s", suite)
		}
	}
}

// Grafana finds the dashboard where it is mounted, and its data where Prometheus is.
func TestGrafanaIsProvisioned(t *testing.T) {
	t.Parallel()
	grafana := load(t, "all").Services["grafana"]
	mounted := map[string]string{}
	for _, v := range grafana.Volumes {
		mounted[v.Target] = v.Source
	}
	read := func(file string, into any) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var boards struct {
		Providers []struct {
			Options struct {
				Path string `yaml:"path"`
			} `yaml:"options"`
		} `yaml:"providers"`
	}
	read(filepath.Join(mounted["/etc/grafana/provisioning/dashboards"], "redeliver.yml"), &boards)
	if len(boards.Providers) != 1 || mounted[boards.Providers[0].Options.Path+"/redeliver.json"] == "" {
		t.Errorf("the dashboard is not in the expected place: %+v, mounted are %v", boards, mounted)
	}
	if home := *grafana.Environment["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]; mounted[home] == "" {
		t.Errorf("the first page is %s, which is not mounted", home)
	}
	var sources struct {
		Datasources []struct {
			Type string `yaml:"type"`
			URL  string `yaml:"url"`
		} `yaml:"datasources"`
	}
	read(filepath.Join(mounted["/etc/grafana/provisioning/datasources"], "prometheus.yml"), &sources)
	if len(sources.Datasources) != 1 || sources.Datasources[0].Type != "prometheus" || sources.Datasources[0].URL != "http://prometheus:9090" {
		t.Errorf("the data comes from %+v", sources)
	}
}
