package sidecar

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Meaning is what a status of the handler means for its message.
type Meaning string

// The meanings. A failure by which the handler does not seem to be there is an answer about the way to the handler: a gateway
// answers in its place, a route is missing, or a login has expired. See [redeliver.Class.Unreachable].
const (
	Ack         Meaning = "ack"         // it is done
	Retry       Meaning = "retry"       // the policy decides
	Reject      Meaning = "reject"      // it goes to the DLQ
	Unreachable Meaning = "unreachable" // the handler does not seem to be there
)

// Statuses are the meanings of single statuses, HTTP's or a command's, that differ from the default.
type Statuses map[int]Meaning

// ParseStatuses parses CODE=MEANING for the statuses of HTTP, or of a command.
func ParseStatuses(all []string, command bool) (Statuses, error) {
	if len(all) == 0 {
		return nil, nil
	}
	least, most := 300, 599
	if command {
		least, most = 1, 255
	}
	s := make(Statuses)
	for _, text := range all {
		code, meaning, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(code)
		switch m := Meaning(meaning); {
		case err != nil || !slices.Contains([]Meaning{Ack, Retry, Reject, Unreachable}, m):
			return nil, fmt.Errorf("%q: must be CODE=MEANING, as in 404=reject, and MEANING is ack, retry, reject or unreachable", text)
		case !command && n >= 200 && n < 300:
			return nil, fmt.Errorf("%q: 2xx always means ack", text)
		case n < least || n > most:
			return nil, fmt.Errorf("%q: CODE must be from %d to %d", text, least, most)
		case s[n] != "":
			return nil, fmt.Errorf("%q: %d is given twice", text, n)
		default:
			s[n] = m
		}
	}
	return s, nil
}

// ofHTTP returns the meaning of a status. text is the beginning of the body.
func (s Statuses) ofHTTP(code int, text string) Meaning {
	switch m := s[code]; {
	case m != "":
		return m
	case code >= 200 && code < 300:
		return Ack
	case isAboutTheWay(code):
		return Unreachable
	}
	switch code {
	case http.StatusBadRequest:
		text = strings.ToLower(text)
		if slices.ContainsFunc(plainToTLS, func(said string) bool { return strings.Contains(text, said) }) {
			return Unreachable
		}
		return Reject
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
		http.StatusRequestHeaderFieldsTooLarge: // most of the fields are ours
		return Retry
	}
	if code >= 400 && code < 500 {
		return Reject
	}
	return Retry
}

// isAboutTheWay reports whether a status is probably about the way to a server, not about what was sent.
func isAboutTheWay(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusProxyAuthRequired,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return code >= 300 && code < 400
	}
}

// plainToTLS are the responses of servers to http:// on a TLS port, in lower case: Go, nginx, Apache.
var plainToTLS = []string{"http request to an https server", "http request was sent to https port", "plain http to an ssl-enabled server port"}

// ofCommand returns the meaning of an exit status, or of -1 for a signal.
func (s Statuses) ofCommand(code int) Meaning {
	if m := s[code]; m != "" {
		return m
	}
	switch code {
	case 0:
		return Ack
	case statusData:
		return Reject
	case statusNotExecutable, statusNotFound:
		return Unreachable
	default:
		return Retry
	}
}

// The exit statuses that are not retried, such as 75, EX_TEMPFAIL. A shell, env, nice and timeout end with 126 and 127 if they
// cannot run their command.
const (
	statusData          = 65 // EX_DATAERR
	statusNotExecutable = 126
	statusNotFound      = 127
)

// isUnreachable reports whether an error says that the handler does not seem to be there.
func isUnreachable(err error) bool {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Unreachable
	}
	if e, ok := errors.AsType[*ExitError](err); ok {
		return e.Unreachable
	}
	_, unreached := errors.AsType[*UnreachedError](err)
	return unreached
}
