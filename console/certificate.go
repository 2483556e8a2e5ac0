package console

import (
	"crypto/tls"
	"os"
	"sync"
	"time"
)

// certificateCheckInterval is the interval at which the files are checked for changes.
const certificateCheckInterval = time.Minute

// certificate reads a certificate from its two files, and again when one of them changes: a certificate may be renewed
// with the same key. If the new files cannot be read, it keeps the old certificate.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	pair    *tls.Certificate
	changed [2]time.Time // modification times of both files before the last successful read
	checked time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pair != nil && time.Since(c.checked) < certificateCheckInterval {
		return c.pair, nil
	}
	c.checked = time.Now()
	changed := [2]time.Time{modTime(c.cert), modTime(c.key)}
	if c.pair != nil && changed == c.changed {
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

// modTime returns when a file was modified, or zero if there is no file.
func modTime(file string) time.Time {
	info, err := os.Stat(file)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
