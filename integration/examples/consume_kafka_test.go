package examples_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/programs"
)

// Without redeliver ("before") a failed message is lost. With it ("after", and "wrapped" for a service that keeps its
// own consumer group) the message is in the DLQ after its retries.
func TestKafkaConsumeExample(t *testing.T) {
	t.Parallel()
	dir := buildAll(t, "kafka-consume")
	for _, c := range []struct {
		program string
		dead    bool
	}{{"before", false}, {"after", true}, {"wrapped", true}} {
		t.Run(c.program, func(t *testing.T) {
			t.Parallel()
			f := newKafkaTopic(t, newName())
			f.produce(
				&kgo.Record{Key: []byte("o-1"), Value: []byte("paid")},
				&kgo.Record{Key: []byte("o-2"), Value: []byte("declined")},
				&kgo.Record{Key: []byte("o-3"), Value: []byte("paid")},
			)
			addrs := strings.Split(strings.TrimPrefix(f.broker, "kafka://"), ",")
			p := start(t, nil, filepath.Join(dir, c.program), append([]string{f.topic}, addrs...)...)
			var lines []string
			for range 2 {
				line, _ := p.next()
				lines = append(lines, line)
			}
			slices.Sort(lines)
			if want := []string{"order o-1 is charged", "order o-3 is charged"}; !slices.Equal(lines, want) {
				t.Errorf("it says %q, want %q", lines, want)
			}
			if c.dead {
				rec := firstRecords(t, f.broker, f.topic+".billing.dlq", 1)[0]
				headers := make(map[string]string)
				for _, h := range rec.Headers {
					headers[h.Key] = string(h.Value)
				}
				if string(rec.Key) != "o-2" || headers[redeliver.HeaderReason] != "exhausted" || headers[redeliver.HeaderAttempt] != "4" || headers[redeliver.HeaderError] != "card declined" {
					t.Errorf("%s is in the DLQ with %v", rec.Key, headers)
				}
			}
			p.signal(os.Interrupt)
			if more, status := p.rest(), p.status(); len(more) > 0 || status != 0 {
				t.Errorf("it ended with status %d, and said %q", status, more)
			}
			if gone := "order o-2 is not charged: card declined"; strings.Contains(p.errors(), gone) == c.dead {
				t.Errorf("whether it says %q is the difference:\n%s", gone, p.errors())
			}
		})
	}
}

// The programs differ in a few lines.
func TestKafkaConsumeExampleIsAFewLines(t *testing.T) {
	before := source(t, "kafka-consume/before")
	for program, most := range map[string]int{"after": 3, "wrapped": 5} {
		after := source(t, "kafka-consume/"+program)
		added := addedLines(before, after)
		if len(added) > most || len(after) >= 60 || len(before) >= 60 || len(after) > len(before) {
			t.Errorf("%s has %d lines for %d, of which these are new:\n%s", program, len(after), len(before), strings.Join(added, "\n"))
		}
	}
}

// addedLines returns the lines that only the second program has.
func addedLines(before, after []string) (added []string) {
	for _, line := range after {
		if !slices.Contains(before, line) {
			added = append(added, line)
		}
	}
	return added
}

// source returns the lines of a program's main.go, without comments.
func source(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", name, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "//") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// buildAll builds the programs in the subdirectories of an example, and returns the directory with the results.
func buildAll(t *testing.T, example string) (dir string) {
	t.Helper()
	dir, err := programs.Build(example, "./examples/"+example+"/...")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
