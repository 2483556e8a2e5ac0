// Package kafka is retries, delays and a dead-letter queue on Apache Kafka, for
// Watermill: a [Subscriber] and a [Publisher] over IBM/sarama, and the topics on
// which failed messages wait. [Open] connects, [Client.Plan] tells beforehand
// what will be used and created.
//
//	billing, err := kafka.Open(ctx, kafka.Config{Brokers: brokers, Group: "billing"})
//	router.AddMiddleware(middleware.Retry())
//	router.AddConsumerHandler("charge", "orders", billing.Subscriber(), charge)
//	...
//	defer billing.Close(ctx) // after the router
//
// A service without Watermill keeps its client and its handler of records:
// [Consume] is all of the above in one call, and [Wrap] makes the handler for a
// consumer group that the service runs itself. What follows holds for them, too.
// A consumer without a group, of which every process gets every message, is not
// retried: there is no group that could get the message back.
//
// # Vocabulary
//
// The origin is the topic subscribed to, the group the consumer group, the
// subscription both together. A level is a delay topic. An id is the header
// _watermill_message_uuid, or topic/partition/offset of the record where there
// is none; it stays the same through all attempts and the DLQ.
//
// # Topology
//
// For topic orders and group billing:
//
//	orders.billing.retry.10s    one delay topic for each level
//	orders.billing.retry        the way back, for waits shorter than a level
//	orders.billing.dlq          the DLQ
//	orders.billing.control      commands about what waits, compacted; see [Client.Waiting]
//
// In the group's part of a name the dot and every byte that a topic cannot have
// are written _xx. The group's own members read orders, the delay topics and the
// retry topic as one consumer group; nobody else does, so a retry reaches the
// group that failed and no other. There is no relay process: a retry is one
// produce and one fetch.
//
// The topics are created before the first message is read, with as many
// partitions as the origin, at most 8 ([Config.RetryPartitions]), the origin's
// replication and min.insync.replicas, cleanup.policy=delete, retention.ms=-1,
// retention.bytes=-1, segment.bytes=max(16 MiB, max.message.bytes), unclean.leader.election.enable=false,
// and room for our headers in max.message.bytes. What is settled on them is
// given back by deleting records below the committed offset, about every 30 s
// (the user needs Delete on them; without it the disk is not given back and a
// warning says so). Existing topics that cannot hold the policy are refused.
// Delay topics of levels that the policy does not have are found by their name
// and read, also those that members with another policy create meanwhile (a
// deploy that is rolled back), within five minutes; delete them when they are empty.
//
// Every member reads the control topic, one partition, from its start (the user needs
// Read on it). Where it is missing and may not be created, what waits can be neither
// released nor cancelled, a warning says so, and all else goes on. A command settles
// nothing: see docs/reference/waiting.md.
//
// # Delivery guarantees
//
// At least once. An offset is committed only when all records below it are
// settled: handled, or written, confirmed by all in-sync replicas, to a delay
// topic or the DLQ. A process may be killed at any instruction: what was not
// settled, or was settled within the last commit interval (200 ms), is delivered
// again, with the same id. A message whose retry was written but whose offset
// was not committed exists twice from then on, and both copies are retried.
//
// Messages of one key run one after another on their first delivery; keys do not
// wait for each other, and messages without a key wait for nobody. A failed
// message is overtaken by later ones of its key, and its retry may run beside
// one. With [Config.MaxInFlight] 1 one first delivery runs at a time.
//
// A rebalance waits for handlers in flight ([Config.DrainTimeout], 10 s) and
// begins what stands below a record that has run, so a member that comes or goes
// in order causes few duplicates: records on a delay topic that ran before an
// earlier one whose jitter is not over. Eager and cooperative strategies and
// static membership ([Config.InstanceID]) work. A cooperative group commits
// nothing while it rebalances, so a kill just then repeats what ran since. A member
// that gives up a partition tells how many settled messages run again in spite of that
// (settled messages run again): above one that is not settled, or where its last
// commit was refused, or not answered within 3 s.
//
// While the group has no broker to commit to, what was read ahead is still
// handled and is handled again afterwards. A write that is not answered within
// [Config.SendTimeout] is reported (PublishFailed) and waited for, not repeated.
//
// Only committed records of transactional producers are read.
//
// # Order of keys
//
// A policy whose Order is redeliver.PerKey has the later messages of a failing key
// wait behind it, for as long as it takes, while every other key flows. What waits
// behind another is written to the levels like a retry, with its attempts as they
// were, and comes back when the failed one does. The rule is one: a record runs only
// when no record of its key in its partition, with a lower offset, is unsettled. So
// each that waits costs what a retry costs for each attempt of the one before it.
//
// The delay and retry topics have as many partitions as the origin then, and a
// partition's owner has the same partition of all of them: all members of such a
// group must have a configuration in which some Order is PerKey, because it balances
// in a way of its own (eager, redeliver-copartitioned): one that has none is kept out
// as long as others are in, and the other way round. Before a partition's first
// record runs, all that waits on its levels is read once. Of each that waits, key and
// offset are in memory, about 140 bytes, [Config.MaxParked] at most: then the origin
// stands still until there are fewer, and says so. After a rebalance all is read
// back, however many there are, and what stands unsettled on the origin before the last
// of them, at most 170 bytes each. That is no more than was in flight, unless somebody
// set the group's offsets back: then, behind the first MaxParked, only what has the key
// of one that waits is kept.
//
// What is not in order: messages without a key; replays from the DLQ and delayed
// publishes; what was in the topics when partitions were added. A dead letter lets
// its key go on. A message that was written to a level twice (a member was killed
// before it committed) is recognized and runs once; one that was settled shortly
// before a kill (within the last commit interval, or on a level above one that was not
// due yet) may run again although later ones of its key have. A member that was thrown
// out while it stood still (a paused virtual machine) may finish the handlers that it
// had beside its successor.
//
// # Crashes
//
// Kafka counts no deliveries, so the owner of a partition says in the metadata of its
// offset commits how it stands: at work, or that it has left in order. It costs a
// commit when it begins, and none for a message that succeeds. Who finds that the last
// owner did not leave in order (it died, or lost its session) begins with care: from
// the committed offset on, up to 500 x [Config.MaxInFlight] records (at least 5,000, at
// most 50,000) or to the end of the log, it begins only what it has noted before, in
// windows of [Config.MaxInFlight] records divided by its partitions of the topic (at
// least 32, at most 256). When it dies as well, the unsettled records of that window are
// suspects. They run one at a time, each noted before, while nothing else of the client
// runs, its other subscriptions included. One that was alone when its process died Policy.MaxCrashes times
// goes to the DLQ, crashed, as it was; its neighbours are never charged. So a killer ends
// MaxCrashes + 2 processes. Levels and the retry topic are partitions like the others.
//
// A kill for no reason costs a stretch with care, one commit for each window; a second
// one in that stretch makes suspects of up to a window of records for each partition, which run
// one after another, each for a commit and its handler's time. While a suspect waits for
// its turn, the client begins nothing else, at most for as long as its longest handler
// runs. A kill, or a session that another process takes over, just while a suspect is alone
// charges that one. A session that this process lost and got back charges nobody; nor does a handler
// that is cut short when the subscriber closes. Where the note cannot be written within 10 s,
// all begins without, which is told once (crashes are not counted), and tried again a
// minute later. What others commit for the group, an older version of redeliver too,
// says nothing: then nobody is suspect. A message that is written to another topic (its retry,
// or because its key waits) is no suspect there.
//
// # Delay limits
//
// Any delay up to redeliver.MaxWait (366 days). Never early by the clock of the
// host that wrote the due time; late by a few milliseconds while the group has
// free slots ([Config.MaxRetriesInFlight]). The reader of a level of 400 ms and
// more pauses for a quarter of the level (at most 1 s) once it has read all there
// is: its records come in few, large fetches, and none is due before. Where the retention of the delay
// topics is limited (a managed Kafka that refuses -1), the longest wait is a
// quarter of it; a policy that plans a longer one is refused, a handler that
// asks for one gets its message dead-lettered as unschedulable.
//
// # Header mapping
//
// Watermill's metadata are the record's headers, its UUID the header
// _watermill_message_uuid, as in watermill-kafka. What metadata cannot hold is in
// the record itself, see [RecordFromContext]: key, order and duplicates of
// headers, null values, timestamp. All of it is put back byte for byte on every
// hop and in the DLQ; redeliver's own headers follow behind the record's, from
// the last redeliver-attempt on. The handler never sees them: it asks
// redeliver.FromContext. They are believed only on topics that redeliver writes;
// on the origin they are the user's headers like any others, and reported.
//
// # Failure modes
//
//   - A delay topic or the DLQ does not take a message: the write is tried again
//     with backoff up to 10 s; meanwhile the source stays unacked, the handler
//     does not run again, and no new handler is started (the event intake paused).
//   - Somebody deletes a topic of ours: it is created again, once an hour at most, and the
//     loss is told ([redeliver.MessagesLost]). Where it is not (Config.NoProvisioning, no
//     rights), the other topics are read without it, and it is told every minute.
//   - A retention, or somebody, deletes what waits on a delay topic: the next session counts
//     it and tells ([redeliver.MessagesLost]).
//   - A delay topic stays unwritable for good (deleted, no rights): the whole
//     subscription waits for it, loudly. The DLQ is not used in its place, but for
//     a message that the topic refuses for itself: it is too large, invalid, or fails with
//     an error that nobody knows while others are written to the same topic. That is
//     dead-lettered as unschedulable.
//   - The DLQ refuses a message for itself: a stub takes its place there, with the key,
//     redeliver's headers, the origin's partition and offset, and redeliver-truncated, the
//     length and SHA-256 of the body.
//   - Brokers go away: the client joins again with backoff up to 5 s and says so,
//     every minute.
//   - A handler is slow: only its key waits. A partition that is 10 x MaxInFlight
//     records ahead of its lowest unsettled one begins no more; one that has read
//     some thousand records ahead pauses. So does one with 1 MiB of keys and values
//     when all partitions of a Subscribe have 32 MiB of them, delay topics included,
//     where only what is due within a second is read beyond that. The client's own
//     fetches come on top (Sarama.Consumer.Fetch; what is compressed is larger here).
//   - A handler never returns: its attempt ends with the policy's Timeout.
//   - A record cannot be decoded: it goes to the DLQ as it is, undecodable.
//   - The group's offsets expire or are deleted: delay topics are read from
//     their start; the origin from the caller's Offsets.Initial.
//   - The origin gets more partitions: they are read from their beginning, whatever
//     Offsets.Initial says.
//   - A record kills its process each time: see Crashes.
//
// # Not supported
//
// Share groups; PerKey with [Wrap] or in a cooperative group. A record that somebody writes to orders.billing.retry without our
// headers is delivered to the group as new; [Client.DeadLetters] replays with them.
package kafka
