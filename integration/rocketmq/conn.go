package rocketmq

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// command is a request or its answer.
type command struct {
	Code      int               `json:"code"`
	Language  string            `json:"language"`
	Version   int               `json:"version"`
	Opaque    int32             `json:"opaque"` // the number of the request
	Flag      int               `json:"flag"`
	Remark    string            `json:"remark,omitempty"`
	ExtFields map[string]string `json:"extFields,omitempty"`
	Serialize string            `json:"serializeTypeCurrentRPC"`

	body []byte
}

const (
	isAnswer = 1       // in Flag
	protocol = 317     // the version that RocketMQ's own client in Go says it has
	maxFrame = 1 << 26 // bytes
)

// encode writes a frame: its length, the length of the header, the header, the body. The first byte of the header's
// length is the format of the header; 0 is JSON.
func (c command) encode() ([]byte, error) {
	header, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 8, 8+len(header)+len(c.body))
	binary.BigEndian.PutUint32(b, uint32(4+len(header)+len(c.body)))
	binary.BigEndian.PutUint32(b[4:], uint32(len(header)))
	return append(append(b, header...), c.body...), nil
}

func decode(r io.Reader) (c command, err error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return c, err
	}
	all, header := binary.BigEndian.Uint32(lengths[:]), binary.BigEndian.Uint32(lengths[4:])
	if kind := header >> 24; kind != 0 {
		return c, fmt.Errorf("a header that is not JSON but of kind %d", kind)
	}
	if all > maxFrame || all < 4 || header > all-4 {
		return c, fmt.Errorf("a frame of %d bytes with a header of %d", all, header)
	}
	b := make([]byte, all-4)
	if _, err := io.ReadFull(r, b); err != nil {
		return c, err
	}
	if err := json.Unmarshal(b[:header], &c); err != nil {
		return c, fmt.Errorf("a header that is not JSON: %w", err)
	}
	c.body = b[header:]
	return c, nil
}

// conn is a connection to a name server or a broker. It is safe for concurrent use.
type conn struct {
	net net.Conn

	mu      sync.Mutex // also of writing
	last    int32
	waiting map[int32]func(command, error)
	broken  error
}

func dialBroker(ctx context.Context, address string) (*conn, error) {
	var d net.Dialer
	n, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &conn{net: n, waiting: make(map[int32]func(command, error))}
	go c.read()
	return c, nil
}

func (c *conn) close() { _ = c.net.Close() }

// read passes each answer to its request. It drops frames that answer no request, such as a broker's own requests.
func (c *conn) read() {
	in := bufio.NewReaderSize(c.net, 1<<16)
	for {
		answer, err := decode(in)
		if err != nil {
			c.fail(err)
			return
		}
		if answer.Flag&isAnswer == 0 {
			continue
		}
		c.mu.Lock()
		done := c.waiting[answer.Opaque]
		delete(c.waiting, answer.Opaque)
		c.mu.Unlock()
		if done != nil {
			done(answer, nil)
		}
	}
}

// fail ends all open requests with an error.
func (c *conn) fail(err error) {
	c.mu.Lock()
	if c.broken == nil {
		c.broken = fmt.Errorf("the connection to %s: %w", c.net.RemoteAddr(), err)
	}
	waiting := c.waiting
	c.waiting = make(map[int32]func(command, error))
	c.mu.Unlock()
	c.close()
	for _, done := range waiting {
		done(command{}, c.broken)
	}
}

// send sends a request. Another goroutine calls done once, with the answer.
func (c *conn) send(request command, done func(command, error)) {
	c.mu.Lock()
	c.last++
	request.Opaque, request.Language, request.Version, request.Serialize = c.last, "GO", protocol, "JSON"
	frame, err := request.encode()
	if err = errors.Join(c.broken, err); err == nil {
		c.waiting[request.Opaque] = done
		if _, bad := c.net.Write(frame); bad != nil {
			// The reader notices this, and ends the request with the others.
			c.close()
		}
	}
	c.mu.Unlock()
	if err != nil {
		go done(command{}, err)
	}
}

// call sends a request and waits for its answer. A code other than 0 is an [*Error].
func (c *conn) call(ctx context.Context, code int, fields map[string]string, body []byte) (command, error) {
	type result struct {
		command
		err error
	}
	answered := make(chan result, 1)
	c.send(command{Code: code, ExtFields: fields, body: body}, func(a command, err error) { answered <- result{a, err} })
	select {
	case a := <-answered:
		if a.err == nil && a.Code != 0 {
			a.err = &Error{Code: a.Code, Remark: a.Remark}
		}
		return a.command, a.err
	case <-ctx.Done():
		return command{}, ctx.Err()
	}
}

// Error is an answer that reports a failure.
type Error struct {
	Code   int
	Remark string
}

func (e *Error) Error() string {
	return fmt.Sprintf("rocketmq answers with code %d: %s", e.Code, e.Remark)
}

// is reports whether an error is an answer with this code.
func is(err error, code int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}
