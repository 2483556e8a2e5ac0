package wire

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// Room for headers that the broker may add to a message in redeliver's queues. Headers larger than a frame break the
// connection of every reader.
const (
	WaitingRoom = 4 << 10 // for waiting messages: an x-death entry and counts
	CountRoom   = 64      // for any quorum queue: delivery counts
)

// MinFrame is the smallest frame size of a connection. Half of it is room for the broker's headers, the other half for
// redeliver's and the message's own. In AMQP's smallest frame, 4,096 bytes, no message could wait.
const MinFrame = 2 * WaitingRoom

// Redeliver's headers that a message can do without, while it waits and in the DLQ. Neither list has the
// reason, attempts or id.
var (
	dispensable      = []string{HeaderUntil, redeliver.HeaderTrace, redeliver.HeaderErrorType, redeliver.HeaderFirstError, redeliver.HeaderError, redeliver.HeaderPolicy}
	dispensableInDLQ = append(slices.Clone(dispensable),
		redeliver.HeaderDue, redeliver.HeaderOriginTimestamp, redeliver.HeaderLastFailed, redeliver.HeaderFirstFailed,
		redeliver.HeaderPostponed, redeliver.HeaderReplays, redeliver.HeaderReplayed, redeliver.HeaderOrigin, redeliver.HeaderGroup)
)

// WaitingCopy returns the message for a queue from which it comes back. If until is set, it leaves at that time,
// before it is due. A message whose own headers leave no room in a frame is refused.
func (r *Record) WaitingCopy(st *redeliver.State, until time.Time, frame, room int) (amqp091.Publishing, error) {
	p := r.Publishing(st)
	if !until.IsZero() {
		p.Headers[HeaderUntil] = until.UTC().Format(time.RFC3339Nano)
	}
	if r.Copies > 0 {
		p.Headers[headerCopies] = int32(r.Copies)
	}
	if !fit(&p, frame, room, dispensable) {
		return p, fmt.Errorf("%w: its headers of %d bytes leave no room for redeliver's in a frame of %d, or are too many", driver.ErrRefused, headerSize(&p), frame)
	}
	Sign(r.Keys, statekeys.Waiting, &p)
	return p, nil
}

// DeadCopy returns the message for the DLQ, which accepts everything that came in a frame. It has as many of
// redeliver's headers as fit, or none.
func (r *Record) DeadCopy(st *redeliver.State, frame int) amqp091.Publishing {
	p := r.Publishing(st)
	droppable := dispensableInDLQ
	if r.Raw != nil {
		p.Headers[HeaderRaw] = r.Raw
		droppable = append([]string{HeaderRaw}, droppable...)
	}
	if fit(&p, frame, CountRoom, droppable) {
		Sign(r.Keys, statekeys.DeadLetter, &p)
		return p
	}
	if p = r.Publishing(nil); fit(&p, frame, 0, nil) {
		return p
	}
	// Last resort: no header may grow, so the names of headers that would take effect change their case.
	d := r.Own()
	p = queueCopy(d)
	p.DeliveryMode = d.DeliveryMode // a quorum queue keeps any message
	if d.ReplyTo == directReplyTo {
		p.ReplyTo = ""
	}
	for name, v := range d.Headers {
		switch {
		case name == "CC" || name == "BCC":
			delete(p.Headers, name)
			p.Headers[strings.ToLower(name)] = v
		case strings.HasPrefix(name, redeliver.HeaderPrefix):
			delete(p.Headers, name)
			p.Headers["R"+name[1:]] = v
		}
	}
	return p
}

// Released returns the copy of a waiting message that is due now. Everything else stays as it is on the level.
func Released(d *amqp091.Delivery, now time.Time, keys statekeys.Keys) amqp091.Publishing {
	p := queueCopy(d)
	setPriority(&p, d.Priority) // of a copy of an older version
	delete(p.Headers, HeaderUntil)
	if _, ours := p.Headers[redeliver.HeaderAttempt]; ours {
		st := redeliver.State{Due: now}
		due := maps.Collect(driver.StateHeaders(&st))
		p.Headers[redeliver.HeaderDue] = string(due[redeliver.HeaderDue])
	}
	if verify(keys, statekeys.Waiting, d) {
		Sign(keys, statekeys.Waiting, &p)
	}
	return p
}

// fit cuts or drops redeliver's headers until all fit into a frame with room to spare and a client can read them. It
// reports whether they fit.
func fit(p *amqp091.Publishing, frame, room int, dispensable []string) (ok bool) {
	maxHeaderSize := frame - frameOverhead - room
	fits := func() bool {
		return (frame <= 0 || headerSize(p) <= maxHeaderSize) && isReadable(p.Headers, room)
	}
	if fits() {
		return true
	}
	for _, name := range []string{redeliver.HeaderError, redeliver.HeaderFirstError} {
		if text, ok := p.Headers[name].(string); ok {
			p.Headers[name] = limits.Cut(text, 128)
		}
	}
	for _, name := range dispensable {
		if fits() {
			return true
		}
		delete(p.Headers, name)
	}
	return fits()
}

