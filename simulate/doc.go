// Package simulate predicts what a policy does: how long until messages succeed, the
// load on the dependency, how much waits on which level, what ends in the DLQ, and what it
// costs the broker. It decides with
// the very functions that a subscriber decides with, on a clock of its own; a day
// of a million messages takes a second or two.
//
// It leaves out the time that the broker takes, partitions, the order of keys, and
// crashes. A run with the same [Scenario] has the same [Result].
package simulate
