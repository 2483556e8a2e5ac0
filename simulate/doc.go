// Package simulate says what a policy would do before anybody runs it: how long
// until messages succeed, what load that is for the dependency, how much waits on
// which level, what ends in the DLQ, and what it costs the broker. It decides with
// the very functions that a subscriber decides with, on a clock of its own; a day
// of a million messages takes a second or two.
//
// What it leaves out: the time that the broker takes, partitions and the order of
// keys, and crashes. A run with the same [Scenario] has the same [Result].
package simulate
