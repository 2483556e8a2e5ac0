package loss

import (
	"bytes"
	"encoding/binary"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
)

// AMQP's frames and methods that the watcher handles. A method is its class and its number.
const (
	methodFrame = 1
	headerFrame = 2
	frameEnd    = 0xCE

	connectionClose = 10<<16 | 50

	basicPublish = 60<<16 | 40
	basicDeliver = 60<<16 | 60
	basicGetOK   = 60<<16 | 71
	basicAck     = 60<<16 | 80
)

// rabbitConn is a connection whose traffic the watcher sees: published messages before they leave, deliveries and confirms
// before the client reads them, and the runs that an ack settles before it is sent.
type rabbitConn struct {
	net.Conn
	watcher *watcher
	queue   string

	out, in frames
	sent    map[uint16]string    // by channel: the destination of a message whose header has not come yet
	got     map[uint16]delivered // by channel: a delivery whose header has not come yet

	gone  chan struct{} // closed when the broker has ended the connection
	end   func()
	reads bool // messages came from it

	mu     sync.Mutex // reader and writer both use unsettled
	unsent map[uint16]map[uint64]run
}

type delivered struct {
	tag   uint64
	key   string
	again bool
}

func newRabbitConn(c net.Conn, s *watcher, queue string) *rabbitConn {
	rc := &rabbitConn{
		Conn: c, watcher: s, queue: queue, gone: make(chan struct{}), out: frames{skip: len("AMQP\x00\x00\x09\x01")},
		sent: make(map[uint16]string), got: make(map[uint16]delivered), unsent: make(map[uint16]map[uint64]run),
	}
	rc.end = sync.OnceFunc(func() { // the reader calls it
		close(rc.gone)
		if rc.reads {
			s.lost()
		}
	})
	return rc
}

// Write is called for one frame or one message at a time.
func (c *rabbitConn) Write(b []byte) (int, error) {
	select {
	case <-c.gone: // the write cannot arrive
	default:
		c.out.each(b, c.writing)
	}
	return c.Conn.Write(b)
}

func (c *rabbitConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.in.each(b[:n], c.reading)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *rabbitConn) writing(kind byte, channel uint16, payload []byte) {
	switch kind {
	case methodFrame:
		switch m := (fields{payload}); m.long() {
		case basicPublish:
			m.skip(2)
			m.short() // the exchange
			if key := m.short(); strings.HasPrefix(key, c.queue+".") {
				c.sent[channel] = key
			}
		case basicAck:
			tag := m.longlong()
			c.acking(channel, tag, m.octet()&1 == 1)
		}
	case headerFrame:
		key, ok := c.sent[channel]
		delete(c.sent, channel)
		if r, _ := runOf(payload); ok && r.id != "" {
			c.watcher.send(r, key, c.gone)
		}
	}
}

func (c *rabbitConn) acking(channel uint16, tag uint64, multiple bool) {
	c.mu.Lock()
	var runs []run
	for t, r := range c.unsent[channel] {
		if t == tag || multiple && t < tag {
			runs = append(runs, r)
			delete(c.unsent[channel], t)
		}
	}
	c.mu.Unlock()
	c.watcher.acking(runs)
}

func (c *rabbitConn) reading(kind byte, channel uint16, payload []byte) {
	switch kind {
	case methodFrame:
		switch m := (fields{payload}); m.long() {
		case basicDeliver:
			m.short() // the consumer
			c.deliver(channel, m)
		case basicGetOK:
			c.deliver(channel, m)
		case basicAck: // from the broker, so a confirm
			c.watcher.answer()
		case connectionClose:
			c.end()
		}
	case headerFrame:
		d, ok := c.got[channel]
		delete(c.got, channel)
		r, st := runOf(payload)
		if !ok || r.id == "" {
			return
		}
		r.attempt++ // the next attempt
		c.mu.Lock()
		if d.tag == 1 || c.unsent[channel] == nil { // a new channel
			c.unsent[channel] = make(map[uint64]run)
		}
		c.unsent[channel][d.tag] = r
		c.mu.Unlock()
		// The message has one of these ids.
		c.watcher.setID(r.id, r.id)
		c.watcher.setID(rabbitPlace(c.queue, r.id), r.id)
		if d.again && d.key == c.queue+".retry.suspects" {
			c.watcher.protect(r)
		}
		if strings.HasPrefix(d.key, c.queue+".retry") && !st.Due.IsZero() { // a level, or the retry queue
			c.watcher.addWaiting(r, st.Due)
		}
	}
}

func (c *rabbitConn) deliver(channel uint16, m fields) {
	c.reads = true
	d := delivered{tag: m.longlong(), again: m.octet()&1 == 1}
	m.short() // the exchange
	d.key = m.short()
	c.got[channel] = d
}

// runOf returns the attempts and the due time in a content header.
func runOf(payload []byte) (run, redeliver.State) {
	var st redeliver.State
	r := run{id: headerText(payload, headerID)}
	r.attempt, _ = strconv.Atoi(headerText(payload, redeliver.HeaderAttempt)) // 0 when it is missing
	st.Due, _ = time.Parse(time.RFC3339Nano, headerText(payload, redeliver.HeaderDue))
	return r, st
}

// headerText finds a header by its first bytes: length and name, S for text, length and text. Nothing else in the
// suite's messages has that form.
func headerText(payload []byte, name string) string {
	_, rest, ok := bytes.Cut(payload, []byte(string(rune(len(name)))+name+"S"))
	if !ok || len(rest) < 4 {
		return ""
	}
	n := int(binary.BigEndian.Uint32(rest))
	if len(rest) < 4+n {
		return ""
	}
	return string(rest[4 : 4+n])
}

// frames splits one direction of a connection into frames.
type frames struct {
	skip int    // bytes before the first
	rest []byte // of an incomplete frame
}

func (f *frames) each(b []byte, what func(kind byte, channel uint16, payload []byte)) {
	n := min(f.skip, len(b))
	f.skip -= n
	f.rest = append(f.rest, b[n:]...)
	for len(f.rest) >= 7 {
		size := 7 + int(binary.BigEndian.Uint32(f.rest[3:])) + 1
		if len(f.rest) < size {
			return
		}
		if f.rest[size-1] != frameEnd {
			panic("the watcher has lost the frames of AMQP")
		}
		what(f.rest[0], binary.BigEndian.Uint16(f.rest[1:]), f.rest[7:size-1])
		f.rest = f.rest[size:]
	}
}

// fields reads the arguments of a method.
type fields struct{ b []byte }

func (f *fields) skip(n int) { f.b = f.b[n:] }

func (f *fields) octet() byte {
	v := f.b[0]
	f.skip(1)
	return v
}

func (f *fields) long() uint32 {
	v := binary.BigEndian.Uint32(f.b)
	f.skip(4)
	return v
}

func (f *fields) longlong() uint64 {
	v := binary.BigEndian.Uint64(f.b)
	f.skip(8)
	return v
}

func (f *fields) short() string {
	n := int(f.octet())
	v := string(f.b[:n])
	f.skip(n)
	return v
}
