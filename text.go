package redeliver

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/redeliver/redeliver/internal/limits"
)

var (
	// urlUser matches from the scheme of a URL to the last @ of the same word. An escaped quote does not end the word, because
	// net/url quotes URLs in its errors.
	urlUser = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)((?:\\"|[^\s"])*)@`)
	// urlSecret matches parameters of query strings and connection strings whose names are those of secrets.
	urlSecret = regexp.MustCompile(`(?i)([?&;#](?:[a-z0-9_.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|accesskey|signature|credential)|sig)=)[^&;\s"'<>]*`)
)

// hosts matches an authority without a user: one host or several, each with or without a port.
var hosts = regexp.MustCompile(`^((\[[0-9a-fA-F:.%]+\]|[^][:@,]+)(:[0-9]+)?(,|$))*$`)

// redactUser removes the user parts from a match of urlUser.
func redactUser(match string) string {
	var out strings.Builder
	rest := match
	for {
		at := strings.Index(rest, "://")
		if at < 0 {
			return out.String() + rest
		}
		at += len("://")
		out.WriteString(rest[:at])
		rest = rest[at:]
		authority := rest
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			authority = rest[:i]
		}
		if hosts.MatchString(authority) {
			continue // no user here, but perhaps in a URL in the path
		}
		user, host, ok := strings.Cut(authority, "@")
		if !ok || strings.Contains(user, ":") || !hosts.MatchString(host) {
			// Passwords may contain @ / ? and #, although the rules forbid that: only the text after the last @ is
			// safe.
			return out.String() + "***@"
		}
		out.WriteString("***") // a user without a password: the rest is safe
		rest = rest[len(user):]
	}
}

// RedactAddress is [Redact] for a text that should be an address but may not be one: it hides everything before the
// last @.
func RedactAddress(s string) string {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		s = "***" + s[at:]
	}
	return Redact(s)
}

// Redact removes the credentials of URLs from a text: the user part, and the query parameters with passwords, tokens, keys and
// signatures.
func Redact(s string) string {
	if strings.Contains(s, "://") {
		s = urlUser.ReplaceAllStringFunc(s, redactUser)
	}
	if strings.Contains(s, "=") {
		s = urlSecret.ReplaceAllString(s, "${1}***")
	}
	return s
}

// errorText returns the text of err for headers.
func (p *Policy) errorText(err error) string {
	if p.ErrorText != nil {
		return safeText(func() string { return p.ErrorText(err) })
	}
	text := safeText(err.Error)
	if !is(err, ErrPanic) { // errors.As allocates
		return text
	}
	if p, ok := as[*PanicError](err); ok && p != nil {
		if place := p.panicPlace(); place != "" {
			place = " in " + place
			text = limits.CutMiddle(text, limits.MaxErrorText-len(place)) + place
		}
	}
	return text
}

// safeText returns the result of a user's function in a form that headers and logs can have: short, valid and without credentials.
// It catches a panic.
func safeText(user func() string) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("the error's text panicked: %T", r)
		}
	}()
	text = user()
	// Cut a long text before it is redacted, which is slow.
	if maxBytes := 4 * limits.MaxErrorText; len(text) > maxBytes {
		text = limits.Cut(text, maxBytes)
		// A URL that is cut before its @ would not be recognised as one with a password.
		word := strings.LastIndexAny(text, " \t\r\n") + 1
		if i := strings.Index(text[word:], "://"); i >= 0 {
			text = text[:word+i+len("://")]
		}
	}
	// Return a copy, so that a state does not keep a long text in memory.
	return strings.Clone(limits.CutMiddle(Redact(text), limits.MaxErrorText))
}

// errorType names the first type in err's chain that is not a wrapper of package fmt, package errors, or this one.
func errorType(err error) string {
	for e := err; e != nil; {
		switch name := reflect.TypeOf(e).String(); name {
		case "*fmt.wrapError", "*redeliver.permanentError", "*redeliver.RetryAfterError", "*redeliver.postponeError", "*redeliver.PauseError":
			next := errors.Unwrap(e)
			if next == nil {
				return limits.Cut(name, limits.MaxErrorType)
			}
			e = next
		case "*errors.joinError", "*fmt.wrapErrors", "*multierr.multiError":
			many, ok := e.(interface{ Unwrap() []error })
			if !ok || len(many.Unwrap()) == 0 || many.Unwrap()[0] == nil {
				return limits.Cut(name, limits.MaxErrorType)
			}
			e = many.Unwrap()[0]
		default:
			return limits.Cut(name, limits.MaxErrorType)
		}
	}
	return ""
}
