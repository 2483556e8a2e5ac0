package observe_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// selector is what an expression looks at.
type selector struct {
	Name     string
	Matchers []*labels.Matcher
	By       []string // what it is grouped by, anywhere above
}

// selectors parses an expression as Prometheus does.
func selectors(t *testing.T, expr string) (all []selector) {
	t.Helper()
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		v, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		s := selector{Name: v.Name}
		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel {
				s.Matchers = append(s.Matchers, m)
			}
		}
		for _, above := range path {
			if a, ok := above.(*parser.AggregateExpr); ok && !a.Without {
				s.By = append(s.By, a.Grouping...)
			}
		}
		all = append(all, s)
		return nil
	})
	if len(all) == 0 {
		t.Errorf("%s looks at nothing", expr)
	}
	return all
}

// exported is what a scrape has: by the name of a series, the labels of each.
type exported map[string][]map[string]string

// check reports whether what an expression looks at is exported: the name, each label, and each value that is asked for by
// its name.
func (e exported) check(t *testing.T, what, expr string) {
	t.Helper()
	for _, s := range selectors(t, expr) {
		series := e[s.Name]
		if len(series) == 0 {
			t.Errorf("%s: %s is not exported", what, s.Name)
			continue
		}
		for _, label := range s.By {
			if !slices.ContainsFunc(series, func(l map[string]string) bool { _, ok := l[label]; return ok }) {
				t.Errorf("%s: %s has no label %s", what, s.Name, label)
			}
		}
		for _, m := range s.Matchers {
			for _, want := range values(m) {
				if !slices.ContainsFunc(series, func(l map[string]string) bool { v, ok := l[m.Name]; return ok && (want == nil || v == *want) }) {
					t.Errorf("%s: of %s none has %s", what, s.Name, m)
				}
			}
		}
	}
}

// values are those that a matcher asks for; nil for one that names none.
func values(m *labels.Matcher) (all []*string) {
	if strings.Contains(m.Value, "$") || strings.ContainsAny(m.Value, ".*+") {
		return []*string{nil} // a variable of the dashboard, or a pattern
	}
	for v := range strings.SplitSeq(m.Value, "|") {
		all = append(all, &v)
	}
	return all
}

// label is one of a result, in a text that shows it.
var label = regexp.MustCompile(`{{\s*(?:\$labels\.)?(\w+)\s*}}`)

// shows checks that what a text takes from a result is there.
func shows(t *testing.T, what, expr, text string) {
	t.Helper()
	var by []string
	for _, s := range selectors(t, expr) {
		by = append(by, s.By...)
	}
	for _, m := range label.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(by, m[1]) {
			t.Errorf("%s shows the label %s, and %s is not grouped by it", what, m[1], expr)
		}
	}
}
