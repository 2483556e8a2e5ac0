package main

import (
	"fmt"

	"github.com/redeliver/redeliver"
)

// report prints the events of documents until all are indexed or dead.
func report(events <-chan redeliver.Event, documents int) (indexed, dead int) {
	for indexed+dead < documents {
		switch e := (<-events).(type) {
		case redeliver.RetryScheduled:
			fmt.Printf("%s: retry in %s\n", e.State.ID, e.Delay)
		case redeliver.DeadLettered:
			fmt.Printf("%s: %s\n", e.State.ID, e.State.Error)
			dead++
		case redeliver.Committed:
			indexed++
		}
	}
	return indexed, dead
}
