package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

var ErrClosed = errors.New("amqp: the client is closed")

// Options say where to connect, and what for.
type Options struct {
	URLs        []string // tried in turn
	AMQP        amqp091.Config
	DialTimeout time.Duration // bounds one try
	Name        string        // is shown by the broker
	Reads       bool          // reads messages, see wire.HeaderFilter
	OnBlock     func(reason string, blocked bool)
}

// Link is one connection to the broker. It reconnects when it is used after a loss. Reading and publishing have
// separate ones, because a broker in alarm blocks connections that publish, and acks must still get through.
type Link struct {
	Options

	mu     sync.Mutex
	conn   *amqp091.Connection
	closed bool
	next   int // index in URLs
	login  login

	// Blocked is closed while the broker is in alarm and takes no messages.
	Blocked engine.Gate
}

// New returns a link, which connects when it is first used.
func New(opt Options) *Link { return &Link{Options: opt, login: newLogin()} }

// Get returns the open connection, or dials each URL once.
func (l *Link) Get(ctx context.Context) (*amqp091.Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, nil
	}
	var errs []error
	for range l.URLs {
		url := l.URLs[l.next]
		conn, err := l.dial(ctx, url)
		if err == nil {
			l.conn, l.login.last = conn, time.Now()
			l.watchAlarms(conn)
			return conn, nil
		}
		l.next = (l.next + 1) % len(l.URLs)
		errs = append(errs, &connectError{fmt.Errorf("amqp: connecting to %s: %w", redeliver.Redact(url), err)})
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (l *Link) dial(ctx context.Context, url string) (*amqp091.Connection, error) {
	cfg := l.AMQP
	if cfg.TLSClientConfig != nil {
		cfg.TLSClientConfig = cfg.TLSClientConfig.Clone() // the client writes the host name into it
	}
	cfg.Properties = amqp091.Table{}
	maps.Copy(cfg.Properties, l.AMQP.Properties)
	if _, ok := cfg.Properties["connection_name"]; !ok {
		cfg.Properties.SetClientConnectionName(l.Name)
	}
	cfg.Locale = cmp.Or(cfg.Locale, "en_US")
	cfg.Heartbeat = cmp.Or(cfg.Heartbeat, 10*time.Second)
	if cfg.Dial == nil {
		cfg.Dial = func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: l.DialTimeout}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// For the handshake too; the client removes the deadline after it.
			return conn, conn.SetDeadline(time.Now().Add(l.DialTimeout))
		}
	}
	url, secure, err := dialTarget(url, cfg.TLSClientConfig)
	if err != nil {
		return nil, err
	}
	var in *wire.HeaderFilter
	dial := cfg.Dial
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		conn, err := dial(network, addr)
		if err != nil {
			return nil, err
		}
		if secure != nil {
			safe := tls.Client(conn, secure)
			if err := safe.HandshakeContext(ctx); err != nil {
				_ = conn.Close() // the handshake's error is more helpful
				return nil, err
			}
			conn = safe
		}
		if l.Reads {
			in = wire.NewHeaderFilter(conn)
			conn = in
		}
		return newGatheringConn(conn), nil
	}
	conn, err := amqp091.DialConfig(url, cfg)
	if err != nil {
		return nil, err
	}
	frame := conn.Config.FrameSize
	if err := checkFrame(frame); err != nil {
		closeConn(conn)
		return nil, err
	}
	if in != nil {
		in.SetFrame(frame) // before any message is requested
	}
	return conn, nil
}

// checkFrame refuses the frame size that client and broker have agreed on if no message could wait; 0 is no limit.
func checkFrame(size int) error {
	var ps check.Problems
	if size > 0 && size < wire.MinFrame {
		ps.Add("the frame size", size, fmt.Sprintf(
			"must be at least %d bytes, so that the headers of a waiting message fit into a frame: raise frame_max in rabbitmq.conf, and AMQP.FrameSize if the client sets it", wire.MinFrame))
	}
	return ps.Err()
}

