package main

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// figures are what docs/evidence/benchmarks.md has measured, as the page shows it: medians.
type figures struct {
	PacedCores   float64 // of a consumer at paced failing messages a second, Kafka
	FloodRate    float64 // messages a second that fail until they are dead, Kafka, on two cores with the broker
	FloodMemory  float64 // MiB, the peak of that consumer
	IdleMemory   float64 // MiB, of a consumer for whom a million messages wait
	RetryBytes   float64 // on the broker's disk for a retry of 1 KiB, in one replica
	RabbitRate   float64 // as FloodRate, RabbitMQ, one shard
	RabbitMemory float64 // MiB
	SQSMessage   float64 // requests for a message that succeeds
	SQSRetry     float64 // requests that a retry costs more
}

// paced is the rate of failing messages at which PacedCores was measured, each retried as often as retriesEach says.
const (
	paced          = 5_000
	retriesEach    = 3
	pacedPartition = 4 // partitions of origin and levels in those rows
)

// read takes the figures out of the page.
func read(page string) (f figures, err error) {
	for _, want := range []struct {
		to          *float64
		row, figure string
	}{
		{&f.PacedCores, "lateness", "CPU of the consumer at 5,000/s"},
		{&f.FloodRate, "fail-all", "redeliver"},
		{&f.FloodMemory, "fail-all", "peak memory"},
		{&f.IdleMemory, "waiting", "peak memory"},
		{&f.RabbitRate, "rabbit-fail-all", "redeliver, 1 shard"},
		{&f.RabbitMemory, "rabbit-fail-all", "peak memory, redeliver, 1 shard"},
		{&f.SQSMessage, "sqs-requests", "requests per message"},
		{&f.SQSRetry, "sqs-requests", "requests per retry"},
	} {
		v, lerr := result(page, want.row, want.figure)
		*want.to, err = v, cmp.Or(err, lerr)
	}
	v, lerr := point(page, "grow-size", "1 KiB", "broker bytes per retry")
	f.RetryBytes = v
	return f, cmp.Or(err, lerr)
}

// result is a figure of the tables that have a line for each: | `row` | figure | median (range) | ...
// The row's name stands in the first line of several.
func result(page, row, figure string) (float64, error) {
	at := ""
	for line := range strings.Lines(page) {
		cells := split(line)
		if len(cells) < 3 {
			at = ""
			continue
		}
		if cells[0] != "" {
			at = strings.Trim(cells[0], "`")
		}
		if at == row && cells[1] == figure {
			return median(cells[2])
		}
	}
	return 0, fmt.Errorf("docs/evidence/benchmarks.md has no figure %q of row %q", figure, row)
}

// point is a figure of a row that grows, which has a table of its own below a heading: a line for each point.
func point(page, row, label, quantity string) (float64, error) {
	_, rest, ok := strings.Cut(page, "\n### `"+row+"`\n")
	if !ok {
		return 0, fmt.Errorf("docs/evidence/benchmarks.md has no section `%s`", row)
	}
	section, _, _ := strings.Cut(rest, "\n#")
	column := -1
	for line := range strings.Lines(section) {
		cells := split(line)
		for i, c := range cells {
			if c == quantity {
				column = i
			}
		}
		if column > 0 && column < len(cells) && cells[0] == label {
			return median(cells[column])
		}
	}
	return 0, fmt.Errorf("docs/evidence/benchmarks.md has no %q at %q in section `%s`", quantity, label, row)
}

func split(line string) []string {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "|") || !strings.HasSuffix(line, "|") || line == "|" {
		return nil
	}
	cells := strings.Split(line[1:len(line)-1], "|")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

var leading = regexp.MustCompile(`^[0-9][0-9,]*(\.[0-9]+)?`)

// median is the number with which a cell begins: "11,000 msg/s (10,700 to 13,400)".
func median(cell string) (float64, error) {
	text := leading.FindString(cell)
	v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64)
	if err != nil || v <= 0 {
		return 0, fmt.Errorf("%q begins with no number above zero", cell)
	}
	return v, nil
}
