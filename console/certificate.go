package console

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// certificateAge is the interval of checks of the key file.
const certificateAge = time.Minute

// certificate reads a certificate from its files, and again when the key file changes. If the new files cannot be read,
// it keeps the old certificate.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	pair    *tls.Certificate
	changed time.Time // modification time of the key file at the last read
	looked  time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.looked) < certificateAge {
		return c.pair, nil
	}
	c.looked = time.Now()
	var changed time.Time
	if at, err := os.Stat(c.key); err == nil {
		changed = at.ModTime()
	}
	if c.pair != nil && changed.Equal(c.changed) {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	switch {
	case err == nil:
		c.pair, c.changed = &pair, changed
	case c.pair == nil:
		return nil, err
	}
	return c.pair, nil
}
