// Package dlq is the driver of a DLQ on SQS, for package deadletter.
//
// To look into a queue of SQS, a reader must receive its messages. That hides them from others until they are returned, and
// SQS counts a receive each time. So one reader is open at a time. It hides what it has received for as long as it is
// open, and makes the rest visible when it closes.
//
// SQS has no locks, so a lock is a lease in the state. It lasts longer than the messages of its session stay hidden: the
// next runner begins when the messages of a dead one are visible again.
//
// The state is one message in a FIFO queue beside the DLQ, "<dlq>-state.fifo".
package dlq
