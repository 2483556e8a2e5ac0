//go:build unix

package gotest

import (
	"strings"
	"testing"
)

func TestResults(t *testing.T) {
	var r results
	var out strings.Builder
	r.read(strings.NewReader(`
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"a secret of a passing test\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:1: report: 3 kills\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.25}
{"Action":"output","Package":"p","Test":"TestB/c","Output":"    b_test.go:1: lost\n"}
{"Action":"fail","Package":"p","Test":"TestB/c","Elapsed":0.5}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"fail","Package":"p"}
no JSON
`[1:]), &out)
	if r.passed != 1 || r.failed != 2 || r.skipped != 1 {
		t.Errorf("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
	}
	for _, part := range []string{"report: 3 kills", "pass TestA (1.2 s)", "b_test.go:1: lost\nfail TestB/c (0.5 s)", "skip TestC", "no JSON"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the output lacks %q", part)
		}
	}
	if strings.Contains(out.String(), "secret") {
		t.Error("the output of a test that passed is printed")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}

func TestNoTestIsAFailure(t *testing.T) {
	var out strings.Builder
	err := Tests{Packages: []string{"./integration/gotest"}, Run: "^TestOfThatName$"}.Execute(t.Context(), &out)
	if err == nil || !strings.Contains(err.Error(), "no test matches") {
		t.Errorf("%v\n%s", err, out.String())
	}
}
