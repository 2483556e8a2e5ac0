package redeliver

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Cut returns s as valid UTF-8 of at most most bytes, cut at a character.
func Cut(s string, most int) string {
	if len(s) > most {
		end := max(0, most)
		for end > 0 && end > most-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	return strings.ToValidUTF8(s, "?") // no longer than s: "?" is as short as what it replaces
}

var (
	// All that stands between a scheme and the last @ of the same word. An
	// escaped quote does not end it: net/url quotes the URLs it complains of.
	urlUser = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)((?:\\"|[^\s"])*)@`)
	// The names under which secrets travel in query strings and connection strings.
	urlSecret = regexp.MustCompile(`(?i)([?&;#](?:[a-z0-9_.-]*(?:password|passwd|pwd|secret|token|api[_-]?key|accesskey|signature|credential)|sig)=)[^&;\s"'<>]*`)
)

// hosts is an authority without a user: one host or several, each with or
// without a port.
var hosts = regexp.MustCompile(`^((\[[0-9a-fA-F:.%]+\]|[^][:@,]+)(:[0-9]+)?(,|$))*$`)

// redactUser takes the user parts out of what urlUser matched.
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
			continue // no user here, perhaps in a URL that stands in the path
		}
		user, host, ok := strings.Cut(authority, "@")
		if !ok || strings.Contains(user, ":") || !hosts.MatchString(host) {
			// Passwords hold @ / ? and # too, against the rules: only behind the
			// last @ is there nothing of them.
			return out.String() + "***@"
		}
		out.WriteString("***") // no password, so that the rest may stay
		rest = rest[len(user):]
	}
}

// RedactAddress is [Redact] for what should be an address and may be none: what
// stands before the last @ is hidden, whatever it is.
func RedactAddress(s string) string {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		s = "***" + s[at:]
	}
	return Redact(s)
}

// Redact removes the credentials of URLs from a text: the user part, and the
// query parameters that carry passwords, tokens, keys and signatures.
func Redact(s string) string {
	if strings.Contains(s, "://") {
		s = urlUser.ReplaceAllStringFunc(s, redactUser)
	}
	if strings.Contains(s, "=") {
		s = urlSecret.ReplaceAllString(s, "${1}***")
	}
	return s
}

// errorText is the text of err as it may stand in a header.
func (p *Policy) errorText(err error) string {
	if p.ErrorText != nil {
		return safeText(func() string { return p.ErrorText(err) })
	}
	text := safeText(err.Error)
	if p, ok := as[*PanicError](err); ok && p != nil {
		if place := p.place(); place != "" {
			place = " in " + place
			text = Cut(text, MaxErrorText-len(place)) + place
		}
	}
	return text
}

// safeText makes what a function of the user's says fit for headers and logs:
// short, valid, without credentials, and without the panic it may end in.
func safeText(say func() string) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprintf("the error's text panicked: %T", r)
		}
	}()
	text = say()
	// Cut generously first: redacting a megabyte costs more than it tells.
	if most := 4 * MaxErrorText; len(text) > most {
		text = Cut(text, most)
		// A URL that is cut before its @ does not look as if it had a password.
		word := strings.LastIndexAny(text, " \t\r\n") + 1
		if i := strings.Index(text[word:], "://"); i >= 0 {
			text = text[:word+i+len("://")]
		}
	}
	// A copy: a state must not keep the whole of a long text in memory.
	return strings.Clone(Cut(Redact(text), MaxErrorText))
}

// errorType names the first type in err's chain that says something: not the
// wrappers of package fmt, package errors, or this one.
func errorType(err error) string {
	for e := err; e != nil; {
		switch name := reflect.TypeOf(e).String(); name {
		case "*fmt.wrapError", "*redeliver.PermanentError", "*redeliver.RetryAfterError", "*redeliver.PostponeError":
			next := errors.Unwrap(e)
			if next == nil {
				return Cut(name, maxErrorType)
			}
			e = next
		case "*errors.joinError", "*fmt.wrapErrors", "*multierr.multiError":
			many, ok := e.(interface{ Unwrap() []error })
			if !ok || len(many.Unwrap()) == 0 || many.Unwrap()[0] == nil {
				return Cut(name, maxErrorType)
			}
			e = many.Unwrap()[0]
		default:
			return Cut(name, maxErrorType)
		}
	}
	return ""
}
