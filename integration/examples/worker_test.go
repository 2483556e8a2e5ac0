package examples_test

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver/integration/brokers"
)

// event is a line of the worker.
type event struct {
	Event   string  `json:"event"`
	ID      string  `json:"id"`
	Topic   string  `json:"topic"`
	Attempt int     `json:"attempt"`
	Due     string  `json:"due"`
	At      string  `json:"at"`
	Reason  string  `json:"reason"`
	Key     *string `json:"key"`
}

// fixture is a topic and a group of one test, on the run's Kafka.
type fixture struct {
	t            *testing.T
	addrs        []string
	topic, group string
	client       *kgo.Client
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, addrs: brokers.RequireKafka(t)}
	f.topic = "worker-" + strings.ToLower(rand.Text()[:10])
	f.group = f.topic + "-group" // a group of one test: others would rebalance it
	client, err := kgo.NewClient(kgo.SeedBrokers(f.addrs...), kgo.DefaultProduceTopic(f.topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f.client = client
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, f.topic); err != nil {
		t.Fatal(err)
	}
	return f
}

// work starts a worker; args stand behind what every worker needs.
func (f *fixture) work(args ...string) *program {
	f.t.Helper()
	common := []string{"--topic", f.topic, "--group", f.group}
	return start(f.t, []string{"REDELIVER_BROKER=kafka://" + strings.Join(f.addrs, ",")}, "worker", append(common, args...)...)
}

func (f *fixture) produce(recs ...*kgo.Record) {
	f.t.Helper()
	if err := f.client.ProduceSync(f.t.Context(), recs...).FirstErr(); err != nil {
		f.t.Fatal(err)
	}
}

// event is the next line of a worker; the form of it is checked.
func (p *program) event() event {
	p.t.Helper()
	line, ok := p.next()
	if !ok {
		p.t.Fatalf("the worker has ended: %s", p.errors())
	}
	var e event
	fields := json.NewDecoder(strings.NewReader(line))
	fields.DisallowUnknownFields()
	if err := fields.Decode(&e); err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	stamp(p.t, e.At)
	return e
}

const millis = "2006-01-02T15:04:05.000Z"

// stamp reads a time of a line, which is in UTC and has milliseconds.
func stamp(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(millis, text)
	if err != nil || len(text) != len(millis) {
		t.Errorf("time %q is not of the form %s (%v)", text, millis, err)
	}
	return at
}

// step is what a test expects of a line.
type step struct {
	event   string
	attempt int
	reason  string
}

func (s step) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %d %s", s.event, s.attempt, s.reason))
}

// expect reads a line for each step. Times are checked: a retry is due after its
// wait, and the attempt that follows knows its due time and is not early.
func (p *program) expect(f *fixture, id string, key *string, wait time.Duration, steps ...step) {
	p.t.Helper()
	due := ""
	for _, want := range steps {
		e := p.event()
		if got := (step{e.Event, e.Attempt, e.Reason}); got != want {
			p.t.Fatalf("line %q, want %q", got, want)
		}
		if e.ID != id || e.Topic != f.topic || !reflect.DeepEqual(e.Key, key) {
			p.t.Errorf("%s: id %s, topic %s, key %v; want %s, %s, %v", want, e.ID, e.Topic, e.Key, id, f.topic, key)
		}
		switch e.Event {
		case "attempt":
			if e.Due != due {
				p.t.Errorf("%s: due %q, want %q", want, e.Due, due)
			}
			if due != "" && stamp(p.t, e.At).Before(stamp(p.t, due)) {
				p.t.Errorf("%s: at %s, before it was due at %s", want, e.At, due)
			}
		case "retry":
			due = e.Due
			// The wait began before the line was written.
			if left := stamp(p.t, e.Due).Sub(stamp(p.t, e.At)); left > wait+time.Millisecond {
				p.t.Errorf("%s: due %s after it was told, want %s at most", want, left, wait)
			}
		default:
			if e.Due != "" {
				p.t.Errorf("%s: due %s, want none", want, e.Due)
			}
		}
	}
}

// stop ends the worker in order and checks that it says nothing more.
func (p *program) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if more := p.rest(); len(more) > 0 {
		p.t.Errorf("more lines: %q", more)
	}
	if status := p.status(); status != 0 {
		p.t.Errorf("exit status %d after SIGTERM", status)
	}
}

// every is the steps of a message whose first attempts fail, all of them delayed.
func every(failures int, last step) []step {
	var steps []step
	for n := 1; n <= failures; n++ {
		steps = append(steps, step{"attempt", n, ""}, step{"retry", n, ""})
	}
	return append(steps, step{"attempt", last.attempt, ""}, last)
}

