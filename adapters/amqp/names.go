package amqp

// Names configures the names of the queues beside a queue. A nil field means the default. The names
// must differ for every queue, because two queues must never share their retries.
type Names struct {
	// Retry is the queue from which a message comes back. Default "<queue>.retry". The name of a
	// delay queue is this name, a dot and its level: "<queue>.retry.10s".
	Retry func(queue string) string
	// DLQ is the dead-letter queue. Default "<queue>.dlq".
	DLQ func(queue string) string
}
