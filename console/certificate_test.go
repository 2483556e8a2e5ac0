package console

import (
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

// pair writes a certificate with a serial number, and its key.
func pair(t *testing.T, cert, key string, number int64, at time.Time) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
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
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A certificate used to be read only once, so a renewed one required a restart.
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
				t.Errorf("%v is served (%v), and not %d", got, err, number)
			}
		}
		pair(t, cert, key, 1, time.Now())
		serves(1)
		pair(t, cert, key, 2, time.Now().Add(time.Second))
		serves(1)
		<-time.After(certificateAge)
		serves(2)
		if err := os.WriteFile(key, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		<-time.After(certificateAge)
		serves(2)
	})
}