var quick = []string{"--backoff", "fixed:100ms", "--retries", "2", "--timeout", "1s"}

// rules are what becomes of a message under each rule, with quick.
var rules = map[string][]step{
	"never":     every(0, step{"commit", 1, ""}),
	"always":    every(2, step{"dead_letter", 3, "exhausted"}),
	"permanent": every(0, step{"dead_letter", 1, "permanent"}),
	"attempt<1": every(0, step{"commit", 1, ""}),
	"attempt<3": every(2, step{"commit", 3, ""}),
	"attempt<9": every(2, step{"dead_letter", 3, "exhausted"}),
	"hang":      every(2, step{"dead_letter", 3, "timeout"}),
	"panic":     every(2, step{"dead_letter", 3, "panic"}),
}

func TestWorkerRules(t *testing.T) {
	t.Parallel()
	for rule, steps := range rules {
		t.Run(rule, func(t *testing.T) {
			f := newFixture(t)
			f.produce(&kgo.Record{Key: []byte("k-1"), Value: []byte("v")})
			p := f.work(append(quick, "--fail", rule)...)
			p.expect(f, f.topic+"/0/0", new("k-1"), 100*time.Millisecond, steps...)
			p.stop()
		})
	}
}

// One worker, and every message brings its own rule.
func TestWorkerHeaderRule(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.work(append(quick, "--fail", "header:fail")...)
	send := func(offset int, rule string, steps ...step) {
		rec := &kgo.Record{Key: []byte("k"), Value: []byte("v")}
		if rule != "" {
			rec.Headers = []kgo.RecordHeader{{Key: "other", Value: []byte("always")}, {Key: "fail", Value: []byte(rule)}}
		}
		f.produce(rec)
		p.expect(f, fmt.Sprintf("%s/0/%d", f.topic, offset), new("k"), 100*time.Millisecond, steps...)
	}
	send(0, "", rules["never"]...)
	offset := 0
	for rule, steps := range rules {
		offset++
		send(offset, rule, steps...)
	}
	send(offset+1, "no such rule", rules["permanent"]...)
	send(offset+2, "header:other", rules["permanent"]...) // does not lead on
	f.produce(&kgo.Record{Headers: []kgo.RecordHeader{{Key: "fail", Value: []byte("exit")}}})
	p.event()
	if status := p.status(); status != 1 {
		t.Errorf("exit status %d of a message that says exit", status)
	}
}

// A process that ends in the middle of an attempt has committed nothing of it:
// the message comes back, to the same attempt, on a first delivery as on a retry.
func TestWorkerExit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	work := func(rule string) *program {
		// Static membership: the next one need not wait for the session's end.
		return f.work("--backoff", "fixed:2s", "--instance-id", "w1", "--fail", rule)
	}
	crash := func(id string, attempt int, due string) {
		t.Helper()
		p := work("exit")
		if e := p.event(); e.Event != "attempt" || e.ID != id || e.Attempt != attempt || e.Due != due {
			t.Errorf("%+v, want attempt %d of %s, due %q", e, attempt, id, due)
		}
		if more, status := p.rest(), p.status(); status != 1 || len(more) > 0 {
			t.Errorf("exit status %d, more lines %q; want 1 and none", status, more)
		}
	}
	f.produce(&kgo.Record{Value: []byte("done before")})
	p := work("never")
	p.expect(f, f.topic+"/0/0", nil, 0, rules["never"]...)
	p.stop()
	f.produce(&kgo.Record{Value: []byte("v")})
	id := f.topic + "/0/1"
	crash(id, 1, "")
	crash(id, 1, "")
	p = work("attempt<2")
	p.expect(f, id, nil, 0, step{"attempt", 1, ""})
	retry := p.event()
	if retry.Event != "retry" || retry.Attempt != 1 {
		t.Fatalf("%+v, want retry 1", retry)
	}
	p.stop() // long before the second attempt is due
	crash(id, 2, retry.Due)
	p = work("never")
	if e := p.event(); e.Event != "attempt" || e.ID != id || e.Attempt != 2 || e.Due != retry.Due {
		t.Errorf("%+v, want attempt 2 of %s, due %q", e, id, retry.Due)
	}
	if e := p.event(); e.Event != "commit" || e.ID != id || e.Attempt != 2 {
		t.Errorf("%+v, want commit 2 of %s", e, id)
	}
	p.stop()
}

