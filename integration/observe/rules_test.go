//go:build prove

// Package observe_test tests observe/alerts and observe/grafana: the rules with promtool, and rules and dashboard
// against the series that a service on a real broker exports.
package observe_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	rulesFile  = "redeliver.rules.yml"
	rulesDir   = "../../observe/alerts"
	operations = "../../docs/how-to/alerts.md"
)

// rule is an alert in its file.
type rule struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func rules(t *testing.T) (all []rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(read(t, rulesDir+"/"+rulesFile), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no rules")
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// promtool runs the program of Debian's package prometheus. The test fails without it.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = rulesDir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v (Debian has it in the package prometheus)\n%s", strings.Join(args, " "), err, out)
	}
}

// The rules are valid, and fire when they should and only then.
func TestRules(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", rulesFile)
	promtool(t, "test", "rules", "redeliver.test.yml")
}

// A test makes each alert fire, and a test in which nothing fires has a series for each metric of each alert.
func TestEachAlertIsTested(t *testing.T) {
	t.Parallel()
	var file struct {
		Tests []struct {
			Name  string `yaml:"name"`
			Input []struct {
				Series string `yaml:"series"`
			} `yaml:"input_series"`
			Steps []struct {
				Expr    string `yaml:"expr"`
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
	fires, calm := make(map[string]bool), make(map[string]bool)
	for _, test := range file.Tests {
		quiet := true
		for _, step := range test.Steps {
			for _, s := range step.Samples {
				quiet = false
				for _, m := range named.FindAllStringSubmatch(s.Labels, -1) {
					fires[m[1]] = true
				}
			}
		}
		for _, in := range test.Input {
			if name, _, ok := strings.Cut(in.Series, "{"); ok && quiet {
				calm[name] = true
			}
		}
	}
	for _, r := range rules(t) {
		if !fires[r.Alert] {
			t.Errorf("no test makes %s fire", r.Alert)
		}
		for _, s := range selectors(t, r.Expr) {
			if !calm[s.Name] {
				t.Errorf("%s looks at %s, which is in no test where nothing fires", r.Alert, s.Name)
			}
		}
	}
}

// Each alert has a severity, says what happened and what to do, and has an entry in docs/how-to/alerts.md.
func TestEachAlertIsExplained(t *testing.T) {
	t.Parallel()
	headings := make(map[string]bool)
	for line := range strings.Lines(string(read(t, operations))) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok {
			headings[strings.ToLower(strings.ReplaceAll(name, " ", "-"))] = true
		}
	}
	seen := make(map[string]bool)
	for _, r := range rules(t) {
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if !slices.Contains([]string{"critical", "warning"}, r.Labels["severity"]) {
			t.Errorf("%s has the severity %q", r.Alert, r.Labels["severity"])
		}
		for _, a := range []string{"summary", "description"} {
			if r.Annotations[a] == "" {
				t.Errorf("%s has no %s", r.Alert, a)
			}
		}
		page, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "#")
		if !strings.HasSuffix(page, "/docs/how-to/alerts.md") || !headings[anchor] {
			t.Errorf("%s links %s: no heading of docs/how-to/alerts.md", r.Alert, r.Annotations["runbook_url"])
		}
	}
}
