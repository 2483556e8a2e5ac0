package console

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return private
}

// writePair writes a certificate with a serial number, and its key. at is the time of their modification. A file that has its content
// already is not modified.
func writePair(t *testing.T, cert, key string, private *ecdsa.PrivateKey, number int64, at time.Time) {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret}} {
		content := pem.EncodeToMemory(block)
		if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, content) {
			continue
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A renewed certificate is served without a restart, with the same key or another one.
func TestARenewedCertificateIsServed(t *testing.T) {
	cert, key := filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	synctest.Test(t, func(t *testing.T) {
		c := certificate{cert: cert, key: key}
		if _, err := c.get(nil); err == nil {
			t.Fatal("there is a certificate without files")
		}
		serves := func(number int64) {
			t.Helper()
			got, err := c.get(nil)
			if err != nil || got.Leaf.SerialNumber.Int64() != number {
				t.Errorf("the wrong certificate is served (%v), and not %d", err, number)
			}
		}
		private := newKey(t)
		writePair(t, cert, key, private, 1, time.Now())
		serves(1)
		writePair(t, cert, key, private, 2, time.Now().Add(time.Second))
		serves(1)
		<-time.After(certificateCheckInterval)
		serves(2)
		writePair(t, cert, key, newKey(t), 3, time.Now().Add(time.Second))
		<-time.After(certificateCheckInterval)
		serves(3)
		if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(certificateCheckInterval)
		serves(3)
	})
}
