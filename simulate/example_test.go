package simulate_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/simulate"
)

// Does the policy survive an outage of ten minutes?
func ExampleRun() {
	scenario := simulate.Scenario{
		Policy:   redeliver.Policy{MaxRetries: 3, Backoff: redeliver.Steps(time.Minute, 5*time.Minute, 10*time.Minute)},
		Duration: time.Hour,
		Rate:     1,
		Outages:  []simulate.Outage{{From: 10 * time.Minute, To: 20 * time.Minute}},
	}
	result, err := simulate.Run(context.Background(), scenario)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d messages, %d at once, %d retries, %d dead\n", result.Messages, result.FirstAttempt, result.Retries, result.Dead)
	// Output: 3600 messages, 3000 at once, 1380 retries, 0 dead
}

// The error of an invalid scenario has all problems.
func ExampleScenario_Validate() {
	fmt.Println(simulate.Scenario{Rate: -1, PoisonShare: 2}.Validate())
	// Output: configuration refused: Rate is -1: must be a positive number; PoisonShare is 2: must be from 0 to 1
}
