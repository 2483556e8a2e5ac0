package link

import (
	"context"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// The broker checks a user's rights at each request, but reads the credentials only at the login. A token that has
// expired, or a new one with other rights, helps only a new connection. So a denial leads to a new login. A denial may
// also be right, and then the other users of the connection must not lose it. So a request that was denied is tried on
// the new connection first. Only if it is not denied there does the new connection replace the old one.

// The pauses between two logins for denied requests. They grow while logins do not help.
const (
	minLoginPause = time.Second
	maxLoginPause = time.Minute
)

// IsDenied reports whether the broker denied the user something.
func IsDenied(err error) bool { return ErrorCode(err) == amqp091.AccessRefused }

// login is when a link logs in again. Its field mu is held during a try.
type login struct {
	mu    chan struct{}
	last  time.Time     // the latest login
	pause time.Duration // since then, before the next one
}

func newLogin() login { return login{mu: make(chan struct{}, 1), pause: minLoginPause} }

// Do calls what with the link. If the broker denies what it asks for, Do logs in again and calls what with a link of the
// new connection, at most once in a while. That link ends with the call, unless its connection replaces that of l.
func (l *Link) Do(ctx context.Context, what func(*Link) error) error {
	before := l.current()
	return l.again(ctx, before, what(l), what)
}

// again is the rest of Do after the first call, which used the connection before.
func (l *Link) again(ctx context.Context, before *amqp091.Connection, err error, what func(*Link) error) error {
	if !IsDenied(err) || before == nil || ctx.Err() != nil {
		return err
	}
	select {
	case l.login.mu <- struct{}{}:
		defer func() { <-l.login.mu }()
	case <-ctx.Done():
		return err
	}
	if now := l.current(); now != before { // another request has logged in, or the connection was lost
		return what(l)
	}
	if !l.mayLogIn() {
		return err
	}
	fresh, failed := l.dialFresh(ctx)
	if failed != nil {
		return err
	}
	if again := what(fresh); !IsDenied(again) && l.replace(before, fresh.conn) {
		return again
	}
	fresh.Close()
	return err
}

// Drop closes the connection, at most once in a while, so that the next use logs in again. It is for a link without
// other users. It reports whether it did.
func (l *Link) Drop() bool {
	conn := l.current()
	if conn == nil || !l.mayLogIn() {
		return false
	}
	closeConn(conn)
	return true
}

// mayLogIn reports whether it is time for another login, and counts it.
func (l *Link) mayLogIn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.login.last) < l.login.pause {
		return false
	}
	l.login.last, l.login.pause = now, min(2*l.login.pause, maxLoginPause)
	return true
}

// current returns the open connection, or nil.
func (l *Link) current() *amqp091.Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || l.conn.IsClosed() {
		return nil
	}
	return l.conn
}

// dialFresh returns a link with another connection to the same broker.
func (l *Link) dialFresh(ctx context.Context) (*Link, error) {
	l.mu.Lock()
	url := l.URLs[l.next]
	l.mu.Unlock()
	conn, err := l.dial(ctx, url)
	if err != nil {
		return nil, err
	}
	fresh := New(l.Options)
	fresh.conn = conn
	return fresh, nil
}

// replace makes another connection that of the link, and closes the one before. It reports whether it could.
func (l *Link) replace(before, conn *amqp091.Connection) bool {
	l.mu.Lock()
	if l.closed || l.conn != before {
		l.mu.Unlock()
		return false
	}
	l.conn, l.login.last, l.login.pause = conn, time.Now(), minLoginPause
	l.watchAlarms(conn)
	l.mu.Unlock()
	closeConn(before)
	return true
}
