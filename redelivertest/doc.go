// Package redelivertest is a broker in memory with a virtual clock. A test can say "the handler fails, four attempts in
// seven seconds, then the DLQ, exhausted", and ends in milliseconds.
//
//	func TestCharge(t *testing.T) {
//		redelivertest.Run(t, func(t *testing.T, b *redelivertest.Broker) {
//			billing := b.Open(redelivertest.Config{Group: "billing", Policy: policy})
//			orders := billing.Handle("orders", charge)
//			b.Publish("orders", message.NewMessage("o-1", payload))
//			got := orders.Outcome("o-1")
//			if got.State.Reason != redeliver.ReasonExhausted || len(got.Attempts) != 4 || got.Took != 7*time.Second {
//				t.Error(got)
//			}
//		})
//	}
//
// [Run] is a bubble of testing/synctest. In it the library runs unchanged: the same middleware, policy, levels and
// state in headers as on a real broker. Only the time is virtual. [New] returns a broker for the test's own bubble, or
// for the real clock.
//
// [Client.Handle] puts a handler behind middleware.Retry on a Router. To test the service's own Router, give it the
// Subscriber and Publisher of a [Client], and call [Broker.Start].
//
// # Tools
//
//   - [Subscription.Outcome]: the attempts of a message with their times and
//     errors, its waits, how it ended, and how long that took. Printed, it is the
//     message's log.
//   - [Subscription.DeadLetters], [Subscription.Waiting]: the messages in the DLQ
//     and on the delay topics, with their state.
//   - [Broker.Wait]: waits until everything is at rest. Outcome, DeadLetters and
//     Events do so first.
//   - [Subscription.RefuseWrites]: a broker that refuses a retry or a dead letter.
//   - [Client.Kill]: a process that dies; [Config.Decode]: a message that cannot be decoded.
//   - [Subscription.Events], [Config.Sink]: all events.
//
// # Semantics
//
// The broker is like Kafka with an ack for each message. Any number of groups read a topic from its first message on. A
// retry comes back to the group that failed it, through delay topics with the names that they have on Kafka. Messages of one key
// ([SetKey]) run one after another; Policy.Order says whether others overtake a failed message. Delivery is at least once:
// the messages of a killed process are delivered again. Those that ran when it was killed are suspects, which run one at a time.
// A message goes to the DLQ, crashed, when it ran alone in Policy.MaxCrashes killed processes. The DLQ is a topic,
// "<topic>.<group>.dlq", which another group may read.
//
// The broker passes the conformance kit, internal/adaptertest, with all its features, in bubbles and in real time. It has no
// partitions, rebalances, connections or limits, which the adapters' tests cover on real brokers.
package redelivertest
