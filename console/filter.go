package console

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/bytetext"
	"github.com/redeliver/redeliver/internal/limits"
)

// The names of the filter's parameters in addresses and forms.
const (
	pFingerprint = "fp"
	pID          = "id"
	pAt          = "at"
	pKey         = "key"
	pHeader      = "header"
	pValue       = "value"
	pAfter       = "after"
	pBefore      = "before"
	pReason      = "reason"
	pType        = "type"
	pText        = "text"
	pBody        = "body"   // in the form of an edit it is the new body
	pChosen      = "chosen" // set by a list with checkboxes
)

const (
	// maxParam is the maximum length of one filter value in bytes, maxParams the maximum number of values per
	// parameter.
	maxParam  = 1024
	maxParams = maxRows
	// localTime is the format in which a browser writes a time. It is read as UTC.
	localTime = "2006-01-02T15:04"
)

// inputError is an invalid value in an address or a form.
type inputError struct{ text string }

func (e *inputError) Error() string { return e.text }

func invalidInput(format string, args ...any) error { return &inputError{fmt.Sprintf(format, args...)} }

// parseForm parses a form. It returns an inputError if the form is malformed.
func parseForm(r *http.Request) error {
	err := r.ParseForm()
	if _, large := errors.AsType[*http.MaxBytesError](err); err == nil || large {
		return err
	}
	return invalidInput("the form cannot be read: %v", err)
}

// readFilter parses a filter from an address or a form.
func readFilter(v url.Values) (f deadletter.Filter, err error) {
	for name, values := range v {
		if slices.ContainsFunc(values, func(s string) bool { return len(s) > maxParam }) && filterParam(name) {
			return f, invalidInput("%s is longer than %d bytes", name, maxParam)
		}
		if len(values) > maxParams && filterParam(name) {
			return f, invalidInput("%s is listed more than %d times", name, maxParams)
		}
	}
	f.Fingerprints, f.IDs = nonEmpty(v[pFingerprint]), nonEmpty(v[pID])
	for _, p := range nonEmpty(v[pAt]) {
		f.Positions = append(f.Positions, deadletter.Position(p))
	}
	if v.Get(pChosen) != "" && len(f.Positions) == 0 {
		return f, invalidInput("no message was chosen") // an empty selection must not mean all messages
	}
	for _, r := range nonEmpty(v[pReason]) {
		f.Reasons = append(f.Reasons, redeliver.Reason(r))
	}
	f.ErrorType, f.ErrorText = v.Get(pType), v.Get(pText)
	f.BodyText = v.Get(pBody)
	if s := v.Get(pKey); s != "" {
		if f.Key, err = bytetext.Parse(s); err != nil {
			return f, invalidInput("the key: %v", err)
		}
	}
	for i, name := range v[pHeader] {
		if name == "" {
			continue
		}
		if i >= len(v[pValue]) {
			return f, invalidInput("the header %s has no value", name)
		}
		rawName, err1 := bytetext.Parse(name)
		value, err2 := bytetext.Parse(v[pValue][i])
		if err := errors.Join(err1, err2); err != nil {
			return f, invalidInput("the header %s: %v", name, err)
		}
		if f.Headers == nil {
			f.Headers = make(deadletter.HeaderValues)
		}
		f.Headers[string(rawName)] = string(value)
	}
	if f.After, err = readTime(pAfter, v.Get(pAfter)); err == nil {
		f.Before, err = readTime(pBefore, v.Get(pBefore))
	}
	if err == nil && !f.After.IsZero() && !f.Before.IsZero() && !f.After.Before(f.Before) {
		err = invalidInput("the end of the period must be after its beginning")
	}
	return f, err
}

func filterParam(name string) bool {
	return slices.Contains([]string{pFingerprint, pID, pAt, pKey, pHeader, pValue, pAfter, pBefore, pReason, pType, pText, pBody}, name)
}

func nonEmpty(values []string) (out []string) {
	for _, v := range values {
		if v != "" {
			out = append(out, v)
		}
	}
	return out
}

func readTime(name, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.RFC3339Nano, localTime + ":05", localTime} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, invalidInput("%s is %q, and must be a moment like 2006-01-02T15:04", name, s)
}

