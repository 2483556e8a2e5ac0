package engine

import (
	"fmt"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

// Notes returns the notes about a policy for the plans of all adapters: some waits are shortened.
func Notes(p redeliver.Policy) (notes []string) {
	if p.Order == redeliver.OrderBlocking {
		notes = append(notes, fmt.Sprintf("with OrderBlocking a wait that a handler or Classify asks for is limited to %s to %s, and the error of the message says so",
			limits.MinBlock, limits.MaxBlock))
	}
	return notes
}
