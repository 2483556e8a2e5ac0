package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
)

// Every order is charged or in the DLQ, the poison message there with its reason;
// and what a killed run left is finished by the next one.
func TestSQSExample(t *testing.T) {
	t.Parallel()
	q := newSQSQueue(t, "demo-orders")
	broker := q.broker
	// The queues have the names that they have for everybody, and may hold what a killed run has left.
	for _, name := range []string{"demo-orders", "demo-orders-dlq", "demo-orders-suspects"} {
		if out, err := q.api.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &name}); err == nil {
			if _, err := q.api.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: out.QueueUrl}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run := func() *program { return start(t, nil, "sqs", "--broker", broker) }
	p := run()
	lines := p.rest()
	if status := p.status(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	checkSummary(t, summary(lines), map[string]int{
		"orders placed": 11, "charged on attempt 1": 6, "charged on attempt 2": 1, "charged on attempt 3": 1,
		"in the DLQ, permanent": 2, "in the DLQ, exhausted": 1, "still waiting": 0,
	})
	text := strings.Join(lines, "\n")
	_, letters, _ := strings.Cut(text, "Some of demo-orders-dlq")
	for _, letter := range []string{`-xx +permanent +after attempt 1: invalid character`, `-08 +exhausted +after attempt 4: no answer`} {
		if !regexp.MustCompile(letter).MatchString(letters) {
			t.Errorf("the DLQ shows no %q", letter)
		}
	}
	show(t, lines)

	p = run()
	var left string // the id of an order that waits when the process is killed
	for left == "" {
		line, ok := p.next()
		if !ok {
			t.Fatal("it ended by itself")
		}
		if strings.Contains(line, "-08  retry in 2s") {
			left = strings.Fields(line)[1]
		}
	}
	p.signal(os.Kill)
	// What the killed one had in hand comes back when its visibility timeout is over.
	p = run()
	lines = p.rest()
	if text := strings.Join(lines, "\n"); p.status() != 0 || !strings.Contains(text, left+"  DLQ ") {
		t.Errorf("exit status %d, %s is in the DLQ: %t", p.status(), left, strings.Contains(text, left+"  DLQ "))
	}
	if got := summary(lines); got["still waiting"] != 0 {
		t.Errorf("summary %v: want none waiting", got)
	}
	show(t, lines)
}

func TestSQSExampleRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--broker", "kafka://h:1"}, 2, "kafka:// is not known here"},
		{[]string{"now"}, 2, "--broker"},
		{[]string{"--broker", "sqs+http://key:secret@127.0.0.1:1"}, 1, "docker run"},
	} {
		p := start(t, nil, "sqs", c.args...)
		if status, said := p.status(), p.errors(); status != c.status || !strings.Contains(said, c.say) || strings.Contains(said, "secret") {
			t.Errorf("%v: exit status %d, stderr %q; want %d and %q", c.args, status, said, c.status, c.say)
		}
	}
}
