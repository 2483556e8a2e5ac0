// Command checkhistory checks the history of a chaos run again; see docs/evidence/chaos.md.
//
//	go run ./integration/cmd/checkhistory FILE
//
// Its exit status is 0 if it finds no violation, 3 if it finds one, and 1 if FILE is no history.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/redeliver/redeliver/integration/chaos/history"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, "checkhistory: name one history")
		return 2
	}
	lines, err := history.NewReader(args[0]).More()
	if err != nil {
		fmt.Fprintf(stderr, "checkhistory: %v\n", err)
		return 1
	}
	v, err := history.Check(lines)
	if err != nil {
		fmt.Fprintf(stderr, "checkhistory: %s: %v\n", args[0], err)
		return 1
	}
	fmt.Fprintln(stdout, v)
	for _, what := range slices.Sorted(maps.Keys(v.Faults)) {
		fmt.Fprintf(stdout, "%4d x %s\n", v.Faults[what], what)
	}
	for _, found := range v.Violations {
		fmt.Fprintln(stdout, found)
	}
	if len(v.Violations) > 0 {
		return 3
	}
	return 0
}
