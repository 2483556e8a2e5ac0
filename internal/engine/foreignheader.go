package engine

import "github.com/redeliver/redeliver"

// AppendForeignHeader appends what is wrong with a header of a first delivery whose name begins like those of redeliver: a service
// copied it onward, and it is not believed, for which problem is the reason. Only redeliver.HeaderExpires is, where it is a time.
func AppendForeignHeader(found []redeliver.Finding, name, value, problem string) []redeliver.Finding {
	if name == redeliver.HeaderExpires {
		if _, ok := redeliver.ParseExpires(value); ok {
			return found
		}
		problem = "is no RFC 3339 time; the message does not expire by it"
	}
	return redeliver.AppendFinding(found, redeliver.Finding{Header: name, Value: value, Problem: problem})
}
