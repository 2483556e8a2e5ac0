package engine

import (
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/limits"
)

// DeadLetterState reads block, the headers that redeliver gave a message in a DLQ, for a subscription that reads the DLQ like any
// other topic or queue. isDLQ reports whether the subscription reads the DLQ of an origin and a group. The state is nil if it
// does not: the headers of another DLQ are not trusted.
//
// An adapter sets the state as [redeliver.State].DeadLetter and hides the block from the handler. In copies it keeps the block,
// before the block of the subscription's own state.
func DeadLetterState(block []driver.Header, isDLQ func(origin, group string) bool) (*redeliver.State, []redeliver.Finding) {
	var origin, group string
	for _, h := range block {
		switch {
		case h.Name == redeliver.HeaderOrigin && origin == "":
			origin = h.Value
		case h.Name == redeliver.HeaderGroup && group == "":
			group = h.Value
		}
	}
	if origin == "" || group == "" || !isDLQ(origin, group) {
		return nil, nil
	}
	st, findings := driver.ParseHeaders(group, block)
	return &st, findings
}

// CheckHeaderCount returns why a record with n headers is not read, or nil. A record of a few kilobytes can have millions
// of headers, so an adapter asks before it copies them or loops over them. On a topic that redeliver writes, a record has
// redeliver's headers beside its own.
func CheckHeaderCount(n int, isOurs bool) error {
	if n <= limits.MaxHeaders || isOurs && n <= limits.MaxHeaders+limits.MaxTail {
		return nil
	}
	return &redeliver.UndecodableError{Err: fmt.Errorf("it has %d headers, and a record with more than %d is not read", n, limits.MaxHeaders)}
}

// MakeStub sends a message to the DLQ at once, without its headers and its body, and with the given state.
func MakeStub[R any](m *driver.Message[R], st *redeliver.State, body []byte, why error) {
	st.Truncated = describeBody(body)
	m.State, m.Step, m.Err, m.Until = st, driver.StepDeadLetter, why, time.Time{}
}

// describeBody returns the length and the hash of a body, for State.Truncated.
func describeBody(body []byte) string {
	return fmt.Sprintf("%d sha256:%x", len(body), sha256.Sum256(body))
}
