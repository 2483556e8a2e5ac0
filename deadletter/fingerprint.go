package deadletter

import "github.com/redeliver/redeliver/internal/errortext"

// Fingerprint identifies the cause of a dead letter, in 16 hex digits. Messages have the same
// fingerprint if they have the same type of error, the same text without numbers, ids and
// quotations, and the same handler, reason and origin.
func Fingerprint(m *Message) string {
	// FNV-1a of the parts, each followed by a zero byte. Package hash would copy every string, and a DLQ may have a
	// million messages.
	h := uint64(14695981039346656037)
	for _, part := range [...]string{m.State.ErrorType, errortext.Normalise(m.State.Error), m.Handler, string(m.State.Reason), m.State.Origin} {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * 1099511628211
		}
		h *= 1099511628211
	}
	var name [16]byte
	for i := range name {
		name[i] = "0123456789abcdef"[h>>(60-4*i)&0xf]
	}
	return string(name[:])
}
