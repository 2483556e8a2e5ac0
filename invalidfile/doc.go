// Package invalidfile is a Policy.Invalid that is fed from a file while the service
// runs: what is listed there does not run any more, and goes to the DLQ, invalidated,
// before its next attempt. It works on every broker and in every form, because it is
// the consumer itself that looks.
//
//	cancelled, err := invalidfile.Open("/etc/orders/cancelled", invalidfile.Config{})
//	if err != nil {
//		return err
//	}
//	defer cancelled.Close()
//	policy := redeliver.Policy{Invalid: cancelled.Invalid}
//
// # The file
//
// It has a rule in each line; a message that one of them fits must not run. Empty lines,
// and those that begin with #, say nothing, and spaces around a line do not count.
//
//	# the tenant is gone
//	header=tenant=acme
//	key=customer-17
//	id=4711
//	{"key": "customer-18", "headers": {"kind": "invoice"}, "reason": "billed twice"}
//
// The first three are the flags of `redeliver waiting cancel` without their dashes:
// the header tenant is acme, the key is customer-17, the id is 4711, exactly. A line of
// JSON may have several of them, all of which must fit, and a reason, which stands in
// the DLQ beside the line's number. Text that JSON alone can say (a value that ends in a
// space, say) is written so.
//
// A key is the record's on Kafka, the message group's on SQS FIFO, and on RabbitMQ what
// Config.Key says, where the Order is PerKey. Elsewhere a message has none, and no rule
// with a key fits it.
//
// # Changes
//
// The file is looked at every five seconds, and read when it is another one, or its time
// or size have changed. What is in it then counts when another look, 200 ms later, finds
// the same. One that cannot be read, is no regular file, is larger than 16 MiB, or has a
// line that is no rule changes nothing: the rules of before stay, and the log, or
// Config.Report, says what is wrong and in which line. Write a new file beside it and
// rename that: one that is written in place, by a command that pauses for longer than
// those two looks are apart, is taken as it is then: empty, or half. At the start such a
// file, or none, is an error of Open; a service that lists nothing yet has an empty file.
//
// A rule that is taken out again lets the messages run that have not come to an attempt
// meanwhile; the others are in the DLQ, to be replayed.
package invalidfile
