package sidecar

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// StatusError is the answer of a handler that has not handled its message.
type StatusError struct {
	Code int
	Text string // the beginning of the answer's body, or its error
}

func (e *StatusError) Error() string {
	text := status(e.Code)
	if e.Text == "" {
		return "the handler answered " + text
	}
	return "the handler answered " + text + ": " + e.Text
}

// status is a code with its name, where it has one.
func status(code int) string {
	text := strconv.Itoa(code)
	if name := http.StatusText(code); name != "" {
		text += " " + name
	}
	return text
}

// pauseHeader asks for a pause of the subscription, with the values of Retry-After.
const pauseHeader = "Redeliver-Pause"

// verdict returns the meaning of a status. text is the beginning of the body.
func verdict(code int, header http.Header, text string, now time.Time) error {
	err := &StatusError{code, text}
	switch {
	case code >= 200 && code < 300:
		return nil
	case code >= 300 && code < 400:
		// Redirects are not followed: a message's body must not go wherever an answer sends it. Nothing is wrong
		// with the message.
		err.Text = "redirects are not followed; give the new URL with --http"
		if to := header.Get("Location"); to != "" {
			err.Text += fmt.Sprintf(" (it names %q)", limits.Cut(to, 200))
		}
		return err
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		if d, ok := retryAfter(header.Get(pauseHeader), now); ok {
			return redeliver.Pause(err, d)
		}
		if d, ok := retryAfter(header.Get("Retry-After"), now); ok {
			return redeliver.RetryAfter(err, d)
		}
		return err
	case code == http.StatusRequestTimeout, code == http.StatusConflict, code == http.StatusTooEarly:
		return err
	case code == http.StatusRequestHeaderFieldsTooLarge: // which are ours, for the most part
		return err
	case code >= 400 && code < 500:
		return redeliver.Permanent(err)
	default:
		return err
	}
}

// misplaced reports whether an answer may be about where and how it is posted rather than
// about the message: a wrong path, no rights, or http:// to a port that speaks TLS.
func misplaced(code int, text string) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		return true
	case http.StatusBadRequest:
		text = strings.ToLower(text)
		return slices.ContainsFunc(plainToTLS, func(said string) bool { return strings.Contains(text, said) })
	default:
		return false
	}
}

// plainToTLS are what servers say of http:// to a port that speaks TLS, in small
// letters: those in Go, nginx, Apache.
var plainToTLS = []string{"http request to an https server", "http request was sent to https port", "plain http to an ssl-enabled server port"}

// retryAfter reads a Retry-After: seconds, or an HTTP date. It is not ok where there
// is none, where it is over, and where it is beyond all that is ever waited for: then
// the policy decides.
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

// maxText is how much of a program's output goes into an error, in bytes.
const maxText = 700

// firstWords is the beginning of an answer's body as one line.
func firstWords(body []byte) string {
	text := strings.Join(strings.Fields(limits.Cut(string(body), 2*maxText)), " ")
	return limits.Cut(text, maxText)
}

// lastWords is the end of a program's output as one line.
func lastWords(said []byte) string {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(said), "?")), " ")
	if len(text) <= maxText {
		return text
	}
	return strings.TrimLeft(text[len(text)-maxText:], "\uFFFD") // the rest of a character
}
