package prom

import "github.com/redeliver/redeliver"

// What is wrong with a subscription, as values of the label trouble. A set of its own:
// what an adapter of somebody else's tells must not become labels without bound.
const (
	troubleDisconnected = "disconnected"
	troublePaused       = "intake paused"
	troubleBlocked      = "blocked"
	troubleThrottled    = "throttled"
	troubleOutage       = "outage"
	troubleProbing      = "probing"
	troubleFlood        = "flood"
	troubleBudget       = "retry budget spent"
	troubleCommands     = "commands are not read"
	troubleObeying      = "commands are not obeyed"
	troubleDedup        = "dedup store lost"
	troubleMarks        = "dedup marks lost"
)

// turn is that a trouble begins (1) or ends (0).
type turn struct {
	trouble string
	to      float64
}

// turns are what the changes of a subscription mean, by SubscriptionChanged.Change. An
// outage goes on while it is probed whether it is over.
var turns = map[string][]turn{
	"disconnected":            {{troubleDisconnected, 1}},
	"assigned":                {{troubleDisconnected, 0}},
	"consuming":               {{troubleDisconnected, 0}},
	"intake paused":           {{troublePaused, 1}},
	"intake resumed":          {{troublePaused, 0}},
	"blocked":                 {{troubleBlocked, 1}},
	"unblocked":               {{troubleBlocked, 0}},
	"throttled":               {{troubleThrottled, 1}},
	"throttle over":           {{troubleThrottled, 0}},
	"outage":                  {{troubleOutage, 1}, {troubleProbing, 0}},
	"probing":                 {{troubleOutage, 1}, {troubleProbing, 1}},
	"outage over":             {{troubleOutage, 0}, {troubleProbing, 0}},
	"flood":                   {{troubleFlood, 1}},
	"flood over":              {{troubleFlood, 0}},
	"retry budget spent":      {{troubleBudget, 1}},
	"retry budget back":       {{troubleBudget, 0}},
	"commands are not read":   {{troubleCommands, 1}},
	"commands are read":       {{troubleCommands, 0}},
	"commands are not obeyed": {{troubleObeying, 1}},
	"commands are obeyed":     {{troubleObeying, 0}},
	"dedup store lost":        {{troubleDedup, 1}},
	"dedup store back":        {{troubleDedup, 0}},
	"dedup marks lost":        {{troubleMarks, 1}},
	"dedup marks back":        {{troubleMarks, 0}},
}

// changed keeps what is wrong with a subscription now. Changes are told in the order in
// which they came to be.
func (s *Sink) changed(e *redeliver.SubscriptionChanged) {
	s.of(place{e.Origin, e.Group}) // from when it begins there is something to count from
	for _, t := range turns[e.Change] {
		s.impaired.WithLabelValues(e.Origin, e.Group, t.trouble).Set(t.to)
	}
}
