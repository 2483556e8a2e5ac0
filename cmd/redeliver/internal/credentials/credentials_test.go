package credentials_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/credentials"
	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
)

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(t.TempDir(), name)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A token is read again, and kept while the file is away.
func TestBearerIsReadAgain(t *testing.T) {
	t.Parallel()
	path := write(t, "token", "first\n")
	synctest.Test(t, func(t *testing.T) {
		b, err := credentials.NewBearer(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct{ text, want string }{{"second\n", "Bearer second"}, {"", "Bearer second"}, {"two\nlines", "Bearer second"}, {"third", "Bearer third"}} {
			write(t, path, step.text)
			<-time.After(6 * time.Second)
			if got := b.Authorization(); got != step.want {
				t.Errorf("after %q it is %q, want %q", step.text, got, step.want)
			}
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		<-time.After(6 * time.Second)
		if got := b.Authorization(); got != "Bearer third" {
			t.Errorf("without the file it is %q", got)
		}
	})
	for _, text := range []string{"", "\n", "a b", "a\nb", "ä"} {
		if _, err := credentials.NewBearer(write(t, "token", text)); err == nil || text != "" && strings.Contains(err.Error(), text) && text != "\n" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := credentials.NewBearer(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file is accepted")
	}
}

// certificate makes a certificate of an authority, of a server or a client, which parent signs, or its own key.
func certificate(t *testing.T, name string, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if parent == nil {
		parent, parentKey = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}

func encoded(t *testing.T, c *x509.Certificate, key *ecdsa.PrivateKey) (cert, private string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// A handler gets the certificate that the file has now, and the token. Without the certificate it is not reached.
func TestAHandlerAsksForACertificate(t *testing.T) {
	t.Parallel()
	authority, authorityKey := certificate(t, "authority", nil, nil)
	own, ownKey := certificate(t, "server", authority, authorityKey)
	var names []string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		names = append(names, r.TLS.PeerCertificates[0].DNSNames[0]+" "+r.Header.Get("Authorization"))
		w.Header().Set("Connection", "close")
	}))
	clients := x509.NewCertPool()
	clients.AddCert(authority)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{own.Raw}, PrivateKey: ownKey}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	server.StartTLS()
	defer server.Close()
	to, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	caText, _ := encoded(t, authority, authorityKey)
	ca, cert, key := write(t, "ca", caText), write(t, "cert", ""), write(t, "key", "")
	replace := func(name string) {
		c, private := certificate(t, name, authority, authorityKey)
		certText, keyText := encoded(t, c, private)
		write(t, cert, certText)
		write(t, key, keyText)
	}
	replace("billing-1")
	config, err := credentials.TLS(cert, key, ca)
	if err != nil {
		t.Fatal(err)
	}
	h := sidecar.NewHTTP(sidecar.HTTPConfig{URL: to, TLS: config, Bearer: func() string { return "Bearer t" }, Authorization: "Basic x"})
	for _, name := range []string{"billing-1", "billing-2"} {
		replace(name)
		if err := h.Handle(t.Context(), &sidecar.Message{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(names, ", "); got != "billing-1 Bearer t, billing-2 Bearer t" {
		t.Errorf("the handler was asked by %q", got)
	}
	without, err := credentials.TLS("", "", ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := sidecar.NewHTTP(sidecar.HTTPConfig{URL: to, TLS: without}).Handle(t.Context(), &sidecar.Message{}); err == nil {
		t.Error("the handler is reached without a certificate")
	}
	for _, files := range [][3]string{{cert, "", ""}, {"", key, ""}, {key, cert, ""}, {"", "", key}, {cert, key, cert + "x"}, {cert + "x", key, ""}} {
		if _, err := credentials.TLS(files[0], files[1], files[2]); err == nil {
			t.Errorf("%q are accepted", files)
		}
	}
}
