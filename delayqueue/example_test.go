package delayqueue_test

import (
	"fmt"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/delayqueue"
)

// The policy's own delays, and longer levels for the waits that a handler requests.
func ExampleNewLadder() {
	for _, level := range delayqueue.NewLadder(redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Exponential()}) {
		fmt.Print(delayqueue.LevelName(level), " ")
	}
	// Output: 1s 2s 4s 15s 1m 10m 1h
}

// A wait without a level of its length takes several hops.
func ExampleLadder_Path() {
	ladder := delayqueue.Ladder{time.Second, 5 * time.Second, 30 * time.Second, time.Minute}
	fmt.Println(ladder.Path(95 * time.Second))
	// Output: [1m0s 30s 5s]
}
