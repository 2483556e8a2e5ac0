package observed

import "github.com/redeliver/redeliver"

// Turn is the beginning or the end of a problem of a subscription.
type Turn struct {
	Trouble string
	Is      bool
}

// The kinds of problems of a subscription. The set is closed, because an adapter of another module could report any
// number of attribute values.
const (
	disconnected = "disconnected"
	paused       = "intake paused"
	blocked      = "blocked"
	throttled    = "throttled"
	outage       = string(redeliver.ChangeOutage)
	probing      = string(redeliver.ChangeProbing)
	flood        = string(redeliver.ChangeFlood)
	asked        = string(redeliver.ChangePaused)
	groupPaused  = string(redeliver.ChangeGroupPaused)
	commands     = "commands are not read"
	dedup        = "dedup store lost"
	marks        = "dedup marks lost"
	last         = string(redeliver.ChangeLastDelivery)
)

// Turns maps SubscriptionChanged.Change to its meaning. An outage continues while it is probed.
var Turns = map[redeliver.Change][]Turn{
	redeliver.ChangeDisconnected:        {{disconnected, true}},
	redeliver.ChangeAssigned:            {{disconnected, false}},
	redeliver.ChangeConsuming:           {{disconnected, false}},
	redeliver.ChangeIntakePaused:        {{paused, true}},
	redeliver.ChangeIntakeResumed:       {{paused, false}},
	redeliver.ChangeBlocked:             {{blocked, true}},
	redeliver.ChangeUnblocked:           {{blocked, false}},
	redeliver.ChangeThrottled:           {{throttled, true}},
	redeliver.ChangeThrottleOver:        {{throttled, false}},
	redeliver.ChangeOutage:              {{outage, true}, {probing, false}},
	redeliver.ChangeProbing:             {{outage, true}, {probing, true}},
	redeliver.ChangeOutageOver:          {{outage, false}, {probing, false}},
	redeliver.ChangeFlood:               {{flood, true}},
	redeliver.ChangeFloodOver:           {{flood, false}},
	redeliver.ChangePaused:              {{asked, true}},
	redeliver.ChangeResumed:             {{asked, false}},
	redeliver.ChangeGroupPaused:         {{groupPaused, true}},
	redeliver.ChangeGroupResumed:        {{groupPaused, false}},
	redeliver.ChangeCommandsNotRead:     {{commands, true}},
	redeliver.ChangeCommandsRead:        {{commands, false}},
	redeliver.ChangeDedupStoreLost:      {{dedup, true}},
	redeliver.ChangeDedupStoreRecovered: {{dedup, false}},
	redeliver.ChangeDedupMarksLost:      {{marks, true}},
	redeliver.ChangeDedupMarksRecovered: {{marks, false}},
	redeliver.ChangeLastDelivery:        {{last, true}},
	redeliver.ChangeLastDeliveryOver:    {{last, false}},
}
