package engine

import "time"

// Lasting decides which errors of a request that is repeated are reported: the first one, and later ones that differ from
// the last report, at most one each minute. The zero value is ready.
type Lasting struct {
	text string // of the last error that was reported; "" after a success
	at   time.Time
}

// Failed reports whether an error is to be reported.
func (l *Lasting) Failed(err error) bool {
	text := err.Error()
	if l.text != "" && (l.text == text || time.Since(l.at) < operationRepeat) {
		return false
	}
	l.text, l.at = text, time.Now()
	return true
}

// Worked records a success. It reports whether a reported error is over.
func (l *Lasting) Worked() bool {
	was := l.text != ""
	l.text = ""
	return was
}

// Fails reports whether an error lasts.
func (l *Lasting) Fails() bool { return l.text != "" }
