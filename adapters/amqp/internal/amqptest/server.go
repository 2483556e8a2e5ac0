// Package amqptest has a fake broker and a fake management API, for tests of several packages.
package amqptest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"
)

// Server is a server with one channel of the client. It records content headers and consumers, and sends the
// deliveries of a test.
type Server struct {
	Ch       *amqp091.Channel
	Conn     *amqp091.Connection
	headers  chan []byte // payloads
	Acks     atomic.Int64
	Nacks    atomic.Int64
	Cancels  atomic.Int64
	Prefetch atomic.Int64 // of the last Qos
	Denied   string       // a queue that the user may not read
	// Denies reports whether the user may not declare, look for or get from a queue now. It may be nil.
	Denies func(queue string) bool
	// Declares is called for each declaration of a queue. It may be nil.
	Declares func(queue string, passive, noWait bool)
	Mute     atomic.Bool // Consume and Cancel get no answer
	Twice    atomic.Bool // Cancel gets two answers
	Read     chan string // queues that got a consumer
	Remote   net.Conn
	// Stale is how many logins, from the first, have expired: the broker denies what their connections ask for. Logins
	// counts all. Published counts the messages that were confirmed.
	Stale, Logins, Published atomic.Int64
	FrameMax                 atomic.Uint32 // that the broker proposes; 0 is no limit
}

const (
	methodFrame = 1
	headerFrame = 2
)

func NewServer(tb testing.TB) *Server {
	tb.Helper()
	local, remote := net.Pipe()
	w := &Server{headers: make(chan []byte, 1), Read: make(chan string, 100), Remote: remote}
	go w.serve(remote)
	conn, err := amqp091.Open(local, amqp091.Config{Vhost: "/", SASL: []amqp091.Authentication{&amqp091.PlainAuth{}}, Locale: "en_US"})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = remote.Close() })
	w.Conn = conn
	if w.Ch, err = conn.Channel(); err != nil {
		tb.Fatal(err)
	}
	return w
}

// Dialer returns a function that opens more connections.
func (w *Server) Dialer(tb testing.TB) func(network, address string) (net.Conn, error) {
	tb.Helper()
	return func(string, string) (net.Conn, error) {
		local, remote := net.Pipe()
		tb.Cleanup(func() { _ = remote.Close() })
		go w.serve(remote)
		return local, nil
	}
}

// Write publishes p and returns the size of its content header.
func (w *Server) Write(p amqp091.Publishing) (int, error) {
	header, err := w.Header(p)
	return len(header), err
}

// Header publishes p and returns its content header.
func (w *Server) Header(p amqp091.Publishing) ([]byte, error) {
	if err := w.Ch.PublishWithContext(context.Background(), "", "", false, false, p); err != nil {
		return nil, err
	}
	return <-w.headers, nil
}

