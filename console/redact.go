package console

import (
	"bytes"
	"fmt"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/errortext"
)

// Redactor decides what is shown of a part of a message. It returns the bytes to show, which may be the part's own. If
// it returns an error or panics, nothing of the part is shown. It must be quick and safe for concurrent use, and must
// not modify its argument.
//
// A Redactor does not affect searches: a search by key, header or error reads the original. Users who must not find it
// need the role [Viewer].
type Redactor func(Part) ([]byte, error)

// Part is a key, a body, a header or an error of a message.
type Part struct {
	Kind PartKind
	// Name is the header's name, empty for other parts.
	Name  string
	Value []byte
	// DLQ is the message's DLQ. Headers are all headers of the message, nil if they are unknown.
	DLQ     deadletter.Info
	Headers []deadletter.Header
}

// PartKind is a kind of part.
type PartKind string

// The kinds of parts.
const (
	PartBody   PartKind = "body"
	PartKey    PartKind = "key"
	PartHeader PartKind = "header"
	// PartError is the text of an error, and any other text that may quote a message: the reason of a refusal, the
	// description of a task, the text of a search, or the response of a broker.
	PartError PartKind = "error"
)

// hiddenText is the placeholder for a hidden part.
const hiddenText = "[hidden]"

// redact returns what may be shown of a part, and whether that is all of it.
func (svc *service) redact(p Part) (value []byte, whole bool) {
	if svc.cfg.Redact == nil || p.Value == nil {
		return p.Value, true
	}
	all := p.Value
	p.Value = bytes.Clone(p.Value) // a redactor must not modify the broker's bytes
	err := catchPanic("redactor", func() (err error) {
		value, err = svc.cfg.Redact(p)
		return err
	})
	if err != nil {
		return []byte(hiddenText), false
	}
	return value, bytes.Equal(value, all)
}

// catchPanic calls a function of the service that uses the console, and returns a panic as an error.
func catchPanic(who string, theirs func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the %s panicked: %v", who, v)
		}
	}()
	return theirs()
}

// redactQuotation returns what a user may see of a text that may quote a message. A viewer sees none of it.
func (svc *service) redactQuotation(who Actor, info deadletter.Info, text string) string {
	if text != "" && who.Role < RoleReader {
		return hiddenText
	}
	return svc.redactErrorText(who, info, nil, text)
}

// redactFilter returns what a user may see of a filter, which may quote messages.
func (svc *service) redactFilter(who Actor, info deadletter.Info, f *deadletter.Filter) deadletter.Filter {
	shown := *f
	if who.Role < RoleReader {
		if f.Key != nil {
			shown.Key = []byte(hiddenText)
		}
		if len(f.Headers) > 0 {
			shown.Headers = map[string]string{hiddenText: hiddenText}
		}
	} else if svc.cfg.Redact != nil {
		shown.Key, _ = svc.redact(Part{Kind: PartKey, Value: f.Key, DLQ: info})
		shown.Headers = make(map[string]string, len(f.Headers))
		for name, value := range f.Headers {
			v, _ := svc.redact(Part{Kind: PartHeader, Name: name, Value: []byte(value), DLQ: info})
			shown.Headers[name] = string(v)
		}
	}
	shown.ErrorText = svc.redactQuotation(who, info, f.ErrorText)
	return shown
}

// redactError returns the text of an error as a user may see it.
func (svc *service) redactError(who Actor, info deadletter.Info, err error) string {
	return svc.redactErrorText(who, info, nil, redeliver.Redact(err.Error()))
}

// redactErrorFor is redactError for the DLQ that a request names, which may not exist.
func (svc *service) redactErrorFor(who Actor, key string, err error) string {
	q, here, unknown := svc.findQueue(who, key)
	if unknown != nil {
		return svc.redactError(who.withLowestRole(), deadletter.Info{}, err)
	}
	return svc.redactError(here, q.info, err)
}

// redactErrorText returns the text of an error as a user may see it.
func (svc *service) redactErrorText(who Actor, info deadletter.Info, headers []deadletter.Header, text string) string {
	if text == "" {
		return ""
	}
	shown, _ := svc.redact(Part{Kind: PartError, Value: []byte(text), DLQ: info, Headers: headers})
	if who.Role < RoleReader {
		return errortext.Normalise(string(shown))
	}
	return string(shown)
}
