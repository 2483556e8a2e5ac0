package simulate

import (
	"math"
	"time"
)

// Operations is the number of operations on one broker, in its own units.
type Operations struct {
	Broker string `json:"broker"` // kafka, rabbitmq, sqs
	// Writes and Reads are records on Kafka, messages on RabbitMQ, and requests of up to ten messages on SQS. They do
	// not include the writes of the arriving messages.
	Writes int `json:"writes"`
	Reads  int `json:"reads"`
	// Acks are RabbitMQ's acks, and SQS's requests to delete. They are 0 on Kafka, where one commit covers many
	// records.
	Acks int `json:"acks"`
	// Cost is Amazon's price for SQS's requests, in US dollars: 0.40 for a million, the price of standard queues in
	// us-east-1 without the free tier. It is 0 elsewhere.
	Cost float64 `json:"cost,omitempty"`
}

const (
	maxSQSDelay = 15 * time.Minute // the maximum of DelaySeconds
	sqsBatch    = 10               // the maximum of messages in a request
	sqsPrice    = 0.40 / 1e6
)

// waitCounts counts how messages spend their waits.
type waitCounts struct {
	hops     int // writes to a level
	held     int // waits too short for a level, which the adapter for Kafka writes to the retry topic
	sqsSends int
}

func (s *waitCounts) add(d time.Duration) {
	s.sqsSends += max(1, int((d+maxSQSDelay-1)/maxSQSDelay))
}

// operations computes the operations of each broker. Each message is read where it arrives. A wait is a write for each
// hop, and a read after each. A dead letter is written once more.
func (s *waitCounts) operations(r *Result) []Operations {
	moves := s.hops + s.held
	kafka := Operations{Broker: "kafka", Writes: moves + r.Dead, Reads: r.Messages + moves}
	rabbit := Operations{Broker: "rabbitmq", Writes: moves + r.Dead, Reads: r.Messages + moves}
	rabbit.Acks = rabbit.Reads
	sqs := Operations{Broker: "sqs", Writes: requests(s.sqsSends + r.Dead), Reads: requests(r.Messages + s.sqsSends)}
	sqs.Acks = sqs.Reads
	sqs.Cost = float64(sqs.Writes+sqs.Reads+sqs.Acks) * sqsPrice
	return []Operations{kafka, rabbit, sqs}
}

func requests(messages int) int { return int(math.Ceil(float64(messages) / sqsBatch)) }
