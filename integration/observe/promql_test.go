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

// selector selects series in an expression.
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
		t.Errorf("%s selects no series", expr)
	}
	return all
}

// exported has the series of a scrape: for each name, the labels of its series.
type exported map[string][]map[string]string

// check fails the test unless the series of an expression are exported, with each label and each value that it names.
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

// values returns the values that a matcher names, or one nil for a variable or a pattern.
func values(m *labels.Matcher) (all []*string) {
	if strings.Contains(m.Value, "$") || strings.ContainsAny(m.Value, ".*+") {
		return []*string{nil} // a variable of the dashboard, or a pattern
	}
	for v := range strings.SplitSeq(m.Value, "|") {
		all = append(all, &v)
	}
	return all
}

// label matches a label of the result in a text.
var label = regexp.MustCompile(`{{\s*(?:\$labels\.)?(\w+)\s*}}`)

// shows checks that the result has the labels that a text contains.
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
