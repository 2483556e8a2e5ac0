//go:build prove

package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/chaos/history"
)

// TestChaos breaks each broker's network, nodes and consumers at random, heals everything, and checks every promise. It
// takes 2 minutes, or half an hour with REDELIVER_SOAK. REDELIVER_CHAOS_SEED repeats a run. REDELIVER_CHAOS_LENGTH sets
// the duration of the faults (10m). REDELIVER_CHAOS_HISTORY is a directory for the histories, which are then also kept
// after success.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	steps := stepsOf(seed)
	for _, c := range []scenario{
		{
			"kafka",
			[]history.Load{{Name: "plain", Steps: steps, Order: history.OrderFirstAttempts}, {Name: "perkey", Steps: steps, Order: history.OrderThroughRetries}},
			[]int{25, 20},
			func(t *testing.T, loads []history.Load) system { return newKafkaSystem(t, loads) },
		},
		{
			"rabbitmq", []history.Load{{Name: "plain", Steps: steps, Suspects: true}}, []int{20},
			func(t *testing.T, loads []history.Load) system { return newRabbitSystem(t, brokers.RabbitMQ3, loads) },
		},
		{
			"sqs", []history.Load{{Name: "plain", Steps: []time.Duration{time.Second, 2 * time.Second, 2 * time.Second}, Suspects: true}}, []int{10},
			func(t *testing.T, loads []history.Load) system { return newSQSSystem(t, loads) },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.run(t, seed, 50*time.Second)
		})
	}
}

// TestChaosOnNewerRabbitMQ is TestChaos on the other versions of RabbitMQ, for half as long. It ends before TestChaos
// begins, because five brokers at once would be too many.
func TestChaosOnNewerRabbitMQ(t *testing.T) {
	seed := seedOf(t)
	for _, version := range []brokers.RabbitMQVersion{brokers.RabbitMQ4, brokers.RabbitMQ43} {
		c := scenario{
			"rabbitmq-" + string(version), []history.Load{{Name: "plain", Steps: stepsOf(seed), Suspects: true}}, []int{20},
			func(t *testing.T, loads []history.Load) system { return newRabbitSystem(t, version, loads) },
		}
		t.Run(string(version), func(t *testing.T) {
			t.Parallel()
			c.run(t, seed, 25*time.Second)
		})
	}
}

// scenario is a run on one broker.
type scenario struct {
	name  string
	loads []history.Load
	rates []int // messages a second
	open  func(*testing.T, []history.Load) system
}

// run has faults for length, unless the environment names another duration.
func (c scenario) run(t *testing.T, seed uint64, length time.Duration) {
	t.Helper()
	p := plan{
		Run: history.Run{Broker: c.name, Seed: seed, Loads: c.loads, Linger: 20 * time.Second}, rates: c.rates,
		length: cmp.Or(lengthOf(t), length), deadline: 12 * time.Minute, maxWait: 5 * time.Second, consumers: 2,
	}
	runPlan(t, c.open(t, c.loads), p)
}

// stepsOf returns the waits of a run.
func stepsOf(seed uint64) []time.Duration {
	if seed%2 == 0 {
		return []time.Duration{200 * time.Millisecond, 500 * time.Millisecond, time.Second}
	}
	return []time.Duration{time.Second, 2 * time.Second, 2 * time.Second}
}

func seedOf(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("REDELIVER_CHAOS_SEED")
	if text == "" {
		return rand.Uint64() % 1_000_000
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("REDELIVER_CHAOS_SEED: %v", err)
	}
	return seed
}

// lengthOf returns the duration of the faults; 0 means the default.
func lengthOf(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("REDELIVER_CHAOS_LENGTH")
	switch {
	case text == "" && os.Getenv("REDELIVER_SOAK") != "":
		return 28 * time.Minute
	case text == "":
		return 0
	}
	length, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("REDELIVER_CHAOS_LENGTH: %v", err)
	}
	return length
}

// few shortens a list of findings to fit on a screen.
func few(list []history.Violation) string {
	const most = 15
	text := ""
	for _, v := range list[:min(most, len(list))] {
		text += "\n\t" + v.String()
	}
	if len(list) > most {
		text += fmt.Sprintf("\n\tand %d more", len(list)-most)
	}
	return text
}