// writeFilter is the inverse of readFilter.
func writeFilter(v url.Values, f *deadletter.Filter) {
	set := func(name string, values ...string) {
		for _, s := range values {
			if s != "" {
				v.Add(name, s)
			}
		}
	}
	set(pFingerprint, f.Fingerprints...)
	set(pID, f.IDs...)
	for _, p := range f.Positions {
		set(pAt, string(p))
	}
	for _, r := range f.Reasons {
		set(pReason, string(r))
	}
	set(pType, f.ErrorType)
	set(pText, f.ErrorText)
	set(pBody, f.BodyText)
	if f.Key != nil {
		set(pKey, bytetext.Format(f.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		set(pHeader, bytetext.Format([]byte(name)))
		set(pValue, bytetext.Format([]byte(f.Headers[name])))
	}
	if !f.After.IsZero() {
		set(pAfter, f.After.Format(time.RFC3339Nano))
	}
	if !f.Before.IsZero() {
		set(pBefore, f.Before.Format(time.RFC3339Nano))
	}
}

// address returns the relative address of a page about a DLQ.
func address(page, key string, f *deadletter.Filter, more ...string) string {
	v := url.Values{"dlq": {key}}
	if f != nil {
		writeFilter(v, f)
	}
	for i := 0; i+1 < len(more); i += 2 {
		if more[i+1] != "" {
			v.Set(more[i], more[i+1])
		}
	}
	return page + "?" + v.Encode()
}

// describe is describeFilter with the errors of the causes instead of their fingerprints. The messages of a task's causes may
// be gone from the DLQ.
func (o *overview) describe(f *deadletter.Filter, causes ...deadletter.Cause) (parts []string) {
	for _, fingerprint := range f.Fingerprints {
		if i := slices.IndexFunc(causes, func(c deadletter.Cause) bool { return c.Fingerprint == fingerprint }); i >= 0 {
			parts = append(parts, "cause: "+limits.CutMiddle(causes[i].Error, maxCauseText))
			continue
		}
		i := slices.IndexFunc(o.Summary.Groups, func(g deadletter.Group) bool { return g.Fingerprint == fingerprint })
		switch {
		case i < 0:
			parts = append(parts, "cause "+fingerprint+" (not in the DLQ when it was last read)")
		case o.Summary.Groups[i].Error == "":
			parts = append(parts, "no error was recorded")
		default:
			parts = append(parts, "cause: "+limits.CutMiddle(o.Summary.Groups[i].Error, maxCauseText))
		}
	}
	others := *f
	others.Fingerprints = nil
	return append(parts, describeFilter(&others)...)
}

// maxCauseText bounds the bytes of an error in the description of a filter.
const maxCauseText = 120

// describeFilter describes a filter in words, with one string per condition.
func describeFilter(f *deadletter.Filter) (parts []string) {
	list := func(what string, values []string) {
		if len(values) > 0 {
			parts = append(parts, what+" "+strings.Join(values, ", "))
		}
	}
	list("cause", f.Fingerprints)
	list("id", f.IDs)
	var at, reasons []string
	for _, p := range f.Positions {
		at = append(at, string(p))
	}
	for _, r := range f.Reasons {
		reasons = append(reasons, string(r))
	}
	list("position", at)
	list("reason", reasons)
	if f.Key != nil {
		parts = append(parts, "key "+bytetext.Format(f.Key))
	}
	for _, name := range slices.Sorted(maps.Keys(f.Headers)) {
		parts = append(parts, fmt.Sprintf("header %s: %s", bytetext.Format([]byte(name)), bytetext.Format([]byte(f.Headers[name]))))
	}
	if f.ErrorType != "" {
		parts = append(parts, "error type "+f.ErrorType)
	}
	if f.ErrorText != "" {
		parts = append(parts, "error text with "+f.ErrorText)
	}
	if f.BodyText != "" {
		parts = append(parts, "body with "+f.BodyText)
	}
	if !f.After.IsZero() {
		parts = append(parts, "failed from "+f.After.Format(time.DateTime)+" UTC")
	}
	if !f.Before.IsZero() {
		parts = append(parts, "failed before "+f.Before.Format(time.DateTime)+" UTC")
	}
	return parts
}

// readNumber parses a bounded number from an address or a form.
func readNumber(v url.Values, name string, byDefault, minValue, maxValue int) (int, error) {
	s := v.Get(name)
	if s == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < minValue || n > maxValue {
		return 0, invalidInput("%s is %q, and must be a number from %d to %d", name, s, minValue, maxValue)
	}
	return n, nil
}
