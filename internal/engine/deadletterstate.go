package engine

import "github.com/redeliver/redeliver"

// DeadLetterState reads block, the headers that redeliver gave a message in a DLQ, for a subscription that reads the DLQ like any
// other topic or queue. isDLQ reports whether the subscription reads the DLQ of an origin and a group. The state is nil if it
// does not: the headers of another DLQ are not trusted.
//
// An adapter sets the state as [redeliver.State].DeadLetter and hides the block from the handler. In copies it keeps the block,
// before the block of the subscription's own state.
func DeadLetterState(block []redeliver.Header, isDLQ func(origin, group string) bool) (*redeliver.State, []redeliver.Finding) {
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
	st, findings := redeliver.ParseHeaders(group, block)
	return &st, findings
}
