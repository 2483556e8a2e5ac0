package console

import (
	"context"
	"time"
)

// readAge requests the age of the oldest message and the retention. If that fails, these values are unknown, which is
// not an error of the DLQ.
func (svc *service) readAge(ctx context.Context, q *openQueue, s *snapshot, r *pollState) {
	ctx, cancel := context.WithTimeout(ctx, maxReadTime)
	defer cancel()
	if s.Count == 0 {
		s.Oldest = time.Time{}
	} else if at, ok, err := q.q.Oldest(ctx); err == nil && ok {
		s.Oldest = at
	} else {
		s.Oldest = time.Time{}
	}
	if time.Since(r.retentionRead) < pollsPerFullRead*svc.cfg.Refresh {
		return // settings do not change that often
	}
	r.retentionRead = time.Now()
	keeps, err := q.q.Retention(ctx)
	s.Retention, s.HasRetention = keeps, err == nil
	if s.DropLimit, err = q.q.DropLimit(ctx); err != nil {
		s.DropLimit = ""
	}
}

// growth is the change of a DLQ's count: messages that arrived, less messages that left.
type growth struct {
	By   int64
	Over time.Duration // at most an hour; 0 if unknown
}

func (g growth) String() string {
	switch {
	case g.By > 0:
		return formatNumber(g.By) + " more in " + formatDuration(g.Over)
	case g.By < 0:
		return formatNumber(-g.By) + " fewer in " + formatDuration(g.Over)
	default:
		return "no change in " + formatDuration(g.Over)
	}
}

// countHistory holds the counts of the last hour, one per five minutes.
type countHistory struct{ counts []countAt }

type countAt struct {
	at time.Time
	n  int64
}

// add records a count and returns the change within the last hour.
func (g *countHistory) add(at time.Time, n int64) growth {
	for len(g.counts) > 1 && at.Sub(g.counts[0].at) > time.Hour {
		g.counts = g.counts[1:]
	}
	if len(g.counts) == 0 || at.Sub(g.counts[len(g.counts)-1].at) >= recentPeriod {
		g.counts = append(g.counts, countAt{at, n})
	}
	return growth{By: n - g.counts[0].n, Over: at.Sub(g.counts[0].at)}
}
