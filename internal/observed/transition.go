package observed

import "github.com/redeliver/redeliver"

// Transition is the beginning or the end of a problem of a subscription.
type Transition struct {
	Problem string // the kind of problem
	Begins  bool   // otherwise it ends
}

// The kinds of problems of a subscription. The set is closed, because an adapter of another module could report any
// number of attribute values.
const (
	disconnected    = "disconnected"
	intakePaused    = "intake paused"
	blocked         = "blocked"
	operationFails  = string(redeliver.ChangeOperationFails)
	throttled       = "throttled"
	outage          = string(redeliver.ChangeOutage)
	probing         = string(redeliver.ChangeProbing)
	flood           = string(redeliver.ChangeFlood)
	handlerPaused   = string(redeliver.ChangePaused)
	groupPaused     = string(redeliver.ChangeGroupPaused)
	commandsNotRead = "commands are not read"
	dedupStoreLost  = "dedup store lost"
	dedupMarksLost  = "dedup marks lost"
	lastDelivery    = string(redeliver.ChangeLastDelivery)
)

// Transitions maps SubscriptionChanged.Change to its meaning. An outage continues while it is probed.
var Transitions = map[redeliver.Change][]Transition{
	redeliver.ChangeDisconnected:        {{disconnected, true}},
	redeliver.ChangeAssigned:            {{disconnected, false}},
	redeliver.ChangeConsuming:           {{disconnected, false}},
	redeliver.ChangeIntakePaused:        {{intakePaused, true}},
	redeliver.ChangeIntakeResumed:       {{intakePaused, false}},
	redeliver.ChangeBlocked:             {{blocked, true}},
	redeliver.ChangeUnblocked:           {{blocked, false}},
	redeliver.ChangeOperationFails:      {{operationFails, true}},
	redeliver.ChangeOperationWorks:      {{operationFails, false}},
	redeliver.ChangeThrottled:           {{throttled, true}},
	redeliver.ChangeThrottleOver:        {{throttled, false}},
	redeliver.ChangeOutage:              {{outage, true}, {probing, false}},
	redeliver.ChangeProbing:             {{outage, true}, {probing, true}},
	redeliver.ChangeOutageOver:          {{outage, false}, {probing, false}},
	redeliver.ChangeFlood:               {{flood, true}},
	redeliver.ChangeFloodOver:           {{flood, false}},
	redeliver.ChangePaused:              {{handlerPaused, true}},
	redeliver.ChangeResumed:             {{handlerPaused, false}},
	redeliver.ChangeGroupPaused:         {{groupPaused, true}},
	redeliver.ChangeGroupResumed:        {{groupPaused, false}},
	redeliver.ChangeCommandsNotRead:     {{commandsNotRead, true}},
	redeliver.ChangeCommandsRead:        {{commandsNotRead, false}},
	redeliver.ChangeDedupStoreLost:      {{dedupStoreLost, true}},
	redeliver.ChangeDedupStoreRecovered: {{dedupStoreLost, false}},
	redeliver.ChangeDedupMarksLost:      {{dedupMarksLost, true}},
	redeliver.ChangeDedupMarksRecovered: {{dedupMarksLost, false}},
	redeliver.ChangeLastDelivery:        {{lastDelivery, true}},
	redeliver.ChangeLastDeliveryOver:    {{lastDelivery, false}},
}
