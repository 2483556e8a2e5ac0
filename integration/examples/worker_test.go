package examples_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// If a process ends in the middle of an attempt, the message comes back with the same attempt number, on a first
// delivery and on a retry.
func TestWorkerExit(t *testing.T) {
	t.Parallel()
	f := newKafkaTopic(t, newName())
	work := func(rule string) *program {
		// With static membership the next worker need not wait for the end of the session.
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
	id := f.produce(&kgo.Record{Value: []byte("done before")})
	p := work("never")
	p.expect(f.origin, id, nil, 0, rules["never"]...)
	p.stop()
	id = f.produce(&kgo.Record{Value: []byte("v")})
	crash(id, 1, "")
	crash(id, 1, "")
	p = work("attempt<2")
	p.expect(f.origin, id, nil, 0, step{"attempt", 1, ""})
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
			f := newKafkaTopic(t, newName())
			id := f.produce(&kgo.Record{Value: []byte("v")})
			p := f.work(append(c.args, "--fail", "always")...)
			if c.least == 0 {
				p.expect(f.origin, id, nil, 0, every(0, step{"dead_letter", 1, "exhausted"})...)
				p.stop()
				return
			}
			p.expect(f.origin, id, nil, 0, step{"attempt", 1, ""})
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

// Keys are written as text, and binary keys in base64.
func TestWorkerKeys(t *testing.T) {
	t.Parallel()
	f := newKafkaTopic(t, newName())
	p := f.work("--max-in-flight", "1")
	for _, c := range []struct {
		key  []byte
		want *string
	}{
		{nil, nil},
		{[]byte{}, new("")},
		{[]byte("Grüße \"\n"), new("Grüße \"\n")},
		{[]byte{0xff, 0x00}, new("base64:/wA=")},
		{[]byte("base64:/wA="), new("base64:YmFzZTY0Oi93QT0=")},
	} {
		id := f.produce(&kgo.Record{Key: c.key, Value: []byte("v")})
		p.expect(f.origin, id, c.want, 0, rules["never"]...)
	}
	p.stop()
}

func TestWorkerRefuses(t *testing.T) {
	t.Parallel()
	f := newKafkaTopic(t, newName())
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--fail", "sometimes"}, 2, `--fail is "sometimes": must be never`},
		{[]string{"--fail", "attempt<0"}, 2, "attempt<0"},
		{[]string{"--fail", "header:"}, 2, "with the name of a header"},
		{[]string{"--backoff", "linear:1s"}, 2, "linear:1s"},
		{[]string{"--backoff", "fixed:1us"}, 2, "at least 1ms"}, // redeliver's own word
		{[]string{"--retries", "-1"}, 2, "--retries"},
		{[]string{"--timeout", "0s"}, 2, "--timeout"},
		{[]string{"--max-in-flight", "0"}, 2, "--max-in-flight"},
		{[]string{"--broker", "http://localhost"}, 2, "http://"},
		{[]string{"--group", ""}, 2, "--group"},
		{[]string{"kafka://user:secret@h:1"}, 2, "kafka://***@h:1"},
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
	f := newKafkaTopic(t, newName())
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
