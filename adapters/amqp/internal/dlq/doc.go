// Package dlq is the driver of a DLQ on RabbitMQ, for package deadletter.
//
// To look into a queue of RabbitMQ, a reader must get its messages. That hides them from others until their return, and
// the broker counts a delivery each time. So a [Queue] allows one reader at a time, returns everything in order, and
// refuses a look when the queue's delivery limit comes near.
//
// A lock is an exclusive, empty queue beside the DLQ. The broker lets only one connection declare it, and deletes it when
// that connection ends in any way. So a runner that dies leaves neither lock nor hidden messages: a session is one
// connection, with its locks and its unsettled messages.
//
// The state of tasks is one message in "<dlq>.state". One process at a time gets it, and returns it or replaces it.
package dlq
