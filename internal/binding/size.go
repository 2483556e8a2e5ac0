package binding

import "github.com/ThreeDotsLabs/watermill/message"

// headerBytes is what a header takes beside its name and value, in memory or in JSON.
const headerBytes = 64

// SizeOf returns about how many bytes a message takes.
func SizeOf(msg *message.Message) int {
	n := len(msg.Payload)
	for name, value := range msg.Metadata {
		n += len(name) + len(value) + headerBytes
	}
	return n
}