// dialTarget returns the URL for the client to dial. For amqps that is an amqp URL, and secure is the configuration
// of the TLS below the client, because the client gives no access to the decrypted stream.
func dialTarget(raw string, cfg *tls.Config) (url string, secure *tls.Config, err error) {
	uri, err := amqp091.ParseURI(raw)
	if err != nil || uri.Scheme != "amqps" {
		return raw, nil, err
	}
	if cfg == nil {
		if cfg, err = tlsOf(uri); err != nil {
			return "", nil, err
		}
	}
	cfg.ServerName = cmp.Or(cfg.ServerName, uri.Host)
	u, err := neturl.Parse(raw)
	if err != nil {
		return "", nil, err
	}
	u.Scheme, u.Host = "amqp", net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))
	return u.String(), cfg, nil
}

// tlsOf returns the TLS configuration that a URL's parameters ask for.
func tlsOf(uri amqp091.URI) (*tls.Config, error) {
	cfg := &tls.Config{ServerName: uri.ServerName, MinVersion: tls.VersionTLS12}
	if uri.CACertFile != "" {
		data, err := os.ReadFile(uri.CACertFile)
		if err != nil {
			return nil, fmt.Errorf("reading the CA certificate: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("reading the CA certificate: %s has none in PEM", uri.CACertFile)
		}
	}
	if uri.CertFile != "" && uri.KeyFile != "" {
		certificate, err := tls.LoadX509KeyPair(uri.CertFile, uri.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the client's certificate: %w", err)
		}
		cfg.Certificates = []tls.Certificate{certificate}
	}
	return cfg, nil
}

// watchAlarms follows the broker's alarms until the connection ends.
func (l *Link) watchAlarms(conn *amqp091.Connection) {
	alarms := conn.NotifyBlocked(make(chan amqp091.Blocking, 8))
	go func() {
		on := false
		for b := range alarms {
			if b.Active == on {
				continue
			}
			on = b.Active
			l.setBlocked(on, b.Reason)
		}
		if on {
			l.setBlocked(false, "the connection is gone")
		}
	}()
}

func (l *Link) setBlocked(on bool, reason string) {
	if on {
		l.Blocked.Close()
	} else {
		l.Blocked.Open()
	}
	if l.OnBlock != nil {
		l.OnBlock(reason, on)
	}
}

// Channel opens a channel. It dials first if needed.
func (l *Link) Channel(ctx context.Context) (*amqp091.Channel, error) {
	conn, err := l.Get(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	return ch, nil
}

// FrameMax returns the negotiated frame size, or 0 for no limit.
func (l *Link) FrameMax() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0
	}
	return l.conn.Config.FrameSize
}

// ForgetsConsumers reports whether the broker may send nothing to the consumer of a quorum queue that was deleted and
// declared again at once, and not cancel it either. RabbitMQ 3.10 does so, 4.0 does not.
func (l *Link) ForgetsConsumers() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return false
	}
	version, _ := l.conn.Properties["version"].(string)
	return strings.HasPrefix(version, "3.")
}

// user returns the name with which the connection logged in, or "" if the login has none.
func (l *Link) user() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || len(l.conn.Config.SASL) == 0 {
		return ""
	}
	switch login := l.conn.Config.SASL[0].(type) {
	case *amqp091.PlainAuth:
		return login.Username
	case *amqp091.AMQPlainAuth:
		return login.Username
	default:
		return ""
	}
}

// ChannelMax returns the negotiated number of channels.
func (l *Link) ChannelMax() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.Config.ChannelMax == 0 {
		return math.MaxUint16
	}
	return int(l.conn.Config.ChannelMax)
}

func (l *Link) IsClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Link) Close() {
	l.mu.Lock()
	conn := l.conn
	l.closed, l.conn = true, nil
	l.mu.Unlock()
	if conn != nil {
		closeConn(conn)
	}
}

func closeConn(conn *amqp091.Connection) {
	_ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) // the error has no use
}