// Limits of amqp091-go, which closes the connection over larger headers.
const (
	maxFields       = 8192 // of one table
	maxDepth        = 32   // of nested tables
	maxAddedHeaders = 16   // headers that the broker may add
)

// isReadable reports whether the client can read headers with redeliver's additions and, if room is set, the
// broker's.
func isReadable(headers amqp091.Table, room int) bool {
	n := len(headers)
	if room > 0 {
		n += maxAddedHeaders
	}
	foreign, ok := headers[HeaderForeign].(amqp091.Table)
	return n <= maxFields && (!ok || depth(foreign) <= maxDepth)
}

// depth returns how deeply tables and arrays are nested.
func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case amqp091.Table:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	case []any:
		for _, item := range v {
			deepest = max(deepest, depth(item))
		}
	default:
		return 0
	}
	return deepest + 1
}

// frameOverhead is the size of a frame without its payload.
const frameOverhead = 8

// headerSize returns the size of a content header's payload as the client writes it.
func headerSize(p *amqp091.Publishing) int {
	n := 2 + 2 + 8 + 2 // class, weight, body size, flags
	for _, s := range shortTexts(p) {
		if s.value != "" {
			n += 1 + len(s.value)
		}
	}
	if p.DeliveryMode > 0 {
		n++
	}
	if p.Priority > 0 {
		n++
	}
	if !p.Timestamp.IsZero() {
		n += 8
	}
	if len(p.Headers) > 0 {
		n += tableSize(p.Headers)
	}
	return n
}

type shortText struct{ name, value string }

func shortTexts(p *amqp091.Publishing) [9]shortText {
	return [...]shortText{
		{"content type", p.ContentType}, {"content encoding", p.ContentEncoding}, {"correlation id", p.CorrelationId},
		{"reply-to", p.ReplyTo}, {"expiration", p.Expiration}, {"message id", p.MessageId}, {"type", p.Type},
		{"user-id", p.UserId}, {"app id", p.AppId},
	}
}

func tableSize(t amqp091.Table) int {
	n := 4
	for name, v := range t {
		n += 1 + len(name) + fieldSize(v)
	}
	return n
}

func fieldSize(v any) int {
	switch v := v.(type) {
	case nil:
		return 1
	case bool, byte, int8:
		return 2
	case int16, uint16:
		return 3
	case int, int32, uint32, float32:
		return 5
	case amqp091.Decimal:
		return 6
	case string:
		return 5 + len(v)
	case []byte:
		return 5 + len(v)
	case amqp091.Table:
		return 1 + tableSize(v)
	case []any:
		n := 5
		for _, item := range v {
			n += fieldSize(item)
		}
		return n
	default: // int64, float64, time.Time
		return 9
	}
}

// CheckWritable returns an error if a message cannot be published. The client or the broker would close the
// connection over it, with everything on it.
func CheckWritable(p *amqp091.Publishing, exchange, key string, frame int) error {
	texts := shortTexts(p)
	for _, s := range append(texts[:], shortText{"exchange", exchange}, shortText{"routing key", key}) {
		if len(s.value) > maxShort {
			return fmt.Errorf("its %s of %d bytes is too long: AMQP allows %d", s.name, len(s.value), maxShort)
		}
	}
	if err := checkKeys(p.Headers); err != nil {
		return err
	}
	for _, name := range copyHeaders {
		if v, ok := p.Headers[name]; ok {
			if _, list := v.([]any); !list {
				return fmt.Errorf("its header %s is not a list of routing keys, which the broker requires", name)
			}
		}
	}
	if len(p.Headers) > maxFields || depth(p.Headers) > maxDepth+1 {
		return fmt.Errorf("its %d headers, %d deep, are more than a Go client reads: %d, %d deep", len(p.Headers), depth(p.Headers), maxFields, maxDepth+1)
	}
	if size := headerSize(p); frame > 0 && size > frame-frameOverhead {
		return fmt.Errorf("its headers of %d bytes do not fit into a frame of %d", size, frame)
	}
	return nil
}

const maxShort = 255 // AMQP's limit for a property, a routing key and the name of a header, in bytes

func checkKeys(v any) error {
	switch v := v.(type) {
	case amqp091.Table:
		for name, item := range v {
			if len(name) > maxShort {
				return fmt.Errorf("its header %q... has a name of %d bytes: AMQP allows %d", limits.Cut(name, 40), len(name), maxShort)
			}
			if err := checkKeys(item); err != nil {
				return err
			}
		}
	case []any:
		for _, item := range v {
			if err := checkKeys(item); err != nil {
				return err
			}
		}
	}
	return nil
}
