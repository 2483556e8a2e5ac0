//go:build prove

package amqp_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
)

// unreadables returns the headers of messages that the client cannot read. Each once ended the connection and came back
// forever.
func unreadables() map[string]amqp091.Table {
	many := make(amqp091.Table)
	for i := range 8193 {
		many[strconv.Itoa(i)] = nil
	}
	long := make([]any, 9000)
	deep := amqp091.Table{"bottom": "reached"}
	for range 40 {
		deep = amqp091.Table{"d": deep}
	}
	return map[string]amqp091.Table{
		"many fields": many, "a long array": {"a": long, amqp.UUIDHeader: "the id of a long array"},
		"a deep table": {"before": "x", "deep": deep, "redeliver-attempt": "7"},
	}
}

// almostUnreadable returns headers that can be read once: the broker's additions at the next delivery make them too
// large.
func almostUnreadable() map[string]amqp091.Table {
	many := make(amqp091.Table)
	for i := range 8192 {
		many[strconv.Itoa(i)] = nil
	}
	const name, header = "lifted size", "large"
	frame := 131072 - 8
	for _, text := range []string{name, "c-" + name, "a type", "text/plain", header} {
		frame -= 1 + len(text)
	}
	// Class, weight, size, flags; timestamp, delivery mode; the length of the table, the header's type and length.
	frame -= 14 + 8 + 1 + 4 + 5
	return map[string]amqp091.Table{"lifted fields": many, name: {header: make([]byte, frame)}}
}

// Messages with headers that the client cannot read go to the DLQ and do not affect other messages.
func TestHeadersThatTheClientCannotRead(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *brokers.Rabbit) {
		for _, suffix := range []string{"", ".retry", ".retry.200ms", ".retry.suspects"} {
			t.Run("on the queue"+suffix, func(t *testing.T) { unreadable(t, newFixture(t, r, nil), suffix, unreadables(), false) })
		}
		for name, headers := range almostUnreadable() {
			t.Run(name, func(t *testing.T) {
				unreadable(t, newFixture(t, r, nil), "", map[string]amqp091.Table{name: headers}, true)
			})
		}
		t.Run("through TLS", func(t *testing.T) {
			address, certificate := throughTLS(t, r)
			unreadable(t, newFixture(t, r, func(l *fixture) {
				u, err := url.Parse(r.URL())
				if err != nil {
					t.Fatal(err)
				}
				u.Scheme, u.Host, u.RawQuery = "amqps", address, "cacertfile="+url.QueryEscape(certificate)
				l.cfg.URLs = []string{u.String()}
			}), "", unreadables(), false)
		})
	})
}

func unreadable(t *testing.T, l *fixture, suffix string, bad map[string]amqp091.Table, read bool) {
	l.declared()
	for name, headers := range bad {
		l.publish(suffix, name, headers)
	}
	l.awaitReady(l.queue+suffix, len(bad))
	if read {
		if _, _, err := l.raw.Get(l.queue+suffix, false); err != nil {
			t.Logf("its first delivery cannot be read: %v", err)
			l.redial()
		} else if err := l.raw.Nack(0, true, true); err != nil {
			t.Fatal(err)
		}
		l.awaitReady(l.queue+suffix, len(bad))
	}
	l.consume(failsOnce)
	all := ids(50)
	l.publishMessages(all...)
	l.awaitEnds(all)
	l.await("dead letters", func() bool { return len(l.dead) >= len(bad) })
	l.mu.Lock()
	for id, d := range l.dead {
		if len(d) != 1 || d[0].State.Reason != redeliver.ReasonUndecodable {
			t.Errorf("%s is dead-lettered %d times, for %s: %s; want once, undecodable", id, len(d), d[0].State.Reason, d[0].State.Error)
		}
	}
	if c := l.changesLocked(); len(c) != 1 {
		t.Errorf("changes are %v, want only consuming", c)
	}
	if n := l.duplicatesLocked(); n > 0 {
		t.Errorf("%d other messages ran twice", n)
	}
	l.checkNoSuspectsLocked()
	l.mu.Unlock()
	l.awaitReady(l.queue+".dlq", len(bad))
	for range bad {
		d, _, err := l.raw.Get(l.queue+".dlq", true)
		if err != nil {
			t.Fatal(err)
		}
		l.wantWhole(&d, bad[d.MessageId])
	}
}

func (l *fixture) publish(suffix, name string, headers amqp091.Table) {
	l.Helper()
	l.write(l.queue+suffix, amqp091.Publishing{
		MessageId: name, CorrelationId: "c-" + name, Type: "a type", ContentType: "text/plain", DeliveryMode: amqp091.Persistent,
		Timestamp: time.Unix(1700000000, 0), Headers: headers, Body: bytes.Repeat([]byte(name), 20_000),
	})
}

// wantWhole fails the test if a dead letter differs from the published message.
func (l *fixture) wantWhole(d *amqp091.Delivery, headers amqp091.Table) {
	l.Helper()
	name := d.MessageId
	if d.CorrelationId != "c-"+name || d.Type != "a type" || d.ContentType != "text/plain" || d.Timestamp.Unix() != 1700000000 {
		l.Errorf("%s has different properties: %+v", name, d)
	}
	if !bytes.Equal(d.Body, bytes.Repeat([]byte(name), 20_000)) {
		l.Errorf("%s has a different body, of %d bytes", name, len(d.Body))
	}
	if d.Headers[redeliver.HeaderReason] != string(redeliver.ReasonUndecodable) || d.Headers[amqp.HeaderRoutingKey] == nil {
		l.Errorf("%s has different redeliver headers, its reason is %v", name, d.Headers[redeliver.HeaderReason])
	}
	raw, _ := d.Headers[amqp.HeaderRaw].([]byte)
	if name == "lifted size" { // there is no room for it
		return
	}
	for key := range headers {
		if !bytes.Contains(raw, append([]byte{byte(len(key))}, key...)) {
			l.Errorf("%s has %d bytes of raw headers without %q", name, len(raw), key)
			return
		}
	}
	want := map[string]string{"a long array": "the id of a long array"}[name]
	if want == "" {
		want = name
	}
	if d.Headers[redeliver.HeaderID] != want {
		l.Errorf("%s has the id %v, want %q", name, d.Headers[redeliver.HeaderID], want)
	}
}

// throughTLS starts a TLS proxy of the broker.
func throughTLS(t *testing.T, r *brokers.Rabbit) (address, certificate string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	return newProxy(t, to.Host, func(c net.Conn) net.Conn {
		return tls.Server(c, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12})
	}).address(), certificate
}
