// Package simulate predicts the effects of a policy: how long messages take to succeed, the load on the dependency, the
// messages on each level and in the DLQ, and the operations on each broker. It uses the same decisions as a subscriber,
// with a clock of its own. A day with a million messages takes a second or two.
//
// It ignores the time that the broker takes, partitions, the order of keys, crashes, and Policy.Outage: an outage uses up retries. A run with the same [Scenario] has the same [Result].
package simulate
