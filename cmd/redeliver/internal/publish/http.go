package publish

import (
	"crypto/hmac"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
)

// Path is the pattern of the URL.
const Path = "POST /v1/topics/{topic}"

// maxBody is the maximum size of a body in bytes.
const maxBody = 16 << 20

// Server serves [Path].
type Server struct {
	// Find returns where a message for a topic goes.
	Find func(topic string) (Target, error)
	// Token is required in the header Authorization, as Bearer TOKEN. Empty for none.
	Token string
}

// The fields of a request. Those of the message's own headers have a prefix, as in posts to handlers.
const (
	fieldPrefix = "Redeliver-"
	ownPrefix   = "Redeliver-Header-"
	eventPrefix = "Ce-"
)

// answer is the body of the answer to a message that was published.
type answer struct {
	ID    string `json:"id"`
	Topic string `json:"topic"`
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	code, err := s.serve(w, r)
	if err == nil {
		return
	}
	if code == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Connection", "close") // the body may not have been read
	http.Error(w, redeliver.Redact(err.Error()), code)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) (code int, _ error) {
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	switch {
	case s.Token != "" && !hmac.Equal([]byte(given), []byte(s.Token)):
		return http.StatusUnauthorized, errors.New("the header Authorization must be Bearer and the token")
	case s.Token == "" && (r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""):
		// Any page may make a browser send requests to this host.
		return http.StatusForbidden, errors.New("requests of browsers are refused without a token")
	}
	m, err := parse(r)
	if err != nil {
		return http.StatusBadRequest, err
	}
	if m.Body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody)); err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return http.StatusRequestEntityTooLarge, fmt.Errorf("the body is larger than %d bytes", maxBody)
		}
		return http.StatusBadRequest, fmt.Errorf("the body cannot be read: %w", err)
	}
	to, err := s.Find(m.Topic)
	if err != nil {
		return http.StatusNotFound, err
	}
	id, err := to.Publish(m)
	if _, ok := errors.AsType[*InvalidError](err); ok {
		return http.StatusBadRequest, err
	}
	if err != nil {
		return http.StatusServiceUnavailable, fmt.Errorf("the broker has not confirmed message %s, and may have it all the same; publish it again with this id: %w", m.ID, err)
	}
	w.Header().Set("Content-Type", "application/json")
	return http.StatusOK, json.NewEncoder(w).Encode(answer{id, m.Topic})
}

// parse returns the message of a request, without its body.
func parse(r *http.Request) (*Message, error) {
	m := &Message{Topic: r.PathValue("topic"), ContentType: r.Header.Get("Content-Type"), Headers: make(map[string]string)}
	for name, values := range r.Header {
		if name == "Traceparent" || name == "Tracestate" {
			m.Headers[strings.ToLower(name)] = strings.Join(values, ",")
			continue
		}
		if !strings.HasPrefix(name, fieldPrefix) && !strings.HasPrefix(name, eventPrefix) {
			continue
		}
		value, err := url.PathUnescape(values[len(values)-1])
		if err != nil {
			return nil, fmt.Errorf("the header %s: its value must be percent-encoded, with %%25 for a percent sign", name)
		}
		switch {
		case strings.HasPrefix(name, ownPrefix):
			// Names in HTTP have no case.
			own, err := url.PathUnescape(strings.ToLower(strings.TrimPrefix(name, ownPrefix)))
			if err != nil {
				return nil, fmt.Errorf("the header %s: its name must be percent-encoded", name)
			}
			m.Headers[own] = value
		case strings.HasPrefix(name, eventPrefix):
			if m.Attributes == nil {
				m.Attributes = make(map[string]string)
			}
			m.Attributes[strings.ToLower(strings.TrimPrefix(name, eventPrefix))] = value
		default:
			if err := m.set(name, value); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// set sets the field of a message that a header of a request has.
func (m *Message) set(name, value string) (err error) {
	switch strings.TrimPrefix(name, fieldPrefix) {
	case "Id":
		m.ID = value
	case "Key":
		m.Key = []byte(value)
	case "Delay":
		if m.Delay, err = time.ParseDuration(value); err != nil {
			return fmt.Errorf("%s must be a duration, such as 90s or 1h30m", name)
		}
	case "Expires":
		m.Expires, err = ParseExpires(value, time.Now())
		return err
	case "Null":
		if m.Null = value == "true"; !m.Null && value != "false" {
			return fmt.Errorf("%s must be true or false", name)
		}
	default:
		return fmt.Errorf("%s is no header of a message: there are Redeliver-Id, -Key, -Delay, -Expires, -Null and -Header-NAME", name)
	}
	return nil
}

// ParseExpires parses the time at which a message expires: a duration from now, or an RFC 3339 time.
func ParseExpires(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return now.Add(d), nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the expiry is %q: must be a duration, such as 1h, or a time, such as 2026-01-31T12:00:00Z", text)
	}
	return t, nil
}
