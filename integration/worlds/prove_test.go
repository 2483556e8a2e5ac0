//go:build prove

package worlds_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

// doubtful matches the violations that the checker still reports once in hundreds of worlds without a fault of redeliver's: how
// often something may run again, and how soon something must begin, depends on what the fake broker does.
var doubtful = regexp.MustCompile(`^(seed \d+ of \S+: | +)(again|late|restless) |^ +(and \d+ more|history: )|^a world takes|worlds in `)

// Eleven minutes of new worlds lose nothing, and break no promise but those that are doubtful in one world of fifty.
func TestManyWorlds(t *testing.T) {
	for broker, duration := range map[string]string{"kafka": "7m", "sqs": "3m", "rabbitmq": "1m"} {
		t.Run(broker, func(t *testing.T) {
			if broker == "rabbitmq" {
				for _, variable := range brokers.OwnRabbitMQ(t, brokers.RabbitMQOptions{Version: brokers.RabbitMQ43, Brief: true}).Environ() {
					name, value, _ := strings.Cut(variable, "=")
					t.Setenv(name, value)
				}
			}
			failed, output := search(t, broker, "-for", duration, "-limit", "8m") // a world with 100,000 hops takes 4 CPU minutes
			if !failed {
				return
			}
			worlds, bad := 0, 0
			for line := range strings.Lines(output) {
				if strings.HasPrefix(line, "seed ") {
					bad++
				}
				if !doubtful.MatchString(line) {
					t.Error(strings.TrimSpace(line))
				}
				_, _ = fmt.Sscanf(line, "%d worlds in", &worlds)
			}
			if bad*50 > worlds {
				t.Errorf("%d of %d worlds failed:\n%s", bad, worlds, output)
			}
		})
	}
}
