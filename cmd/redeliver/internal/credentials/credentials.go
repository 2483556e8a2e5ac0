// Package credentials has the credentials that a handler on HTTP may ask for, besides a fixed Authorization. They are files that others
// replace while the process runs.
package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// readEvery is the time between two reads of a token. A rotation makes the new token before the old one ends.
const readEvery = 5 * time.Second

// Bearer is a token in a file. It is safe for concurrent use.
type Bearer struct {
	path string

	mu    sync.Mutex
	value string    // of the header Authorization
	read  time.Time // when the file was read
}

// NewBearer reads a token.
func NewBearer(path string) (*Bearer, error) {
	b := &Bearer{path: path}
	return b, b.readFile()
}

// Authorization returns the value of the header Authorization. If the file cannot be read now, it is that of the latest token: the answer
// of the handler says whether that is still good.
func (b *Bearer) Authorization() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.read) > readEvery {
		_ = b.readFile()
	}
	return b.value
}

func (b *Bearer) readFile() error {
	b.read = time.Now()
	text, err := os.ReadFile(b.path)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return fmt.Errorf("%s is empty", b.path)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return fmt.Errorf("%s has more than one line, or characters that no token has", b.path)
	}
	b.value = "Bearer " + token
	return nil
}

// TLS returns the TLS configuration of a client with a certificate, its key, and the authorities of servers. Each is the name of a file, or
// empty. The certificate and the key are read again for each connection.
func TLS(cert, key, ca string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if (cert == "") != (key == "") {
		return nil, errors.New("a certificate and its key need each other")
	}
	if cert != "" {
		load := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			return &pair, err
		}
		if _, err := load(); err != nil {
			return nil, err
		}
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	}
	if ca == "" {
		return c, nil
	}
	text, err := os.ReadFile(ca)
	if err != nil {
		return nil, err
	}
	if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", ca)
	}
	return c, nil
}
