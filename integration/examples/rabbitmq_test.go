package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

// Every order is charged or in the DLQ, the poison message there with its reason;
// and what a killed run left is finished by the next one.
func TestRabbitMQExample(t *testing.T) {
	t.Parallel()
	url := brokers.RequireRabbitMQ(t).URL()
	run := func() *program { return start(t, nil, "rabbitmq", "--broker", url) }
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
	_, letters, _ := strings.Cut(text, "The end of demo-orders.dlq")
	for _, letter := range []string{`-xx +permanent +after attempt 1: invalid character`, `-08 +exhausted +after attempt 4: no answer`} {
		if !regexp.MustCompile(letter).MatchString(letters) {
			t.Errorf("the DLQ shows no %q", letter)
		}
	}
	show(t, lines)
	checkQueues(t, url)

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

// checkQueues looks at what a RabbitMQ user would look at.
func checkQueues(t *testing.T, url string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"demo-orders", "demo-orders.retry.1s", "demo-orders.retry", "demo-orders.retry.suspects", "demo-orders.dlq"} {
		q, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if (q.Messages > 0) != strings.HasSuffix(name, ".dlq") {
			t.Errorf("queue %s holds %d messages", name, q.Messages)
		}
	}
	if err := ch.ExchangeDeclarePassive("demo-shop", "topic", true, false, false, false, nil); err != nil {
		t.Error(err)
	}
}

func TestRabbitMQExampleRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--broker", "kafka://h:1"}, 2, "kafka:// is not known here"},
		{[]string{"now"}, 2, "--broker"},
		{[]string{"--broker", "amqp://guest:secret@127.0.0.1:1/"}, 1, "docker run"},
		{[]string{"--broker", "amqp://guest:secret@127.0.0.1:1/"}, 1, "apt-get install rabbitmq-server"},
	} {
		p := start(t, nil, "rabbitmq", c.args...)
		if status, said := p.status(), p.errors(); status != c.status || !strings.Contains(said, c.say) || strings.Contains(said, "secret") {
			t.Errorf("%v: exit status %d, stderr %q; want %d and %q", c.args, status, said, c.status, c.say)
		}
	}
}
