package wire

import (
	"fmt"
	"strconv"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/statekeys"
)

// These headers replace properties and headers that must not be republished. Package amqp documents each.
const (
	HeaderExchange     = "redeliver-amqp-exchange"
	HeaderRoutingKey   = "redeliver-amqp-routing-key"
	HeaderExpiration   = "redeliver-amqp-expiration"
	HeaderPriority     = "redeliver-amqp-priority"
	HeaderUserID       = "redeliver-amqp-user-id"
	HeaderCC           = "redeliver-amqp-cc"
	HeaderBCC          = "redeliver-amqp-bcc"
	HeaderReplyTo      = "redeliver-amqp-reply-to"
	HeaderDeliveryMode = "redeliver-amqp-delivery-mode"
	HeaderForeign      = "redeliver-amqp-foreign"
	HeaderRaw          = "redeliver-amqp-raw"
	HeaderUntil        = "redeliver-amqp-until"
	HeaderMAC          = "redeliver-amqp-mac"
)

// headerCopies is how often a message was rewritten to the retry queue because it came back often.
const headerCopies = "redeliver-amqp-copies"

// HeaderPart is the number of a part in the DLQ and the number of all parts, such as 2/3, if a body was too large.
const HeaderPart = "redeliver-amqp-part"

const directReplyTo = "amq.rabbitmq.reply-to"

// copyHeaders maps redeliver's headers to the headers CC and BCC that they replace.
var copyHeaders = map[string]string{HeaderCC: "CC", HeaderBCC: "BCC"}

// IsBrokerHeader reports whether the broker writes a header. redeliver reads such headers and never republishes them:
// an x-death that names the target of a dead-lettering counts as a cycle.
func IsBrokerHeader(name string) bool {
	switch name {
	case "x-death", "x-delivery-count", "x-acquired-count":
		return true
	default:
		return strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
	}
}

// usualHeaders is how many of redeliver's headers a waiting message has. With room for these and one more, a map is
// half as large as the next size.
const usualHeaders = 13

// PlainCopy returns the message as its publisher made it, without the broker's headers.
func PlainCopy(d *amqp091.Delivery) amqp091.Publishing {
	p := amqp091.Publishing{
		Headers:     make(amqp091.Table, len(d.Headers)+usualHeaders),
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode, Priority: d.Priority,
		CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration, MessageId: d.MessageId, Timestamp: d.Timestamp,
		Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}
	for name, v := range d.Headers {
		if !IsBrokerHeader(name) {
			p.Headers[name] = v
		}
	}
	return p
}

// DeliveryOf returns the delivery that a consumer would get of a publishing.
func DeliveryOf(p amqp091.Publishing, exchange, key string) amqp091.Delivery {
	return amqp091.Delivery{
		Headers: p.Headers, ContentType: p.ContentType, ContentEncoding: p.ContentEncoding, DeliveryMode: p.DeliveryMode,
		Priority: p.Priority, CorrelationId: p.CorrelationId, ReplyTo: p.ReplyTo, Expiration: p.Expiration, MessageId: p.MessageId,
		Timestamp: p.Timestamp, Type: p.Type, UserId: p.UserId, AppId: p.AppId, Exchange: exchange, RoutingKey: key, Body: p.Body,
	}
}

// queueCopy returns a copy for one of redeliver's queues: persistent, without the properties that would end its wait
// early or that the broker would refuse, and without a priority. Since RabbitMQ 4.0 a quorum queue delivers, and expires,
// messages with a priority first. But a level expires its messages in the order of their due times, and a scan of a DLQ
// counts on reading older messages first.
func queueCopy(d *amqp091.Delivery) amqp091.Publishing {
	p := PlainCopy(d)
	p.DeliveryMode, p.Expiration, p.UserId, p.Priority = amqp091.Persistent, "", "", 0
	return p
}

// setPriority keeps the priority of a message in a header of its copy.
func setPriority(p *amqp091.Publishing, priority uint8) {
	if priority > 0 {
		p.Headers[HeaderPriority] = strconv.Itoa(int(priority))
	}
}

