// Package loss proves the first promises: no message is lost, whatever dies, and none runs early.
//
// A writer with a client that is independent of redeliver writes keyed messages, each with a rule in a header: it never
// fails, fails once, or always fails. Consumers of one group are separate processes: this test binary, started again,
// runs a Watermill Router with middleware.Retry. The consumers are killed with SIGKILL during the run, and so is the
// broker. The proof uses only data that survives a SIGKILL:
//
//   - a journal per process: a line for each run of the handler, written with one write(2) before the handler answers;
//   - the DLQ, read by the independent client;
//   - the broker's report of the group's offsets, or of the messages in its queues.
//
// The checker knows only these and the written messages. TestLossSuiteFindsLosses removes "confirm before ack" from the
// consumers and requires the checker to find losses.
//
// # Kills by state
//
// A consumer gets the order on its standard input to kill itself when it enters a state for the n-th time. It writes
// the message that is in that state into its journal just before. After the run the checker requires that another
// consumer has run that message again, which is the meaning of the state.
//
//   - running: inside a handler;
//   - publishing: the decision is made, but the write to a level or the DLQ is not confirmed. Either it is delayed
//     before it leaves (long enough for offsets to be committed meanwhile), or it is written and the answer is unread;
//   - waiting: a message is held until it is due, and no message is running or being written;
//   - committing: a message is acked, and the request that commits its offset, or the ack, is about to leave;
//   - ending: the process is not killed but gets SIGTERM, and its handlers give up only when the drain timeout is over.
//     Their messages cannot be acked.
//
// In addition, some consumers are killed from outside, in whatever state they are, for instance while they join the
// group. RabbitMQ and Redis also close the connections of all their clients, including the writer's, while they run.
// SQS does not die: a proxy makes some of the consumers' requests fail, in all the ways that SQS has, and at times all
// requests.
//
// # Overload
//
// TestOverload, TestMillionWaiting and the end of TestLossKafka put a [load] on consumers, which kills no process,
// and check the result with the same rules:
//
//   - back-pressure: more work than the handlers can do. Messages in flight stay at MaxInFlight, and memory within its
//     bound;
//   - slow broker: a [link] in front of it delays every byte, so that confirms take seconds. No write is given up or
//     made twice, and the intake pauses;
//   - slow handler: handlers take longer than a consumer may be silent, and another one joins meanwhile;
//   - full: RabbitMQ has no disk left, Redis no memory, and Kafka dies of a full disk. A consumer is killed meanwhile,
//     which would lose every message that was acked before its next hop was confirmed;
//   - waiting: on Kafka many messages wait on a level while others are handled.
//
// # Another broker
//
// Each broker has a [system] in the test (write, read the DLQ, ask what is unsettled, restart) and a [connector] in the
// consumer (a subscriber whose client's traffic the [watcher] sees). Plan, chaos, journal and checker are common to all.
//
// REDELIVER_LOSS_SEED repeats the plan of a run that printed its seed: rules, targets, moments. It does not repeat the
// machine's own timing. REDELIVER_SOAK=1 lengthens the run to half an hour.
package loss
