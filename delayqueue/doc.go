// Package delayqueue decides where a failed message waits and when it goes on: the ladder of levels, hops between them, and
// due times. It has pure functions and no goroutines.
//
// A message that must wait is put on the delay topic of the largest level that fits into the wait. When the level is over and
// time remains, it hops to a shorter level: 95 s on the levels 5s, 30s and 1m are 1m + 30s + 5s. The due time is absolute and
// travels with the message, so hops do not add up lateness. [Arrive] says what a message means that has come back.
package delayqueue