// SIGTERM while a handler works: it may finish, and what it did is committed.
func TestWorkerEndsInOrder(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			f := newFixture(t)
			f.produce(&kgo.Record{Value: []byte("v")})
			p := f.work("--work", "1s")
			id := f.topic + "/0/0"
			p.expect(f, id, nil, 0, step{"attempt", 1, ""})
			p.signal(s)
			p.expect(f, id, nil, 0, step{"commit", 1, ""})
			if more, status := p.rest(), p.status(); status != 0 || len(more) > 0 {
				t.Errorf("exit status %d, more lines %q; want 0 and none", status, more)
			}
			// The next one does not see it again.
			f.produce(&kgo.Record{Value: []byte("v")})
			p = f.work()
			p.expect(f, f.topic+"/0/1", nil, 0, rules["never"]...)
			p.stop()
		})
	}
}

func TestWorkerPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		least   time.Duration // until the first retry; 0 for none
		longest time.Duration
	}{
		{[]string{"--retries", "0"}, 0, 0},
		{[]string{"--backoff", "rocketmq"}, 9 * time.Second, 10 * time.Second},
		{[]string{"--backoff", "steps:7s,30s", "--retries", "2"}, 6 * time.Second, 7 * time.Second},
		{[]string{"--backoff", "exponential:5s,60s"}, 4 * time.Second, 10 * time.Second},
		{nil, 500 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			f := newFixture(t)
			f.produce(&kgo.Record{Value: []byte("v")})
			p := f.work(append(c.args, "--fail", "always")...)
			if c.least == 0 {
				p.expect(f, f.topic+"/0/0", nil, 0, every(0, step{"dead_letter", 1, "exhausted"})...)
				p.stop()
				return
			}
			p.expect(f, f.topic+"/0/0", nil, 0, step{"attempt", 1, ""})
			e := p.event()
			if wait := stamp(t, e.Due).Sub(stamp(t, e.At)); e.Event != "retry" || e.Attempt != 1 || wait < c.least || wait > c.longest {
				t.Errorf("%s %d, due after %s; want retry 1, from %s to %s", e.Event, e.Attempt, wait, c.least, c.longest)
			}
			p.signal(syscall.SIGTERM)
			if status := p.status(); status != 0 {
				t.Errorf("exit status %d", status)
			}
		})
	}
}

// Keys are text, and what is none is told apart from what is.
func TestWorkerKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.work("--max-in-flight", "1")
	for i, c := range []struct {
		key  []byte
		want *string
	}{
		{nil, nil},
		{[]byte{}, new("")},
		{[]byte("Grüße \"\n"), new("Grüße \"\n")},
		{[]byte{0xff, 0x00}, new("base64:/wA=")},
		{[]byte("base64:/wA="), new("base64:YmFzZTY0Oi93QT0=")},
	} {
		f.produce(&kgo.Record{Key: c.key, Value: []byte("v")})
		p.expect(f, fmt.Sprintf("%s/0/%d", f.topic, i), c.want, 0, rules["never"]...)
	}
	p.stop()
}

func TestWorkerRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--fail", "sometimes"}, 2, `"sometimes" is no rule`},
		{[]string{"--fail", "attempt<0"}, 2, "attempt<0"},
		{[]string{"--fail", "header:"}, 2, "needs the name of a header"},
		{[]string{"--backoff", "linear:1s"}, 2, "linear:1s"},
		{[]string{"--backoff", "fixed:1us"}, 2, "at least 1ms"}, // redeliver's own word
		{[]string{"--retries", "-1"}, 2, "--retries"},
		{[]string{"--timeout", "0s"}, 2, "--timeout"},
		{[]string{"--max-in-flight", "0"}, 2, "--max-in-flight"},
		{[]string{"--broker", "amqp://localhost"}, 2, "amqp://"},
		{[]string{"--topic", ""}, 2, "--topic"},
		{[]string{"--slowly"}, 2, "-slowly"},
		{[]string{"stray"}, 2, "stray"},
		{[]string{"--topic", "no-such-topic"}, 1, "no-such-topic does not exist"},
		{[]string{"--broker", "kafka://127.0.0.1:1"}, 1, "127.0.0.1:1"},
	} {
		p := f.work(c.args...)
		if lines, status := p.rest(), p.status(); status != c.status || !strings.Contains(p.errors(), c.say) || len(lines) > 0 {
			t.Errorf("%v: exit status %d, stderr %q, lines %q; want %d and %q", c.args, status, p.errors(), lines, c.status, c.say)
		}
	}
}

func TestWorkerCreatesATopic(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.topic += "-new"
	p := f.work("--create-topic")
	// It is there once the group has read from it: produce waits for the topic.
	f.produce(&kgo.Record{Topic: f.topic, Value: []byte("v")})
	if e := p.event(); e.Event != "attempt" || e.Topic != f.topic {
		t.Errorf("%+v, want an attempt", e)
	}
	p.event()
	p.stop()
}
