package amqp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

var errClosed = errors.New("amqp: the client is closed")

// link is one connection to the broker, dialled again when it is needed and
// gone. Reading and publishing have one each: a broker in alarm stops those that
// publish, and acks must still get through.
type link struct {
	cfg  *Config
	name string

	mu     sync.Mutex
	conn   *amqp.Connection
	closed bool
	next   int // of cfg.URLs

	// blocked is closed while the broker is in alarm and takes no messages.
	blocked delayqueue.Gate
	onBlock func(reason string, blocked bool)
}

// get returns the open connection, or dials one: each URL once.
func (l *link) get(ctx context.Context) (*amqp.Connection, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errClosed
	}
	if l.conn != nil && !l.conn.IsClosed() {
		return l.conn, nil
	}
	var errs []error
	for range l.cfg.URLs {
		url := l.cfg.URLs[l.next]
		conn, err := l.dial(ctx, url)
		if err == nil {
			l.conn = conn
			l.watch(conn)
			return conn, nil
		}
		l.next = (l.next + 1) % len(l.cfg.URLs)
		errs = append(errs, fmt.Errorf("amqp: connecting to %s: %w", redeliver.Redact(url), err))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (l *link) dial(ctx context.Context, url string) (*amqp.Connection, error) {
	cfg := l.cfg.AMQP
	if cfg.TLSClientConfig != nil {
		cfg.TLSClientConfig = cfg.TLSClientConfig.Clone() // the client writes the host into it
	}
	cfg.Properties = amqp.Table{}
	maps.Copy(cfg.Properties, l.cfg.AMQP.Properties)
	if _, ok := cfg.Properties["connection_name"]; !ok {
		cfg.Properties.SetClientConnectionName(l.name)
	}
	if cfg.Locale == "" {
		cfg.Locale = "en_US"
	}
	if cfg.Heartbeat == 0 {
		cfg.Heartbeat = 10 * time.Second
	}
	if cfg.Dial == nil {
		cfg.Dial = func(network, addr string) (net.Conn, error) {
			d := net.Dialer{Timeout: l.cfg.DialTimeout}
			conn, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			// The handshake too; the client takes the deadline off after it.
			return conn, conn.SetDeadline(time.Now().Add(l.cfg.DialTimeout))
		}
	}
	dial := cfg.Dial
	cfg.Dial = func(network, addr string) (net.Conn, error) {
		conn, err := dial(network, addr)
		if err != nil {
			return nil, err
		}
		return gather(conn), nil
	}
	return amqp.DialConfig(url, cfg)
}

// watch follows the broker's alarms for as long as the connection lives.
func (l *link) watch(conn *amqp.Connection) {
	alarms := conn.NotifyBlocked(make(chan amqp.Blocking, 8))
	go func() {
		on := false
		for b := range alarms {
			if b.Active == on {
				continue
			}
			on = b.Active
			l.block(on, b.Reason)
		}
		if on {
			l.block(false, "the connection is gone")
		}
	}()
}

func (l *link) block(on bool, reason string) {
	if on {
		l.blocked.Close()
	} else {
		l.blocked.Open()
	}
	if l.onBlock != nil {
		l.onBlock(reason, on)
	}
}

// channel opens a channel, dialling first if it must.
func (l *link) channel(ctx context.Context) (*amqp.Channel, error) {
	conn, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	ch, err := conn.Channel()
	if err != nil {
		return nil, fmt.Errorf("amqp: opening a channel: %w", err)
	}
	return ch, nil
}

// frameMax is the negotiated size of a frame, 0 for no limit.
func (l *link) frameMax() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		return 0
	}
	return l.conn.Config.FrameSize
}

func (l *link) close() {
	l.mu.Lock()
	conn := l.conn
	l.closed, l.conn = true, nil
	l.mu.Unlock()
	if conn != nil {
		_ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) // there is nobody left to tell
	}
}
