package main

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
)

// groups are the suites as they run: each group's at once, one group after another. Adapters has hardly anything to do
// but to wait, and it does so beside unit, which has a processor left when it has compiled; integration has none. Gently,
// each is alone.
func groups(names []string, gently bool) (all [][]string) {
	beside := !gently && slices.Contains(names, "unit") && slices.Contains(names, "adapters")
	for _, name := range names {
		switch {
		case beside && name == "adapters":
		case beside && name == "unit":
			all = append(all, []string{"unit", "adapters"})
		default:
			all = append(all, []string{name})
		}
	}
	return all
}

// runGroup runs suites at once. The first one's output is shown as it comes, that of each other when all have ended.
func runGroup(ctx context.Context, names []string, commands map[string][]string, stdout, stderr io.Writer) []*suite {
	suites := make([]*suite, len(names))
	outs, errs := make([]bytes.Buffer, len(names)), make([]bytes.Buffer, len(names))
	var running sync.WaitGroup
	for i, name := range names {
		says, complains := stdout, stderr
		if i > 0 {
			says, complains = &outs[i], &errs[i]
		}
		running.Go(func() { suites[i] = runSuite(ctx, name, commands[name], says, complains) })
	}
	running.Wait()
	for i := range names {
		_, _ = errs[i].WriteTo(stderr)
		_, _ = outs[i].WriteTo(stdout)
	}
	return suites
}
