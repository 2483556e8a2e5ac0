// Package delayqueue decides where a failed message waits and when it continues: the ladder of levels, hops between them,
// and due times. It has pure functions and no goroutines.
//
// A message that must wait goes to the delay topic of the largest level that fits into the wait. When the level is over
// and time remains, it hops to a shorter level: a wait of 95 s on the levels 5s, 30s and 1m is 1m + 30s + 5s. The due
// time is absolute and travels with the message, so lateness does not add up. [Arrive] interprets a message that has
// come back.
package delayqueue
