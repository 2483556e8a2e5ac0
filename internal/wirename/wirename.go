// Package wirename has the fixed texts of ids, headers and names that several packages write or read.
package wirename

const (
	// DerivedID begins an id that two messages may have: a hash of a message that came without an id, or the place of a record
	// without a timestamp.
	DerivedID = "derived:"
	// WatermillUUID is the header or attribute in which Watermill's Pub/Subs send a message's UUID.
	WatermillUUID = "_watermill_message_uuid"
)

// The ends of default names of redeliver's topics and queues.
const (
	RetrySuffix   = ".retry"
	DLQSuffix     = ".dlq"
	StateSuffix   = ".state"   // after the DLQ's suffix
	ControlSuffix = ".control" // Kafka
)

// PauseKey is the key of the record in a control topic of Kafka that pauses the group. Its value is a
// redeliver.PauseMark.
const PauseKey = "pause"

// ShareRetryGroup ends the name of the consumer group that reads the retries of a share group of Kafka.
const ShareRetryGroup = "-retry"
