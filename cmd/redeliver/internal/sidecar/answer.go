package sidecar

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// StatusError reports that a handler has not handled its message.
type StatusError struct {
	Code int
	Text string // the beginning of the answer's body, or a reason
	// Unreachable says that the handler does not seem to be there: a gateway answered, or a wrong server.
	Unreachable bool
}

func (e *StatusError) Error() string {
	text := status(e.Code)
	if e.Text == "" {
		return "the handler answered " + text
	}
	return "the handler answered " + text + ": " + e.Text
}

// status formats a status code with its name, if it has one.
func status(code int) string {
	text := strconv.Itoa(code)
	if name := http.StatusText(code); name != "" {
		text += " " + name
	}
	return text
}

// pauseHeader requests a pause of the subscription, with the values of Retry-After.
const pauseHeader = "Redeliver-Pause"

// errorOfStatus returns the meaning of a status as an error. text is the beginning of the body.
func (s Statuses) errorOfStatus(code int, header http.Header, text string, now time.Time) error {
	err := &StatusError{Code: code, Text: text}
	switch s.ofHTTP(code, text) {
	case Ack:
		return nil
	case Reject:
		return redeliver.Permanent(err)
	case Unreachable:
		err.Unreachable = true
	case Retry:
	}
	switch {
	case code >= 300 && code < 400:
		// Redirects are not followed, because an answer must not choose where a message's body is sent.
		err.Text = "redirects are not followed; give the new URL with --http"
		if to := header.Get("Location"); to != "" {
			err.Text += fmt.Sprintf(" (it names %q)", limits.Cut(to, 200))
		}
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if d, ok := retryAfter(header.Get(pauseHeader), now); ok {
			return redeliver.Pause(err, d)
		}
		if d, ok := retryAfter(header.Get("Retry-After"), now); ok {
			return redeliver.RetryAfter(err, d)
		}
	}
	return err
}

// Classify is the [redeliver.Policy.Classify] of a sidecar. A 409 concerns only its message: no sign of an outage.
func Classify(err error) redeliver.Class {
	s, ok := errors.AsType[*StatusError](err)
	return redeliver.Class{MessageAtFault: ok && s.Code == http.StatusConflict, Unreachable: isUnreachable(err)}
}

// retryAfter parses a Retry-After value: seconds or an HTTP date. It returns false if the value is missing, past, or
// more than the maximum wait. Then the policy decides.
func retryAfter(text string, now time.Time) (time.Duration, bool) {
	text = strings.TrimSpace(text)
	var d time.Duration
	if seconds, err := strconv.ParseUint(text, 10, 63); err == nil {
		if seconds > uint64(redeliver.MaxWait/time.Second) {
			return 0, false
		}
		d = time.Duration(seconds) * time.Second
	} else {
		at, err := http.ParseTime(text)
		if err != nil {
			return 0, false
		}
		d = at.Sub(now)
	}
	return d, d > 0 && d <= redeliver.MaxWait
}

// maxText is the maximum number of bytes of a program's output in an error.
const maxText = 700

// firstWords returns the beginning of an answer's body as one line.
func firstWords(body []byte) string {
	text := strings.Join(strings.Fields(limits.Cut(string(body), 2*maxText)), " ")
	return limits.Cut(text, maxText)
}

// lastWords returns the end of a program's output as one line.
func lastWords(said []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(said), "?")), " ")
	if len(text) <= maxText {
		return text
	}
	return strings.TrimLeft(text[len(text)-maxText:], "\uFFFD") // the rest of a character
}
