package cli

import (
	"time"

	"github.com/redeliver/redeliver/cmd/redeliver/internal/sidecar"
)

// Patiently gives the end of commands so long: where the tests run, a machine may stand
// still for longer than somebody who has told a command to end would wait.
func Patiently(d time.Duration) { patience, sidecar.MostLeave = d, d }
