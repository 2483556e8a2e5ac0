package observed

import "github.com/redeliver/redeliver"

// Turn is that a trouble of a subscription begins or ends.
type Turn struct {
	Trouble string
	Is      bool
}

// What is wrong with a subscription. A set of its own: what an adapter of somebody else's
// tells must not become attributes without bound.
const (
	disconnected = "disconnected"
	paused       = "intake paused"
	blocked      = "blocked"
	throttled    = "throttled"
	outage       = redeliver.ChangeOutage
	probing      = redeliver.ChangeProbing
	flood        = redeliver.ChangeFlood
	commands     = "commands are not read"
	dedup        = "dedup store lost"
	marks        = "dedup marks lost"
)

// Turns are what the changes of a subscription mean, by SubscriptionChanged.Change. An
// outage goes on while it is probed whether it is over.
var Turns = map[string][]Turn{
	"disconnected":             {{disconnected, true}},
	"assigned":                 {{disconnected, false}},
	"consuming":                {{disconnected, false}},
	"intake paused":            {{paused, true}},
	"intake resumed":           {{paused, false}},
	"blocked":                  {{blocked, true}},
	"unblocked":                {{blocked, false}},
	"throttled":                {{throttled, true}},
	"throttle over":            {{throttled, false}},
	redeliver.ChangeOutage:     {{outage, true}, {probing, false}},
	redeliver.ChangeProbing:    {{outage, true}, {probing, true}},
	redeliver.ChangeOutageOver: {{outage, false}, {probing, false}},
	redeliver.ChangeFlood:      {{flood, true}},
	redeliver.ChangeFloodOver:  {{flood, false}},
	"commands are not read":    {{commands, true}},
	"commands are read":        {{commands, false}},
	"dedup store lost":         {{dedup, true}},
	"dedup store back":         {{dedup, false}},
	"dedup marks lost":         {{marks, true}},
	"dedup marks back":         {{marks, false}},
}
