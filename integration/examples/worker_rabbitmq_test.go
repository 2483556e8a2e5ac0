package examples_test

import (
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A message that ends every process that runs it goes to the DLQ, and its neighbour is handled.
func TestWorkerCountsCrashes(t *testing.T) {
	t.Parallel()
	q := newQueue(t, newName())
	work := func() *program { return q.work(append(quick, "--fail", "header:fail")...) }
	p := work()
	bad := q.send(map[string]string{"fail": "exit"})
	died, good := 0, ""
	handled, deadLettered := false, false
	for !deadLettered || !handled {
		line, ok := p.next()
		if !ok {
			if status := p.status(); status != 1 {
				t.Fatalf("exit status %d", status)
			}
			// The message comes back beside others up to 15 times before it runs alone.
			if died++; died > 25 {
				t.Fatalf("one message has killed %d processes", died)
			}
			if good == "" {
				good = q.send(nil)
			}
			p = work()
			continue
		}
		switch e := read(t, line); {
		case e.Event == "attempt" && e.Attempt == 1:
		case e.Event == "commit" && e.ID == good:
			handled = true
		case e.Event == "dead_letter" && e.ID == bad && e.Reason == "crashed" && e.Attempt == 0:
			deadLettered = true
		default:
			t.Errorf("%s; want attempts, a commit of %s and a dead_letter of %s", line, good, bad)
		}
	}
	p.stop()
	t.Logf("report: one message killed %d processes until it was in the DLQ", died)
	if d := q.take(q.topic + ".dlq"); d.MessageId != bad || d.Headers["redeliver-reason"] != "crashed" || d.Headers["fail"] != "exit" || string(d.Body) != "v" {
		t.Errorf("in the DLQ is %s, %v, %q", d.MessageId, d.Headers, d.Body)
	}
}

// The queue may belong to another program. The id is that of the message, or derived from it.
func TestWorkerReadsAnExistingQueue(t *testing.T) {
	t.Parallel()
	q := newQueue(t, newName())
	if _, err := q.ch.QueueDeclare(q.topic, true, false, false, false, amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic}); err != nil {
		t.Fatal(err)
	}
	q.send(map[string]string{"_watermill_message_uuid": "w-1", "fail": "attempt<2"})
	q.publish(amqp.Publishing{Body: []byte("v")})
	p := q.work(append(quick, "--max-in-flight", "1", "--fail", "header:fail", "--create-topic")...)
	p.expect(q.origin, "w-1", nil, quickDelay, step{"attempt", 1, ""}, step{"retry", 1, ""})
	ids := map[string]int{}
	for range 4 {
		ids[p.event().ID]++
	}
	for id, lines := range ids {
		if lines != 2 || id != "w-1" && !strings.HasPrefix(id, "derived:") {
			t.Errorf("%d lines of %s", lines, id)
		}
	}
	p.stop()
	for _, word := range []string{"--group is ignored", q.topic} {
		if !strings.Contains(p.errors(), word) {
			t.Errorf("stderr has no %q: %s", word, p.errors())
		}
	}
}

func TestWorkerRefusesRabbitMQ(t *testing.T) {
	t.Parallel()
	q := newQueue(t, newName())
	u, err := url.Parse(q.broker)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   []string
		status int
		say    string
	}{
		{[]string{"--broker", "amqp://guest:secret@" + u.Host}, 1, "***@" + u.Host},
		{[]string{"--broker", "amqp://guest:guest@" + u.Host + "/no-such-vhost"}, 1, "no-such-vhost"},
		{[]string{"--broker", "amqp://guest:secret@127.0.0.1:1"}, 1, "127.0.0.1:1"},
		{[]string{"--broker", "amqp://guest:secret/@" + u.Host}, 2, "%2F"},
		{[]string{"--broker", "amqp://h/v?x=secret"}, 2, `unknown parameter "x"`},
		{[]string{"--topic", ""}, 2, "--topic"},
		{[]string{"--topic", "amq.mine"}, 1, "amq.mine"},
		{[]string{"--backoff", "fixed:1us"}, 2, "at least 1ms"},
	} {
		p := q.work(c.args...)
		lines, status := p.rest(), p.status()
		if said := p.errors(); status != c.status || !strings.Contains(said, c.say) || strings.Contains(said, "secret") || len(lines) > 0 {
			t.Errorf("%v: exit status %d, stderr %q, lines %q; want %d and %q", c.args, status, said, lines, c.status, c.say)
		}
	}
}

// The worker connects with amqps://. The certificate's authority is in a file, and the URL names the default virtual
// host.
func TestWorkerUsesTLS(t *testing.T) {
	t.Parallel()
	q := newQueue(t, newName())
	u, err := url.Parse(q.broker)
	if err != nil {
		t.Fatal(err)
	}
	addr, ca := tlsTo(t, u.Host)
	q.broker = "amqps://guest:guest@" + addr + "/%2f?cacertfile=" + url.QueryEscape(ca)
	p := q.work()
	p.expect(q.origin, q.send(nil), nil, 0, rules["never"]...)
	p.stop()

	q.broker = "amqps://guest:guest@" + addr
	p = q.work()
	if status := p.status(); status != 1 || !strings.Contains(p.errors(), "certificate") {
		t.Errorf("exit status %d, %q for a certificate of an unknown authority", status, p.errors())
	}
}

// tlsTo listens with TLS and forwards to addr. It returns its address, and the file with the authority of its
// certificate.
func tlsTo(t *testing.T, addr string) (listening, ca string) {
	t.Helper()
	certs := httptest.NewTLSServer(nil)
	t.Cleanup(certs.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certs.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certs.TLS.Certificates, MinVersion: tls.VersionTLS12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() }) // the test is over
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // its end is all that matters
		_ = to.Close()
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
			if err != nil {
				_ = in.Close()
				continue
			}
			go pass(in, out)
			go pass(out, in)
		}
	}()
	return l.Addr().String(), ca
}
