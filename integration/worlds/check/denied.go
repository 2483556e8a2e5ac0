package check

import (
	"slices"
	"strings"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// told is how soon an event reports a right that is missing.
const told = time.Minute

// checkDenials checks that each process reports within a minute that its requests are denied, if nothing else is in the way: its
// event has the broker's error, and names the request unless it is about the membership, a write, or a topic that it cannot create.
func (c *checker) checkDenials() {
	for _, d := range c.denials {
		p := c.processes[d.Process]
		if p == nil || d.Offset < 2 || d.At-d.Due < int64(told) || p.started > d.Due-int64(rebalanceTimeout) {
			continue // one request may have been answered before the right was taken away
		}
		until := d.Due + int64(told)
		if p.stopped != 0 && p.stopped < until || p.killed != 0 && p.killed < until || slices.ContainsFunc(c.faults, func(f fault) bool {
			return f.what != plan.Deny && f.from <= until && (f.to == 0 || f.to+int64(linger) >= d.Due) && !slices.Contains(harmless, f.what)
		}) {
			continue
		}
		if !slices.ContainsFunc(c.events, func(e history.Line) bool {
			return e.Process == d.Process && e.At >= d.Due-int64(told) && e.At <= until && strings.Contains(strings.ToLower(e.Reason), "authoriz") &&
				(strings.Contains(e.Reason, d.Name) || d.Name == "CreateTopics" && e.What == "a topic is missing" || e.What == "disconnected" || e.What == "PublishFailed" || e.What == "ended")
		}) {
			c.violatef(Untold, "", "%d requests %s of %s were denied from %s to %s, and no event says so within %s",
				d.Offset, d.Name, d.Process, time.Duration(d.Due-c.start).Round(time.Millisecond), time.Duration(d.At-c.start).Round(time.Millisecond), told)
		}
	}
}
