package engine

import "github.com/redeliver/redeliver"

// DeadLetterState reads redeliver's block of headers of a message in a DLQ, for a subscription that reads the DLQ like any
// other topic or queue. isDLQ reports whether the subscription reads the DLQ of that origin and group. Headers about
// another DLQ are not trusted: the state is nil then.
//
// An adapter sets it as [redeliver.State].DeadLetter, hides the block from the handler, and keeps it in copies, where it
// precedes the block of the subscription's own state.
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
