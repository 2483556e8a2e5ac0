package redeliver

import "strings"

// isTraceparent reports whether s is a traceparent of version 00 (https://www.w3.org/TR/trace-context/):
// 00-<trace id>-<span id>-<flags>, in lower-case hexadecimal digits.
func isTraceparent(s string) bool {
	return len(s) == 55 && s[:3] == "00-" && isTraceID(s[3:35]) && s[35] == '-' && isTraceID(s[36:52]) && s[52] == '-' && isHex(s[53:])
}

// TraceID returns the trace id in Trace, 32 hexadecimal digits, or "" if Trace has none.
func (s *State) TraceID() string {
	if !isTraceparent(s.Trace) {
		return ""
	}
	return s.Trace[3:35]
}

// isTraceID reports whether s is hexadecimal and not zero.
func isTraceID(s string) bool { return isHex(s) && strings.Trim(s, "0") != "" }

func isHex(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') }) < 0
}
