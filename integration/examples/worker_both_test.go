package examples_test

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
)

// everywhere returns an origin with the same name on each broker.
func everywhere(t *testing.T) []*origin {
	t.Helper()
	name := newName()
	return []*origin{newKafkaTopic(t, name).origin, newQueue(t, name).origin, newSQSQueue(t, name).origin}
}

// ruledMessage has the headers of a message and the lines that the worker must write about it.
type ruledMessage struct {
	headers map[string]string
	steps   []step
}

// ends reports whether the message ends the worker's process.
func (m ruledMessage) ends() bool { return m.steps[len(m.steps)-1].event == "attempt" }

// exits has the lines about a message that ends the process.
var exits = []step{{"attempt", 1, ""}}

// A worker writes the same lines on each broker, except for ids, times and keys.
func TestWorkerWritesTheSameLinesOnEachBroker(t *testing.T) {
	t.Parallel()
	cases := map[string][]ruledMessage{"exit": {{nil, exits}}}
	byHeader := []ruledMessage{{nil, rules["never"]}}
	for _, rule := range slices.Sorted(maps.Keys(rules)) {
		cases[rule] = []ruledMessage{{nil, rules[rule]}}
		byHeader = append(byHeader, ruledMessage{map[string]string{"fail": rule, "other": "always"}, rules[rule]})
	}
	// One worker handles all messages, each of which has its own rule.
	cases["header:fail"] = append(byHeader,
		ruledMessage{map[string]string{"fail": "no such rule"}, rules["permanent"]},
		ruledMessage{map[string]string{"fail": "header:other", "other": "always"}, rules["permanent"]}, // does not lead on
		ruledMessage{map[string]string{"fail": "exit"}, exits},
	)
	for rule, messages := range cases {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			var first []string
			for _, o := range everywhere(t) {
				p := o.work(append(quick, "--fail", rule)...)
				for _, m := range messages {
					p.expect(o, o.send(m.headers), o.key, quickDelay, m.steps...)
				}
				if messages[len(messages)-1].ends() {
					if more, status := p.rest(), p.status(); status != 1 || len(more) > 0 {
						t.Errorf("exit status %d, more lines %q; want 1 and none", status, more)
					}
				} else {
					p.stop()
				}
				said := normal(t, p.said)
				if first == nil {
					first = said
				} else if !slices.Equal(said, first) {
					t.Errorf("on Kafka\n%q\non %s\n%q", first, o.broker, said)
				}
			}
		})
	}
}

// normal returns lines without the parts that differ between runs and brokers.
func normal(t *testing.T, lines []string) []string {
	t.Helper()
	var all []string
	for _, line := range lines {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, "key") // queues have none
		for _, name := range []string{"id", "at", "due"} {
			if _, there := fields[name]; there {
				fields[name] = "..."
			}
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// At SIGTERM a running handler may finish, and its message is committed.
func TestWorkerEndsGracefully(t *testing.T) {
	t.Parallel()
	for _, s := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			for _, o := range everywhere(t) {
				p := o.work("--work", "1s")
				id := o.send(nil)
				p.expect(o, id, o.key, 0, step{"attempt", 1, ""})
				p.signal(s)
				p.expect(o, id, o.key, 0, step{"commit", 1, ""})
				if more, status := p.rest(), p.status(); status != 0 || len(more) > 0 {
					t.Errorf("%s: exit status %d, more lines %q; want 0 and none", o.broker, status, more)
				}
				// The next worker does not get the message again.
				id = o.send(nil)
				p = o.work()
				p.expect(o, id, o.key, 0, rules["never"]...)
				p.stop()
			}
		})
	}
}
