// Package loss is the proof of the first promises: nothing is lost, whatever dies, and nothing runs early.
//
// A writer that knows nothing of redeliver (an independent client) writes keyed messages, each with a rule in a header:
// it never fails, fails once, or always fails. Consumers of one group are processes of their own: this test binary,
// started again, runs a Watermill Router with middleware.Retry. They are killed with SIGKILL, and the broker is, too,
// while all that goes on. The proof is made of what outlives a SIGKILL:
//
//   - a journal per process: a line for each run of the handler, written with one write(2) before the handler answers;
//   - the DLQ, read by the independent client;
//   - what the broker says of the group's offsets, or of the messages in its queues.
//
// The checker knows only these and what was written. TestLossSuiteHasTeeth takes "confirm before ack" out of the
// consumers and wants the checker to find losses.
//
// # Kills by state
//
// A consumer gets the order on its standard input to kill itself the n-th time that it comes into a state, and writes the
// message that stands for it into its journal just before. After the run the checker wants that message to have been
// run again by somebody else: that is what being in the state means.
//
//   - running: inside a handler;
//   - publishing: the decision is made and the write to where it waits or the DLQ is not confirmed; either it is held back
//     before it leaves (long enough for offsets to be committed meanwhile), or it is written and the answer unread;
//   - waiting: a message is held until it is due, and nothing runs and nothing is being written;
//   - committing: a message is acked, and the request that commits its offset, or the ack, is about to leave;
//   - ending: the process is not killed but gets SIGTERM, and the handlers that it has then give up only when the drain
//     timeout is over. Nobody can ack their messages.
//
// Besides, some are killed from outside, in whatever state they are, joining the group for instance. RabbitMQ and
// Redis also close the connections of all their clients, the writer's among them, while they live. SQS does not die: a proxy of ours has a
// part of the consumers' requests fail, in all the ways that SQS has, and at times every one.
//
// # Overload
//
// TestOverload, TestMillionWaiting and the end of TestLossKafka put consumers under what is no death (a [strain]) and hold
// what is left against the same rules:
//
//   - back-pressure: more than the handlers can do. Messages in flight stay at MaxInFlight, and memory at its bound;
//   - slow broker: a [link] between has every byte take its time, so that confirms take seconds. No write is given up or
//     made twice, and the intake pauses;
//   - slow handler: handlers take longer than a consumer may be silent, and another one joins meanwhile;
//   - full: RabbitMQ has no disk left, Redis no memory, and Kafka dies of its disk. A consumer is killed meanwhile, with
//     which all would be lost that was acked without its next hop confirmed;
//   - waiting: on Kafka a great many messages wait on a level while others are handled.
//
// # Another broker
//
// Each broker has a [system] in the test (write, read the DLQ, ask what is unsettled, restart) and a [connector] in the
// consumer (a subscriber, with its client's traffic shown to the [spy]). Plan, chaos, journal and checker stay.
//
// REDELIVER_LOSS_SEED repeats the plan of a run that printed its seed: rules, victims, moments. The machine's own timing
// is not in it. REDELIVER_SOAK=1 makes it half an hour.
package loss