// serve implements as much AMQP as a client needs to publish and to start to consume.
func (w *Server) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	if _, err := in.Discard(8); err != nil { // "AMQP", 0, 0, 9, 1
		return
	}
	send := func(channel uint16, class, method uint16, args ...byte) {
		payload := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), method)
		payload = append(payload, args...)
		frame := binary.BigEndian.AppendUint16([]byte{methodFrame}, channel)
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(payload)))
		_, _ = conn.Write(append(append(frame, payload...), 0xCE)) // a closed client is noticed at the next read
	}
	// Start: version, properties, mechanisms, locales.
	login, tags := int64(0), make(map[uint16]uint64) // tags counts the messages of channels with confirms
	const properties = "\x07productS\x00\x00\x00\x08RabbitMQ" + "\x07versionS\x00\x00\x00\x063.10.8"
	start := append([]byte{0, 9, 0, 0, 0, byte(len(properties))}, properties...)
	send(0, 10, 10, append(start, "\x00\x00\x00\x05PLAIN\x00\x00\x00\x05en_US"...)...)
	for {
		var head [7]byte
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(in, payload); err != nil {
			return
		}
		channel := binary.BigEndian.Uint16(head[1:])
		_, confirms := tags[channel]
		stale := login > 0 && login <= w.Stale.Load()
		switch {
		case head[0] == headerFrame && stale: // its publish closed the channel
		case head[0] == headerFrame && confirms:
			w.Published.Add(1)
			tags[channel]++
			send(channel, 60, 80, append(binary.BigEndian.AppendUint64(nil, tags[channel]), 0)...)
		case head[0] == headerFrame:
			w.headers <- payload[:len(payload)-1]
		case head[0] != methodFrame:
		default:
			switch [2]byte{payload[1], payload[3]} {
			case [2]byte{10, 11}: // StartOk: answer with Tune, without a limit of channels and heartbeat
				login = w.Logins.Add(1)
				send(0, 10, 30, append(binary.BigEndian.AppendUint32([]byte{0, 0}, w.FrameMax.Load()), 0, 0)...)
			case [2]byte{10, 50}: // Close
				send(0, 10, 51)
			case [2]byte{85, 10}: // Select of confirms
				tags[channel] = 0
				send(channel, 85, 11)
			case [2]byte{60, 40}: // Publish
				if stale {
					delete(tags, channel)
					send(channel, 20, 40, denied...)
				}
			case [2]byte{60, 80}: // an ack
				w.Acks.Add(1)
			case [2]byte{10, 40}: // Open
				send(0, 10, 41, 0)
			case [2]byte{20, 10}: // Open of a channel
				send(binary.BigEndian.Uint16(head[1:]), 20, 11, 0, 0, 0, 0)
			case [2]byte{20, 40}: // Close of a channel
				send(binary.BigEndian.Uint16(head[1:]), 20, 41)
			case [2]byte{50, 10}: // Declare of a queue, which exists and is empty
				name, rest := shortString(payload[6:])
				if w.Denies != nil && w.Denies(string(name[1:])) {
					send(channel, 20, 40, denied...)
					continue
				}
				passive, noWait := rest[0]&1 != 0, rest[0]&16 != 0
				if w.Declares != nil {
					w.Declares(string(name[1:]), passive, noWait)
				}
				if noWait {
					continue
				}
				send(binary.BigEndian.Uint16(head[1:]), 50, 11, append(name, 0, 0, 0, 0, 0, 0, 0, 0)...)
			case [2]byte{60, 70}: // Get from a queue, which is empty
				if name, _ := shortString(payload[6:]); w.Denies != nil && w.Denies(string(name[1:])) {
					send(channel, 20, 40, denied...)
					continue
				}
				send(channel, 60, 72, 0)
			case [2]byte{60, 10}: // Qos
				w.Prefetch.Store(int64(binary.BigEndian.Uint16(payload[8:])))
				send(binary.BigEndian.Uint16(head[1:]), 60, 11)
			case [2]byte{60, 120}: // a nack
				w.Nacks.Add(1)
			case [2]byte{60, 30}: // Cancel
				w.Cancels.Add(1)
				if w.Mute.Load() {
					continue
				}
				tag, _ := shortString(payload[4:])
				send(binary.BigEndian.Uint16(head[1:]), 60, 31, tag...)
				if w.Twice.Load() {
					send(channel, 60, 31, tag...)
				}
			case [2]byte{60, 20}:
				if w.Mute.Load() {
					continue
				}
				class, method, args := w.consume(payload[6:], stale)
				send(binary.BigEndian.Uint16(head[1:]), class, method, args...)
			}
		}
	}
}

// closing is the rest of a Close of a channel: no text, and the class and method of a request.
const closing = "\x00\x00\x3c\x00\x14"

// denied are the arguments of the Close of a channel on which something was denied.
var denied = append([]byte{amqp091.AccessRefused >> 8, amqp091.AccessRefused & 0xff}, closing...)

// consume answers a Consume with a ConsumeOk, or with a Close of the channel.
func (w *Server) consume(args []byte, stale bool) (class, method uint16, answer []byte) {
	queue, rest := shortString(args)
	tag, arguments := shortString(rest)
	switch name := string(queue[1:]); {
	case name == w.Denied || w.Denies != nil && w.Denies(name) || stale:
		return 20, 40, denied
	case bytes.Contains(arguments, []byte("x-stream-offset")):
		return 20, 40, append([]byte{amqp091.PreconditionFailed >> 8, amqp091.PreconditionFailed & 0xff}, closing...)
	default:
		w.Read <- name
		return 60, 21, tag
	}
}

// shortString splits off a short string with its length.
func shortString(b []byte) (s, rest []byte) {
	n := 1 + int(b[0])
	return bytes.Clone(b[:n]), b[n:]
}
