package main

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// maxNamed is the number of orders of each kind that the summary names.
const maxNamed = 8

// summary prints how every order that was ever placed here ended.
func (s *environment) summary(a *account, placed int, interrupted bool) {
	s.screen.Sayf("\nAfter %.1f s, counted in the topics:", s.screen.Elapsed().Seconds())
	s.screen.Sayf("%5d  orders placed, %d of them in this run", len(a.placed), placed)
	attempts, reasons := map[int]int{}, map[string]int{}
	for _, n := range a.charged {
		attempts[n]++
	}
	for _, state := range a.dead {
		reasons[string(state.Reason)]++
	}
	for _, n := range sortedKeys(attempts) {
		s.screen.Sayf("%5d  charged on attempt %d", attempts[n], n)
	}
	for _, reason := range sortedKeys(reasons) {
		s.screen.Sayf("%5d  in the DLQ, %s", reasons[reason], reason)
	}
	s.screen.Sayf("%5d  still waiting", len(a.waiting))
	s.screen.Sayf("%5d  lost%s", len(a.lost), named(a.lost))
	if a.twice > 0 {
		s.screen.Sayf("%5d  charged twice", a.twice)
	}
	if len(a.dead) > 0 {
		s.screen.Sayf("\nThe end of %s:", s.books.dlq)
		ids := sortedKeys(a.dead)
		slices.SortStableFunc(ids, func(x, y string) int { return a.dead[x].LastFailed.Compare(a.dead[y].LastFailed) })
		for _, id := range ids[max(0, len(ids)-maxNamed):] {
			d := a.dead[id]
			s.screen.Sayf("       %-8s  %-10s after attempt %d: %s", id, d.Reason, d.Attempts, d.Error)
		}
	}
	switch {
	case len(a.lost) > 0:
		s.screen.Sayf("\nThis must not happen: please report it.")
	case interrupted && len(a.waiting) > 0:
		s.screen.Sayf("\nInterrupted. Start it again: waiting messages come first.")
	case len(a.waiting) == 0:
		s.screen.Sayf("\nEvery order was charged or is in the DLQ. The service is examples/quickstart/main.go.")
		s.screen.Sayf("Try it with Ctrl-C or kill -9 in the middle, and start it again.")
	}
}

func named(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ": " + strings.Join(ids[:min(len(ids), maxNamed)], " ")
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
