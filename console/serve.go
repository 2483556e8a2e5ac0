package console

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// DefaultAddress is the address on which a console listens by default.
const DefaultAddress = "127.0.0.1:8377"

// maxCloseTime is how long requests and an edit may take to end after the console is closed.
const maxCloseTime = 5 * time.Second

// ServeConfig configures where a console listens.
type ServeConfig struct {
	// Address is host and port. Default 127.0.0.1:8377.
	Address string
	// CertFile and KeyFile are the console's certificate and key, in PEM. Both are read again if one of them has
	// changed. They are checked at most once a minute. Default: no TLS.
	CertFile, KeyFile string
	// Ready is called with the console's URL once it listens. Optional.
	Ready func(url string)
}

// ErrPublic is the error of ListenAndServe for an address at which other machines could use the console unsafely.
var ErrPublic = errors.New("the console would be open to other machines")

// ListenAndServe serves the console until ctx ends, and then returns nil. Without Config.Auth it refuses any address
// that is not a loopback address, with ErrPublic. It also refuses such an address for Basic without TLS, because others
// on the network could read the passwords.
func (c *Console) ListenAndServe(ctx context.Context, cfg ServeConfig) error {
	cfg.Address = cmp.Or(cfg.Address, DefaultAddress)
	server, secure := c.server(ctx), cfg.CertFile != "" || cfg.KeyFile != ""
	if secure {
		renewed := certificate{cert: cfg.CertFile, key: cfg.KeyFile}
		if _, err := renewed.get(nil); err != nil {
			return fmt.Errorf("console: the certificate: %w", err)
		}
		server.TLSConfig = &tls.Config{GetCertificate: renewed.get, MinVersion: tls.VersionTLS12}
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Address)
	if err != nil {
		return fmt.Errorf("console: %w", err)
	}
	defer ln.Close()
	if err := c.mayListen(ln.Addr(), secure); err != nil {
		return fmt.Errorf("console: listening on %s: %w", cfg.Address, err)
	}
	served := make(chan error, 1)
	go func() {
		if secure {
			served <- server.ServeTLS(ln, "", "")
		} else {
			served <- server.Serve(ln)
		}
	}()
	if cfg.Ready != nil {
		cfg.Ready(urlOf(ln.Addr(), secure))
	}
	select {
	case err := <-served:
		return fmt.Errorf("console: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxCloseTime)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		_ = server.Close() // closes the remaining connections
	}
	return nil
}

// maxResponseTime is the timeout from the first byte of a request to the last byte of its response. The longest request, an
// edit, may take 65 s. A stream of events gets more time with each event.
const maxResponseTime = 2 * time.Minute

// server returns a server for the console that runs until ctx ends.
func (c *Console) server(ctx context.Context) *http.Server {
	return &http.Server{
		Handler:           c,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      maxResponseTime,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // streams end with ctx
	}
}

// mayListen returns an error if the console is not safe at its address.
func (c *Console) mayListen(at net.Addr, secure bool) error {
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return nil
	}
	switch {
	case c.cfg.Auth.kind == authLocal:
		return fmt.Errorf("%w: set Auth, or listen on 127.0.0.1", ErrPublic)
	case c.cfg.Auth.kind == authBasic && !secure:
		return fmt.Errorf("%w, and passwords would be readable on the network: set CertFile and KeyFile, or listen on 127.0.0.1", ErrPublic)
	default:
		return nil
	}
}

func urlOf(at net.Addr, secure bool) string {
	if secure {
		return "https://" + at.String() + "/"
	}
	return "http://" + at.String() + "/"
}
