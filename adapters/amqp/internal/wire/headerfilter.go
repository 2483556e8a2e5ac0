package wire

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/wirename"
)

// amqp091-go ends its connection over a content header that it cannot read, and the message comes back on the next
// connection, forever. So HeaderFilter checks the stream before the client. It replaces unreadable headers by a few
// that give the reason, and keeps properties and body. The message then goes to the DLQ as undecodable.

// UnreadableReason and unreadableRaw replace headers that could not be read. Other processes cannot know these names.
var (
	UnreadableReason = "unreadable-" + rand.Text()
	unreadableRaw    = UnreadableReason + "-raw"
)

// HeaderFilter is a connection from which the client reads. Only the client's reader uses it.
type HeaderFilter struct {
	net.Conn
	in    *bufio.Reader
	frame atomic.Int64 // the negotiated frame size
	pass  int          // bytes to pass through
	out   []byte       // goes out first
}

const (
	frameHead        = 7 // type, channel, length of the payload
	frameContent     = 2 // frame type of a content header
	contentHead      = 14
	filterBuffer     = 64 << 10
	maxContentHeader = 64 << 20 // longer than any broker's; the client then reports it
	flagType         = 0x8000
	flagEncoding     = 0x4000
	flagHeaders      = 0x2000
	maxKept          = 8 << 10
	nameOverheads    = 1 + 1 + 4 // of a text or bytes: length of the name, type, length
)

func NewHeaderFilter(conn net.Conn) *HeaderFilter {
	return &HeaderFilter{Conn: conn, in: bufio.NewReaderSize(conn, filterBuffer)}
}

// SetFrame sets the negotiated frame size.
func (s *HeaderFilter) SetFrame(size int) { s.frame.Store(int64(size)) }

// Read implements [net.Conn].
func (s *HeaderFilter) Read(p []byte) (int, error) {
	for len(s.out) == 0 && s.pass == 0 {
		if err := s.nextFrame(); err != nil {
			return 0, err
		}
	}
	if len(s.out) > 0 {
		n := copy(p, s.out)
		s.out = s.out[n:]
		return n, nil
	}
	n, err := s.in.Read(p[:min(len(p), s.pass)])
	s.pass -= n
	return n, err
}

// nextFrame decides about the next frame.
func (s *HeaderFilter) nextFrame() error {
	head, err := s.in.Peek(frameHead)
	if err != nil {
		if s.out, _ = s.in.Peek(s.in.Buffered()); len(s.out) > 0 { // not a frame, but the client may understand it
			_, _ = s.in.Discard(len(s.out)) // they are buffered
			return nil
		}
		return err
	}
	size := int(binary.BigEndian.Uint32(head[3:]))
	whole := frameHead + size + 1
	if head[0] != frameContent || size < contentHead || size > maxContentHeader {
		s.pass = whole
		return nil
	}
	if whole <= s.in.Size() {
		frame, err := s.in.Peek(whole)
		if err != nil {
			return err
		}
		if s.checkHeader(frame) == nil {
			s.pass = whole
			return nil
		}
	}
	frame := make([]byte, whole)
	if _, err := io.ReadFull(s.in, frame); err != nil {
		return err
	}
	if why := s.checkHeader(frame); why != nil {
		frame = s.replace(frame, why)
	}
	s.out = frame
	return nil
}

// checkHeader returns why the client would refuse a content header.
func (s *HeaderFilter) checkHeader(frame []byte) error {
	if maxFrame := int(s.frame.Load()); maxFrame > 0 && len(frame) > maxFrame {
		return fmt.Errorf("its headers, in a frame of %d bytes, are longer than the %d that were agreed upon", len(frame), maxFrame)
	}
	_, table, _, err := split(frame)
	if err != nil || table == nil {
		return err
	}
	return walk(table[4:], 0, true, nil)
}

// errMalformed is the error of headers that violate AMQP.
var errMalformed = errors.New("its headers are malformed")

// split finds the headers in a content header's frame. table starts with its length; it is nil if there are no
// headers.
func split(frame []byte) (before, table, after []byte, err error) {
	payload := frame[frameHead : len(frame)-1]
	flags := binary.BigEndian.Uint16(payload[12:])
	at := contentHead
	for _, flag := range []uint16{flagType, flagEncoding} {
		if flags&flag == 0 {
			continue
		}
		if at >= len(payload) || at+1+int(payload[at]) > len(payload) {
			return nil, nil, nil, errMalformed
		}
		at += 1 + int(payload[at])
	}
	if flags&flagHeaders == 0 {
		return payload[:at], nil, payload[at:], nil
	}
	n, ok := length(payload[at:])
	if !ok {
		return payload[:at], payload[at:], nil, errMalformed
	}
	return payload[:at], payload[at : at+4+n], payload[at+4+n:], nil
}

