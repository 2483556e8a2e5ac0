package sqscontract_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/internal/sqscontract"
)

// The fake follows every rule.
func TestFake(t *testing.T) { sqscontract.RunFake(t) }

// Each difference is of a rule that exists, once for a server, and differs from what AWS documents.
func TestDifferences(t *testing.T) {
	rules := map[string]sqscontract.Rule{}
	for _, r := range sqscontract.Rules() {
		if rules[r.Name].Name != "" || r.AWS == "" || !strings.HasPrefix(r.Page, "https://") {
			t.Errorf("the rule %+v occurs twice, or lacks what AWS documents", r)
		}
		rules[r.Name] = r
	}
	seen := map[sqscontract.Difference]bool{}
	for _, d := range sqscontract.Differences {
		r := rules[d.Rule]
		row := sqscontract.Difference{Server: d.Server, Rule: d.Rule}
		if r.Name == "" || r.AWS == d.Does || seen[row] || !slices.Contains([]string{sqscontract.ElasticMQ, sqscontract.Moto}, d.Server) {
			t.Errorf("the row %+v is wrong: the rule is %+v", d, r)
		}
		seen[row] = true
	}
}

// The page has the tables of the code.
func TestPage(t *testing.T) {
	const path = "../../docs/evidence/sqs-servers.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{sqscontract.Table(sqscontract.ElasticMQ, sqscontract.Moto), sqscontract.Followed(sqscontract.ElasticMQ, sqscontract.Moto)} {
		if !strings.Contains(string(page), "\n\n"+part) {
			t.Errorf("%s lacks, after an empty line:\n%s", path, part)
		}
	}
}
