package deadletter

import "github.com/redeliver/redeliver/internal/deadletter/driver"

// The writers whose headers are understood.
const (
	WriterRedeliver = driver.WriterRedeliver
	WriterSpring    = driver.WriterSpring
	WriterWatermill = driver.WriterWatermill
	WriterConnect   = driver.WriterConnect
	WriterStreams   = driver.WriterStreams
	WriterRabbitMQ  = driver.WriterRabbitMQ // RabbitMQ itself, by a dead-letter exchange
	WriterSQS       = driver.WriterSQS      // SQS itself, by a RedrivePolicy
	WriterUnknown   = driver.WriterUnknown  // it has no headers that are understood
)

// The outcomes. With the first three the message leaves the DLQ. With the others it stays.
const (
	OutcomeReplayed = driver.OutcomeReplayed // a copy is confirmed for its group
	OutcomeEdited   = driver.OutcomeEdited   // an edited copy is confirmed for its group
	OutcomePurged   = driver.OutcomePurged   // somebody removed it
	OutcomeSkipped  = driver.OutcomeSkipped  // was replayed too often already
	OutcomeRefused  = driver.OutcomeRefused  // has a Mismatch, or the broker refused it
)

// Settlement is the outcome of one message.
type Settlement struct {
	Message *Message
	Outcome Outcome

	why string // why the broker refused it, for the report
}

// sizeOf estimates the memory that a message takes, in bytes.
func sizeOf(m *Message) int {
	const each = 64 // overhead of a header
	n := len(m.Key) + len(m.Body)
	for _, headers := range [...][]Header{m.Headers, m.Properties, m.Foreign} {
		for _, h := range headers {
			n += each + len(h.Name) + len(h.Value)
		}
	}
	return n
}