// length reads a length of four bytes. ok is false if less data follows.
func length(b []byte) (n int, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	size := binary.BigEndian.Uint32(b)
	return int(size), uint64(size) <= uint64(len(b)-4)
}

// sizeOf returns the size of a value whose type has a fixed one.
func sizeOf(kind byte) (size int, fixed bool) {
	switch kind {
	case 'V':
		return 0, true
	case 't', 'b', 'B':
		return 1, true
	case 's', 'u':
		return 2, true
	case 'I', 'i', 'f':
		return 4, true
	case 'D':
		return 5, true
	case 'l', 'd', 'T':
		return 8, true
	default:
		return 0, false
	}
}

// walk checks the fields of a table, or of an array, whose fields have no names. If each is not nil, walk calls it
// for every field with its bytes, name included, and does not look inside.
func walk(b []byte, deep int, named bool, each func(name string, kind byte, field []byte)) error {
	if deep > maxDepth {
		return fmt.Errorf("its headers are tables in tables, more than %d deep", maxDepth)
	}
	for n := 0; len(b) > 0; n++ {
		if n == maxFields && each == nil {
			return fmt.Errorf("its headers have a table or an array of more than %d fields", maxFields)
		}
		at := 0
		if named {
			at = 1 + int(b[0])
		}
		if at >= len(b) {
			return errMalformed
		}
		kind := b[at]
		at++
		size, fixed := sizeOf(kind)
		if !fixed {
			inner, ok := length(b[at:])
			if !ok || !strings.ContainsRune("SxFA", rune(kind)) {
				return errMalformed
			}
			if each == nil && (kind == 'F' || kind == 'A') {
				if err := walk(b[at+4:at+4+inner], deep+1, kind == 'F', nil); err != nil {
					return err
				}
			}
			size = 4 + inner
		}
		if at+size > len(b) {
			return errMalformed
		}
		if each != nil {
			each(string(b[1:1+int(b[0])]), kind, b[:at+size])
		}
		b = b[at+size:]
	}
	return nil
}

// replace makes the frame that the client gets instead. It has the reason, the id and redeliver's headers, and all
// headers as bytes if they fit.
func (s *HeaderFilter) replace(frame []byte, why error) []byte {
	before, table, after, _ := split(frame)
	var kept []byte
	if len(table) > 4 {
		// up to the malformed field, if there is one
		_ = walk(table[4:], 0, true, func(name string, kind byte, field []byte) {
			ours := name == wirename.WatermillUUID || strings.HasPrefix(name, redeliver.HeaderPrefix)
			if ours && kind == 'S' && len(kept)+len(field) <= maxKept {
				kept = append(kept, field...)
			}
		})
	}
	if before == nil { // the properties are unreadable too
		before, kept = append([]byte(nil), frame[frameHead:frameHead+contentHead]...), nil
		before[12], before[13] = 0, 0
	}
	if after == nil { // or what follows the headers
		before = append([]byte(nil), before...)
		binary.BigEndian.PutUint16(before[12:], binary.BigEndian.Uint16(before[12:])&(flagType|flagEncoding))
	}
	build := func(raw []byte) []byte {
		headers := append(field(UnreadableReason, 'S', []byte(why.Error())), kept...)
		if raw != nil {
			headers = append(headers, field(unreadableRaw, 'x', raw)...)
		}
		payload := append([]byte(nil), before...)
		binary.BigEndian.PutUint16(payload[12:], binary.BigEndian.Uint16(payload[12:])|flagHeaders)
		payload = binary.BigEndian.AppendUint32(payload, uint32(len(headers)))
		payload = append(append(payload, headers...), after...)
		made := append([]byte(nil), frame[:3]...)
		made = binary.BigEndian.AppendUint32(made, uint32(len(payload)))
		return append(append(made, payload...), frame[len(frame)-1])
	}
	maxFrame := int(s.frame.Load())
	made := build(table)
	if maxFrame > 0 && len(made) > maxFrame {
		made = build(nil)
	}
	if maxFrame > 0 && len(made) > maxFrame {
		kept = nil
		made = build(nil)
	}
	return made
}

func field(name string, kind byte, value []byte) []byte {
	b := make([]byte, 0, nameOverheads+len(name)+len(value))
	b = append(append(append(b, byte(len(name))), name...), kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// RemoveUnreadable removes the filter's headers from a delivery. It returns the original headers and why they could not be
// read.
func RemoveUnreadable(d *amqp091.Delivery) (raw []byte, why error) {
	text, ok := d.Headers[UnreadableReason].(string)
	if !ok {
		return nil, nil
	}
	raw, _ = d.Headers[unreadableRaw].([]byte)
	delete(d.Headers, UnreadableReason)
	delete(d.Headers, unreadableRaw)
	return raw, errors.New(text)
}
