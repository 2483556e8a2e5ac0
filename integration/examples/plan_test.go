package examples_test

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// version matches what differs between versions of RabbitMQ.
var version = regexp.MustCompile(`RabbitMQ [0-9][^ ,\n]*`)

// The pages of the three brokers show the worker's plan for the same policy. The test runs each command with a topic
// whose name is as long as the one on the page, so that the columns are the same.
func TestPagesShowThePlanOfEachBroker(t *testing.T) {
	t.Parallel()
	var text string
	for _, page := range []string{"kafka", "rabbitmq", "sqs"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "docs", "reference", page+".md"))
		if err != nil {
			t.Fatal(err)
		}
		text += string(b)
	}
	const prompt = "$ worker --plan "
	shown := map[string]string{} // by command
	for _, block := range strings.Split(text, "```")[1:] {
		for i, part := range strings.Split(block, prompt) {
			if i > 0 {
				command, said, _ := strings.Cut(part, "\n")
				shown[command] = strings.TrimRight(said, "\n")
			}
		}
	}
	name := "o" + strings.ToLower(rand.Text()[:len("orders")-1])
	on := map[string]*origin{}
	for _, o := range []*origin{newKafkaTopic(t, name).origin, newQueue(t, name).origin, newSQSQueue(t, name).origin} {
		scheme, _, _ := strings.Cut(o.broker, ":")
		on[strings.TrimSuffix(scheme, "+http")] = o
	}
	for command, want := range shown {
		var args []string
		var o *origin
		for arg := range strings.FieldsSeq(command) {
			if scheme, _, ok := strings.Cut(arg, "://"); ok {
				o = on[strings.TrimSuffix(scheme, "+http")]
				delete(on, strings.TrimSuffix(scheme, "+http"))
				if o == nil {
					t.Fatalf("%s: a second command for one broker, want one for each", command)
				}
				arg = o.broker
			}
			if arg == "orders" {
				arg = name
			}
			args = append(args, arg)
		}
		p := start(t, nil, "worker", append(args, "--plan")...)
		lines := p.rest()
		if status := p.status(); status != 0 {
			t.Fatalf("worker %s: exit status %d: %s", command, status, p.errors())
		}
		for i := range lines {
			lines[i] = strings.TrimRight(strings.ReplaceAll(lines[i], name, "orders"), " ")
		}
		got := strings.Join(lines, "\n")
		if version.ReplaceAllString(got, "RabbitMQ") != version.ReplaceAllString(want, "RabbitMQ") {
			t.Errorf("worker --plan %s says\n%s\nthe page has\n%s", command, got, want)
		}
	}
	for scheme := range on {
		t.Errorf("no page has a plan on %s", scheme)
	}
}
