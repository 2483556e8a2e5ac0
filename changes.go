package redeliver

// Change is what changed about a subscription, see [SubscriptionChanged]. Its text is fixed, because log lines and metrics use it.
type Change string

// Changes of the connection, and of what the subscription reads. If a comment begins with a broker, only that broker has the
// change.
const (
	ChangeAssigned         Change = "assigned"                    // Kafka: the group has given this member its partitions
	ChangeConsuming        Change = "consuming"                   // the other brokers: it reads its queue
	ChangeDisconnected     Change = "disconnected"                // the connection or the membership is lost; the subscriber tries again
	ChangeTopicMissing     Change = "a topic is missing"          // one of redeliver's topics or queues was deleted; the others are read
	ChangeTopicUnfit       Change = "a topic is unfit"            // a setting of a topic or queue may lose messages
	ChangeNotRead          Change = "a partition is not read"     // Kafka: one of its partitions cannot be read; the others are
	ChangeReadFromStart    Change = "read from the start"         // Kafka: the group has no offset for a level, or one that is past the end of the log
	ChangeAttemptsCut      Change = "attempts are cut"            // Kafka: rebalance after rebalance ends attempts that take longer than the group waits
	ChangeReadingWaiting   Change = "reading waiting messages"    // Kafka, OrderThroughRetries: a new owner reads the waiting messages before any runs
	ChangeSuspectsRunAlone Change = "suspects run alone"          // Kafka: the last owner died; messages that may have crashed it run alone
	ChangeNotChecked       Change = "not checked"                 // RabbitMQ: the management API does not answer
	ChangeOperationFails   Change = "an operation fails"          // a request is refused, or fails again and again; Detail names it
	ChangeOperationWorks   Change = "an operation works again"    // the request succeeds again
	ChangeSettingRefused   Change = "a setting is refused"        // RabbitMQ, SQS: a queue was created without a setting that it can do without
	ChangeRetryMissing     Change = "middleware.Retry is missing" // a handler failed, and no middleware of redeliver got its error
	ChangeBatchRefused     Change = "batches refused"             // a Size above MaxInFlight, or a Timeout that the broker does not allow; no message runs
	ChangePolicyUnused     Change = "a policy is not used"        // Topics or Queues name what does not exist and nothing reads
	ChangeDedupRefused     Change = "dedup refused"               // Dedup does not remember messages of this subscription
	ChangePolicyDiffers    Change = "policies differ"             // other instances of the group run another policy
)

// Changes of the intake: what may begin.
const (
	ChangeIntakePaused     Change = "intake paused"     // a write is not confirmed; nothing new begins until it is confirmed
	ChangeIntakeResumed    Change = "intake resumed"    // writes are confirmed again
	ChangeBlocked          Change = "blocked"           // RabbitMQ: an alarm of the broker blocks writes
	ChangeUnblocked        Change = "unblocked"         // the alarm is over
	ChangeThrottled        Change = "throttled"         // fewer messages run at once, because many fail
	ChangeThrottleOver     Change = "throttle over"     // the limit is the configured one again
	ChangePartitionPaused  Change = "partition paused"  // Kafka, OrderThroughRetries: MaxWaiting messages wait behind failed ones
	ChangePartitionResumed Change = "partition resumed" // fewer messages wait
	ChangeOutage           Change = "outage"            // nothing new begins: see Outage
	ChangeProbing          Change = "probing"           // the first probe in an outage has succeeded; others follow it
	ChangeOutageOver       Change = "outage over"       // all messages run again
	ChangePaused           Change = "paused"            // a handler asked for it: see Pause
	ChangeResumed          Change = "resumed"           // the handler of a probe did not ask for another pause; all messages run again
	ChangeGroupPaused      Change = "group paused"      // an operator has paused the whole group: see PauseMark
	ChangeGroupResumed     Change = "group resumed"     // an operator has resumed it
	ChangeFlood            Change = "flood"             // too many dead letters: see DeadLetterRate
	ChangeFloodOver        Change = "flood over"        // all messages run again
)

// Commands, and what redeliver could not do.
const (
	ChangeReleased              Change = "command release"                      // Kafka: an operator released waiting messages
	ChangeCancelled             Change = "command cancel"                       // Kafka: an operator cancelled waiting messages
	ChangeCommandIgnored        Change = "command ignored"                      // Kafka: a command is refused or cannot be read
	ChangeCommandsNotRead       Change = "commands are not read"                // the mark of a pause or, on Kafka, the control topic cannot be read
	ChangeCommandsRead          Change = "commands are read"                    // they can be read again
	ChangeCrashesUncounted      Change = "crashes are not counted"              // Kafka: the metadata of commits cannot be written
	ChangeAttemptsInMemory      Change = "attempts are counted in memory"       // Kafka, OrderBlocking; RabbitMQ; SQS FIFO: the attempts of a message that keeps its place cannot be written; a new process counts from 1
	ChangeSuspectUnmarked       Change = "suspect not marked"                   // RabbitMQ: a suspect's note cannot be written
	ChangeRecordsNotDeleted     Change = "settled records are not deleted"      // Kafka: the Delete right is missing on delay topics
	ChangeDeadLettersNotDeleted Change = "settled dead letters are not deleted" // Kafka: the Delete right is missing on a DLQ
	ChangeDLQStateUnknown       Change = "unknown records in the DLQ state"     // Kafka: records in .state that are not redeliver's
	ChangeLastDelivery          Change = "last delivery"                        // Kafka share groups: the broker drops a message if this process loses it
	ChangeLastDeliveryOver      Change = "last delivery over"                   // no such message is unsettled any more
	ChangeDedupStoreLost        Change = "dedup store lost"                     // Dedup's store does not answer; messages are postponed
	ChangeDedupStoreRecovered   Change = "dedup store recovered"                // it answers again
	ChangeDedupMarksLost        Change = "dedup marks lost"                     // Dedup could not mark a message that was handled
	ChangeDedupMarksRecovered   Change = "dedup marks recovered"                // Dedup can mark messages again
)
