// Package sqscontract has the rules of SQS that adapters/sqs relies on, and what the servers of the tests do differently.
//
// Each [Rule] does something and says in a few words what it observed. On AWS that is what its page documents. A server
// that does something else needs a row in [Differences], with what it does. A row that is not true any more fails like a
// rule, so the table stays right. docs/evidence/sqs-servers.md has it for readers.
package sqscontract

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/internal/sqsfake"
)

// Rule is one rule of SQS.
type Rule struct {
	Name string // what happens, such as "a message of 1 MiB"
	AWS  string // what SQS does, as observe says it
	Page string // of AWS, which documents it

	// virtual is set if a server would have to run for minutes, or with limits that only the fake can have.
	virtual bool
	observe func(*check) string
}

// Difference is a rule that a server does not follow.
type Difference struct {
	Server, Rule string
	Does         string // as the rule's observe says it
}

// Rules returns all rules, in the order of the page.
func Rules() []Rule { return slices.Concat(receiveRules, sendRules, fifoRules, queueRules) }

const (
	apiPages = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_"
	guide    = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/"
)

// want returns what a server must do.
func want(server string, r *Rule) string {
	for _, d := range Differences {
		if d.Server == server && d.Rule == r.Name {
			return d.Does
		}
	}
	return r.AWS
}

// Run checks all rules that a server can show. Its name is that in Differences.
func Run(t *testing.T, name string, api *sqs.Client) {
	t.Helper()
	for _, r := range Rules() {
		if !r.virtual {
			t.Run(r.Name, func(t *testing.T) {
				t.Parallel()
				compare(t, name, &r, &check{T: t, api: api})
			})
		}
	}
}

// RunFake checks all rules on the fake, in virtual time. The fake has no differences.
func RunFake(t *testing.T) {
	t.Helper()
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := sqsfake.New(sqsfake.Options{MaxInFlight: maxInFlight})
				defer server.Wait()
				compare(t, "the fake", &r, &check{T: t, api: sqs.NewFromConfig(*server.Connect("").Config())})
			})
		})
	}
}

// maxInFlight is the limit of messages in flight in tests with the fake.
const maxInFlight = 20

func compare(t *testing.T, server string, r *Rule, c *check) {
	t.Helper()
	does := r.observe(c)
	if wanted := want(server, r); does != wanted {
		t.Errorf("%s: %s: it %s, want %q (AWS: %q, %s)", server, r.Name, does, wanted, r.AWS, r.Page)
	}
}

// Table returns the rules that a server does not follow, as the table of a Markdown page.
func Table(servers ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| what | SQS | %s |\n|%s\n", strings.Join(servers, " | "), strings.Repeat(" --- |", 2+len(servers)))
	for _, r := range Rules() {
		cells, differs := make([]string, len(servers)), false
		for i, server := range servers {
			cells[i] = "the same"
			if does := want(server, &r); does != r.AWS {
				cells[i], differs = does, true
			}
		}
		if differs {
			fmt.Fprintf(&b, "| %s | [%s](%s) | %s |\n", r.Name, r.AWS, r.Page, strings.Join(cells, " | "))
		}
	}
	return b.String()
}

// Followed returns the rules that all servers follow, as the table of a Markdown page.
func Followed(servers ...string) string {
	var b strings.Builder
	b.WriteString("| what | SQS | checked on |\n| --- | --- | --- |\n")
	for _, r := range Rules() {
		if slices.ContainsFunc(servers, func(s string) bool { return want(s, &r) != r.AWS }) {
			continue
		}
		where := "all"
		if r.virtual {
			where = "the fake"
		}
		fmt.Fprintf(&b, "| %s | [%s](%s) | %s |\n", r.Name, r.AWS, r.Page, where)
	}
	return b.String()
}