// Publishing returns the message for one of redeliver's queues: the user's body, properties and headers, and
// redeliver's headers if st is not nil.
func (r *Record) Publishing(st *redeliver.State) amqp091.Publishing {
	d := r.Own()
	p := queueCopy(d)
	var foreign amqp091.Table
	for name, v := range d.Headers {
		if strings.HasPrefix(name, redeliver.HeaderPrefix) {
			if foreign == nil {
				foreign = make(amqp091.Table)
			}
			foreign[name] = v
			delete(p.Headers, name)
		}
	}
	for ours, name := range copyHeaders {
		if v, ok := p.Headers[name]; ok {
			p.Headers[ours] = v
			delete(p.Headers, name)
		}
	}
	if len(foreign) > 0 {
		p.Headers[HeaderForeign] = foreign
	}
	set := func(name, value string) {
		if value != "" {
			p.Headers[name] = value
		}
	}
	set(HeaderExpiration, d.Expiration)
	set(HeaderUserID, d.UserId)
	set(HeaderPart, r.Part)
	setPriority(&p, d.Priority)
	if d.ReplyTo == directReplyTo {
		p.ReplyTo, p.Headers[HeaderReplyTo] = "", d.ReplyTo
	}
	if d.DeliveryMode != amqp091.Persistent {
		p.Headers[HeaderDeliveryMode] = strconv.Itoa(int(d.DeliveryMode))
	}
	if st != nil && len(r.Keys) > 0 {
		p.Headers[HeaderMAC] = strings.Repeat("=", statekeys.Size) // reserves its size until all headers are set
	}
	p.Headers[HeaderExchange] = d.Exchange // also for the default exchange, which is ""
	p.Headers[HeaderRoutingKey] = d.RoutingKey
	if st != nil {
		for name, value := range driver.StateHeaders(st) {
			p.Headers[name] = string(value)
		}
	}
	return p
}

// RestoreOriginal removes redeliver's headers from a delivery of one of its queues and restores what they replace. It
// returns them as text, with findings for those that are not text.
func RestoreOriginal(d *amqp091.Delivery) (ours []driver.Header, findings []redeliver.Finding) {
	theirs := 0
	for name := range d.Headers {
		if !strings.HasPrefix(name, redeliver.HeaderPrefix) {
			theirs++
		}
	}
	headers := make(amqp091.Table, theirs)
	ours = make([]driver.Header, 0, len(d.Headers)-theirs)
	for name, v := range d.Headers {
		switch {
		case IsBrokerHeader(name):
		case !strings.HasPrefix(name, redeliver.HeaderPrefix):
			headers[name] = v
		case copyHeaders[name] != "":
			headers[copyHeaders[name]] = v
		case strings.HasPrefix(name, "redeliver-amqp-"):
		default:
			text, ok := TextOf(v)
			if !ok {
				findings = redeliver.AppendFinding(findings, redeliver.Finding{Header: name, Value: fmt.Sprintf("%T", v), Problem: "is not text; it is ignored"})
				continue
			}
			ours = append(ours, driver.Header{Name: name, Value: text})
		}
	}
	text := func(name string) string { s, _ := d.Headers[name].(string); return s }
	if foreign, ok := d.Headers[HeaderForeign].(amqp091.Table); ok {
		for name, v := range foreign {
			if strings.HasPrefix(name, redeliver.HeaderPrefix) {
				headers[name] = v
			}
		}
	}
	if _, ours := d.Headers[HeaderRoutingKey]; ours {
		// These headers mark a message that redeliver wrote. Any other delivery here is its own original.
		d.Exchange, d.RoutingKey = text(HeaderExchange), text(HeaderRoutingKey)
		d.Expiration, d.UserId = text(HeaderExpiration), text(HeaderUserID)
		if reply := text(HeaderReplyTo); reply != "" {
			d.ReplyTo = reply
		}
		if priority, err := strconv.ParseUint(text(HeaderPriority), 10, 8); err == nil { // copies of older versions have the property
			d.Priority = uint8(priority)
		}
		if mode, err := strconv.ParseUint(text(HeaderDeliveryMode), 10, 8); err == nil {
			d.DeliveryMode = uint8(mode)
		}
	}
	if len(headers) == 0 {
		headers = nil
	}
	d.Headers = headers
	return ours, findings
}

// ForeignHeaders reports every header with a name of redeliver's.
func ForeignHeaders(headers amqp091.Table, problem string) []redeliver.Finding {
	var found []redeliver.Finding
	for name, v := range headers {
		if strings.HasPrefix(name, redeliver.HeaderPrefix) {
			text, ok := TextOf(v)
			if !ok {
				text = fmt.Sprintf("%T", v)
			}
			found = engine.AppendForeignHeader(found, name, text, problem)
		}
	}
	return found
}
