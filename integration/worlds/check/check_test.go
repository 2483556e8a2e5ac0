package check

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// builder builds the history of a world with one service, whose waits are one and two seconds.
type builder struct {
	world plan.World
	lines []history.Line
}

const second = int64(time.Second)

func (b *builder) at(seconds float64, l history.Line) *builder {
	l.At = 1_000*second + int64(seconds*float64(second))
	b.lines = append(b.lines, l)
	return b
}

func (b *builder) begin(at float64, id string, attempt int) *builder {
	return b.at(at, history.Line{Kind: history.Begin, Process: "billing-0.1", Load: "billing", ID: id, Name: "name " + id, Attempt: attempt, Sum: 7})
}

func (b *builder) end(at float64, id string, attempt int, outcome plan.Answer) *builder {
	return b.at(at, history.Line{Kind: history.End, Process: "billing-0.1", Load: "billing", ID: id, Attempt: attempt, Outcome: string(outcome)})
}

func (b *builder) dead(at float64, id, reason string, attempt int) *builder {
	return b.at(at, history.Line{Kind: history.Dead, Process: "billing", Load: "billing", ID: id, Name: "name " + id, Reason: reason, Attempt: attempt, Sum: 7})
}

func (b *builder) fault(from, to float64, what, target string) *builder {
	b.at(from, history.Line{Kind: history.Fault, What: what, Target: target})
	return b.at(to, history.Line{Kind: history.Healed, What: what, Target: target})
}

func (b *builder) handlerPaused(from, to float64) *builder {
	b.at(from, history.Line{Kind: history.Event, Process: "billing-0.1", What: pausedByHandler})
	return b.at(to, history.Line{Kind: history.Event, Process: "billing-0.1", What: resumed})
}

// without removes the lines that find accepts.
func (b *builder) without(find func(history.Line) bool) *builder {
	b.lines = slices.DeleteFunc(b.lines, find)
	return b
}

// change changes the lines of an attempt.
func (b *builder) change(id string, attempt int, kind history.Kind, change func(*history.Line)) *builder {
	for i := range b.lines {
		if l := &b.lines[i]; l.ID == id && l.Attempt == attempt && l.Kind == kind {
			change(l)
		}
	}
	return b
}

// valid returns a history without violations: "good" succeeds, "once" fails once, "bad" fails three times, all of one key.
func valid() *builder {
	fail, ok := plan.Step{Answer: plan.Fail}, plan.Step{Answer: plan.OK}
	b := &builder{world: plan.World{
		Topics: []plan.Topic{{Name: "orders", Partitions: 1}},
		Services: []plan.Service{{
			Group: "billing", Topics: []string{"orders"}, Way: plan.Consume, Processes: 1,
			Versions: []plan.Version{{Order: plan.OrderFirstAttempts, MaxRetries: 2, Steps: []time.Duration{time.Second, 2 * time.Second}, Timeout: 5 * time.Second, MaxInFlight: 9, MaxRetriesInFlight: 9}},
		}},
		Messages: []plan.Message{
			{ID: "good", Topic: "orders", Key: "k", Script: []plan.Step{ok}}, {ID: "once", Topic: "orders", Key: "k", Script: []plan.Step{fail, ok}},
			{ID: "bad", Topic: "orders", Key: "k", Script: []plan.Step{fail}},
		},
	}}
	b.at(-100, history.Line{Kind: history.Started, Process: "billing-0.1", Load: "billing", What: "0"})
	for i, id := range []string{"good", "once", "bad"} {
		b.at(1, history.Line{Kind: history.Write, ID: id, Load: "orders", Sum: 7})
		b.at(1, history.Line{Kind: history.Written, ID: id, Load: "orders", Offset: int64(i)})
	}
	b.begin(2, "good", 1).end(2.1, "good", 1, plan.OK)
	b.begin(2.2, "once", 1).end(2.3, "once", 1, plan.Fail).begin(3.3, "once", 2).end(3.4, "once", 2, plan.OK)
	b.begin(4, "bad", 1).end(4.1, "bad", 1, plan.Fail).begin(5.1, "bad", 2).end(5.2, "bad", 2, plan.Fail).begin(7.2, "bad", 3).end(7.3, "bad", 3, plan.Fail)
	b.at(8, history.Line{Kind: history.Said, What: "healed"})
	return b.dead(9, "bad", "exhausted", 3).at(60, history.Line{Kind: history.Settled})
}

func (b *builder) check(t *testing.T) string {
	t.Helper()
	text, err := json.Marshal(b.world)
	if err != nil {
		t.Fatal(err)
	}
	lines := append([]history.Line{{At: 0, Kind: history.Began, Run: &history.Run{Broker: "kafka", World: text}}}, b.lines...)
	_, violations, err := Check(lines)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, v := range violations {
		kinds = append(kinds, v.Kind+" "+v.ID)
	}
	return strings.Join(kinds, ", ")
}

// All depends on the checker. Each of its findings has a history that must have it, and, if something excuses it, the same history
// with the excuse.
func TestTheCheckerFinds(t *testing.T) {
	lost := func(b *builder) *builder {
		return b.without(func(l history.Line) bool { return l.Kind == history.Dead })
	}
	hundreds := func(b *builder) *builder {
		for range 600 {
			b.begin(20, "good", 1).end(20, "good", 1, plan.OK)
		}
		return b
	}
	immediatelyAgain := func(b *builder) *builder {
		b.world.Services[0].Versions[0].Immediate = 1
		return b.begin(4.2, "once", 1).end(4.2, "once", 1, plan.Fail)
	}
	// The second attempt of "once" extends its batch.
	expiredInBatch := func(b *builder, extend time.Duration) *builder {
		b.world.Services[0].Way, b.world.Services[0].Versions[0].MaxAge = plan.ConsumeBatch, time.Second
		b.world.Messages[1].Script[1].Extend = extend
		return b
	}
	again := func(b *builder) *builder { return b.begin(20, "good", 1).end(20.1, "good", 1, plan.OK) }
	inAnotherProcess := func(b *builder, from float64) *builder {
		b.at(0, history.Line{Kind: history.Started, Process: "billing-0.2", Load: "billing", What: "0"})
		for i := range b.lines {
			if l := &b.lines[i]; l.At >= 1_000*second+int64(from*float64(second)) && l.Process == "billing-0.1" {
				l.Process = "billing-0.2"
			}
		}
		return b
	}
	// The process stops soon after "good" has ended. It may drain for ten seconds.
	drained := func(b *builder, from float64) *builder {
		b.world.Services[0].Drain = 10 * time.Second
		b.at(from, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: Stopping})
		return inAnotherProcess(b, 2.2).at(2.4, history.Line{Kind: history.Stopped, Process: "billing-0.1"})
	}
	// An administrator deletes a level while "bad" waits there after one failure.
	const level = "orders.billing.retry.2s"
	deleted := func(b *builder) *builder {
		lost(b).without(func(l history.Line) bool { return l.ID == "bad" && l.Attempt > 1 })
		return b.at(4.5, history.Line{Kind: history.Event, What: Deleted, ID: "bad", Load: "billing", Attempt: 1, Name: level, Target: level + "/0/7"})
	}
	told := func(b *builder, where string, count int64) *builder {
		return b.at(6, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: "MessagesLost", Target: where, Offset: count})
	}
	denied := func(b *builder) *builder {
		return b.at(75, history.Line{Kind: history.Event, Process: "billing-0.1", What: Denied, Name: "Produce", Offset: 9, Due: 1_000*second + 10*second})
	}
	// A handler that hangs, and whose message is returned while its process drains.
	returned := func(b *builder, at float64) *builder {
		b.world.Services[0].Versions[0].MaxRetries = 0
		b.without(func(l history.Line) bool {
			return l.ID == "once" || l.ID == "bad" || l.Kind == history.Begin || l.Kind == history.End
		})
		b.begin(2, "good", 1).at(at, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: "Abandoned", Name: "name good"})
		return b.end(30, "good", 1, plan.Hang).begin(40, "good", 1).end(40.1, "good", 1, plan.OK)
	}
	notBegun := func(b *builder) *builder {
		return b.without(func(l history.Line) bool { return l.ID == "once" && l.Attempt == 1 })
	}
	late := func(b *builder) *builder {
		b.without(func(l history.Line) bool { return l.ID == "once" && l.Attempt == 2 || l.ID == "bad" })
		b.at(30, history.Line{Kind: history.Begin, Process: "billing-0.1", Load: "billing", ID: "once", Name: "name once", Attempt: 2, Sum: 7, Due: 1_000*second + 33*second/10})
		return b.end(31, "once", 2, plan.OK)
	}
	inVain := func(b *builder) *builder {
		for _, at := range []float64{3.5, 3.7} {
			b.begin(at, "bad", 1).end(at+0.1, "bad", 1, plan.OK)
			b.at(at+0.1, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: "Abandoned", Name: "name bad", Reason: ranInVain})
		}
		return b
	}
	restarted := func(b *builder) *builder {
		return inAnotherProcess(b.begin(20, "once", 1).end(20.1, "once", 1, plan.Fail), 20)
	}
	for name, c := range map[string]struct {
		change func(*builder) *builder
		want   string
	}{
		"a run without a fault":                            {func(b *builder) *builder { return b }, ""},
		"a message without an end":                         {lost, "lost bad"},
		"a message that was deleted, and no event says so": {deleted, "untold bad"},
		"not if an event reports the topic":                {func(b *builder) *builder { return told(deleted(b), level, 0) }, ""},
		"nor if it reports the partition":                  {func(b *builder) *builder { return told(deleted(b), level+"/0", 1) }, ""},
		"also if an event reports only that the topic is missing": {func(b *builder) *builder {
			return deleted(b).at(6, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: "a topic is missing", Reason: level + ": the others are read"})
		}, "untold bad"},
		"also if it reports another partition": {func(b *builder) *builder { return told(deleted(b), level+"/1", 1) }, "untold bad"},
		"also if it reports too few":           {func(b *builder) *builder { return told(deleted(b), level+"/0", 0) }, "untold bad"},
		"not if no process lived to notice it": {func(b *builder) *builder { return deleted(b).fault(20, 20, plan.Kill, "billing-0.1") }, ""},
		"a deleted copy of a message that had moved on": {func(b *builder) *builder {
			told(deleted(b), level, 0).at(4.6, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: "RetryScheduled", Name: "name bad", Attempt: 2, Target: "orders.billing.retry.9s"})
			return b
		}, "lost bad"},
		"not in the log of a topic that was created again": {func(b *builder) *builder {
			b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= 2 * second })
			b.at(1.5, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.DeleteOrigin, Target: "orders"})
			return b.change("bad", 0, history.Written, func(l *history.Line) { l.At += second })
		}, ""},
		"not after the offsets were reset": {func(b *builder) *builder {
			return again(b).at(15, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.ResetOffsets, Target: "orders"})
		}, ""},
		"not a message that an operator made the group skip": {func(b *builder) *builder {
			b.without(func(l history.Line) bool { return l.ID == "once" && (l.Kind == history.Begin || l.Kind == history.End) })
			return b.at(7.9, history.Line{Kind: history.Event, What: Skipped, ID: "once", Load: "billing", Name: "orders", Target: "orders/0/1"})
		}, ""},
		"nor one that was there when the group began": {func(b *builder) *builder {
			b.world.Services[0].SkipExisting = true
			b.without(func(l history.Line) bool { return l.ID == "once" && (l.Kind == history.Begin || l.Kind == history.End) })
			return b.at(1.5, history.Line{Kind: history.Event, Load: "billing", Process: "billing-0.1", What: "assigned", Target: "orders"})
		}, ""},
		"also one that was written later": {func(b *builder) *builder {
			b.world.Services[0].SkipExisting = true
			b.without(func(l history.Line) bool { return l.ID == "once" && (l.Kind == history.Begin || l.Kind == history.End) })
			return b.at(0.5, history.Line{Kind: history.Event, Load: "billing", Process: "billing-0.1", What: "assigned", Target: "orders"})
		}, "lost once"},
		"requests that are denied, and no event says so": {denied, "untold "},
		"not if an event has the error": {func(b *builder) *builder {
			return denied(b).at(30, history.Line{Kind: history.Event, Process: "billing-0.1", What: "an operation fails", Reason: "Produce: not authorized"})
		}, ""},
		"also if another process reports it": {func(b *builder) *builder {
			return denied(b).at(30, history.Line{Kind: history.Event, Process: "billing-1.1", What: "an operation fails", Reason: "Produce: not authorized"})
		}, "untold "},
		"nor about a topic that cannot be created": {func(b *builder) *builder {
			return b.at(75, history.Line{Kind: history.Event, Process: "billing-0.1", What: Denied, Name: "CreateTopics", Offset: 9, Due: 1_000*second + 10*second}).
				at(30, history.Line{Kind: history.Event, Process: "billing-0.1", What: "a topic is missing", Reason: "creating topic orders.billing.retry.15s: not authorized"})
		}, ""},
		"not if it is killed": {func(b *builder) *builder { return denied(b).fault(40, 40, plan.Kill, "billing-0.1") }, ""},
		"an attempt after its message had expired": {func(b *builder) *builder {
			b.world.Messages[1].Expires = 1_003 * time.Second // of a world that begins at 0
			return b
		}, "stale once"},
		"an attempt after the maximum age": {func(b *builder) *builder {
			b.world.Services[0].Versions[0].MaxAge = 6 * time.Second
			return b
		}, "stale bad"},
		"also in a batch": {func(b *builder) *builder { return expiredInBatch(b, 0) }, "stale bad"},
		"not if another message extended the batch": {func(b *builder) *builder { return expiredInBatch(b, time.Minute) }, ""},
		"also if its extension was over":            {func(b *builder) *builder { return expiredInBatch(b, 2*time.Second) }, "stale bad"},
		"expired, and it had no limit": {func(b *builder) *builder {
			return b.change("bad", 3, history.Dead, func(l *history.Line) { l.Reason = "expired" })
		}, "wrong end bad"},
		"not if the next attempt would be too late": {func(b *builder) *builder {
			b.world.Services[0].Versions[0].MaxAge = 6 * time.Second
			b.without(func(l history.Line) bool { return l.ID == "bad" && l.Attempt == 3 })
			return b.dead(6, "bad", "expired", 2)
		}, ""},
		"a delayed message that runs too early": {func(b *builder) *builder {
			b.world.Messages[0].Delay = 2 * time.Second
			return b
		}, "early good"},
		"a replay that replays nothing": {func(b *builder) *builder {
			b.at(8.5, history.Line{Kind: history.Event, Process: "billing-0.1", What: "DeadLettered", Name: "name bad", Attempt: 3, Target: "orders.billing.dlq"})
			b.at(10.1, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.Replay, Target: "orders"})
			return b.fault(10, 11, plan.Replay, "billing")
		}, "lost bad"},
		"a replayed message may run again": {func(b *builder) *builder {
			b.begin(12, "bad", 1).end(12.1, "bad", 1, plan.OK)
			return b.fault(10, 11, plan.Replay, "billing")
		}, ""},
		"a message that never ran": {func(b *builder) *builder {
			return b.without(func(l history.Line) bool { return l.ID == "once" && (l.Kind == history.Begin || l.Kind == history.End) })
		}, "lost once"},
		"a retry before its wait is over": {func(b *builder) *builder {
			return b.change("once", 2, history.Begin, func(l *history.Line) { l.At-- })
		}, "early once"},
		"an attempt whose former one has not failed": {func(b *builder) *builder {
			return b.without(func(l history.Line) bool { return l.ID == "once" && l.Attempt == 1 && l.Kind == history.End }).fault(2.25, 2.25, plan.Kill, "billing-0.1")
		}, "skipped once, again once"},
		"an attempt too many":        {func(b *builder) *builder { return b.begin(12, "bad", 4).end(12, "bad", 4, plan.Fail) }, "too many bad"},
		"a commit and a dead letter": {func(b *builder) *builder { return b.dead(10, "once", "exhausted", 2) }, "two ends once, wrong end once"},
		"a dead letter too soon": {func(b *builder) *builder {
			return b.change("bad", 3, history.Dead, func(l *history.Line) { l.Attempt = 2 })
		}, "wrong end bad"},
		"another reason": {func(b *builder) *builder {
			return b.change("bad", 3, history.Dead, func(l *history.Line) { l.Reason = "timeout" })
		}, "wrong end bad"},
		"crashed, and no process died": {func(b *builder) *builder {
			return b.change("bad", 3, history.Dead, func(l *history.Line) { l.Reason = "crashed" })
		}, "wrong end bad"},
		"two dead letters":                             {func(b *builder) *builder { return b.dead(10, "bad", "exhausted", 3) }, "again bad"},
		"a run again without fault":                    {again, "again good"},
		"not after a kill":                             {func(b *builder) *builder { return again(b).fault(2.9, 2.9, plan.Kill, "billing-0.1") }, ""},
		"also after a later kill":                      {func(b *builder) *builder { return again(b).fault(3.2, 3.2, plan.Kill, "billing-0.1") }, "again good"},
		"also after a deploy":                          {func(b *builder) *builder { return again(b).fault(2.2, 2.9, plan.Deploy, "billing") }, "again good"},
		"not soon after a stall":                       {func(b *builder) *builder { return again(b).fault(-20, -10, plan.Stall, "billing-0.1") }, ""},
		"also long after a stall":                      {func(b *builder) *builder { return again(b).fault(-90, -60, plan.Stall, "billing-0.1") }, "again good"},
		"not if its process had no more time to drain": {func(b *builder) *builder { return drained(again(b), -7.7) }, ""},
		"also if it had":                               {func(b *builder) *builder { return drained(again(b), -7.3) }, "again good"},
		"hundreds of runs":                             {hundreds, "again good"},
		"not if each is of a copy, and the group had no offsets": {func(b *builder) *builder {
			for range 600 {
				b.at(10, history.Line{Kind: history.Event, Load: "billing", Process: "billing-0.1", What: "Hopped", Name: "name good", Target: "orders.billing.retry.45ms to orders.billing.retry.45ms"})
			}
			return hundreds(b).at(15, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.ExpireOffsets, Target: "orders"})
		}, ""},
		"immediate retries again": {immediatelyAgain, "again once"},
		"not if the process joined again between them": {func(b *builder) *builder {
			return immediatelyAgain(b).at(4.15, history.Line{Kind: history.Event, Load: "billing", Process: "billing-0.1", What: "assigned", Target: "orders"})
		}, ""},
		"not while commits are late": {func(b *builder) *builder {
			return again(b).at(5, history.Line{Kind: history.Event, Process: "billing-0.1", What: runsAgain})
		}, ""},
		"a message before the earlier one of its key": {func(b *builder) *builder {
			return b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= 2 * second })
		}, "order bad"},
		"not in another partition": {func(b *builder) *builder {
			b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= 2 * second })
			return b.change("bad", 0, history.Written, func(l *history.Line) { l.Partition = 1 })
		}, ""},
		"not if a replay brought back what had expired": {func(b *builder) *builder {
			b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= 2 * second })
			b.change("bad", 3, history.Dead, func(l *history.Line) { l.Reason, l.Attempt = "expired", 0 })
			b.world.Messages[2].Expires = time.Second
			return b.fault(1.5, 1.6, plan.Replay, "billing")
		}, ""},
		"OrderThroughRetries: a message before the earlier one has ended": {func(b *builder) *builder {
			b.world.Services[0].Versions[0].Order = plan.OrderThroughRetries
			return b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= second })
		}, "order bad"},
		"not on a broker without an order": {func(b *builder) *builder {
			b.world.Bounds.Order = plan.OrderNone
			return b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= 2 * second })
		}, ""},
		"the order of a broker, with any policy": {func(b *builder) *builder {
			b.world.Bounds.Order = plan.OrderThroughRetries
			return b.change("bad", 1, history.Begin, func(l *history.Line) { l.At -= second })
		}, "order bad"},
		"not behind a handler that hung before its process died": {func(b *builder) *builder {
			b.world.Bounds.Order, b.world.Services[0].Versions[0].MaxRetries = plan.OrderThroughRetries, 0
			b.without(func(l history.Line) bool {
				return l.Kind == history.Begin || l.Kind == history.End || l.Kind == history.Dead
			})
			b.begin(2, "good", 1).dead(7, "good", "timeout", 1).begin(7, "once", 1).end(7.1, "once", 1, plan.OK)
			return b.begin(7.2, "bad", 1).end(7.2, "bad", 1, plan.OK).fault(7.5, 7.5, plan.Kill, "billing-0.1")
		}, ""},
		"attempts that begin again in another process": {restarted, "again once"},
		"not if a note of a queue with an order was refused": {func(b *builder) *builder {
			b.world.Bounds.Order = plan.OrderThroughRetries
			return restarted(b).at(5, history.Line{Kind: history.Event, Process: "billing-0.1", What: inMemory})
		}, ""},
		"nor if a commit had no room for them": {func(b *builder) *builder {
			b.world.Services[0].Versions[0].Order = plan.OrderBlocking
			return restarted(b).at(5, history.Line{Kind: history.Event, Process: "billing-0.1", What: inMemory})
		}, ""},
		"also with OrderBlocking, if commits had room": {func(b *builder) *builder {
			b.world.Services[0].Versions[0].Order = plan.OrderBlocking
			return restarted(b)
		}, "again once"},
		"a handler that hung before the end of the time to drain":     {func(b *builder) *builder { return returned(b, 7.5) }, ""},
		"not if its timeout had counted":                              {func(b *builder) *builder { return returned(b, 8.5) }, "again good"},
		"more answers that do not count than earlier messages failed": {inVain, "again bad"},
		"not if an earlier one failed whose place is not known": {func(b *builder) *builder {
			inVain(b).at(1, history.Line{Kind: history.Write, ID: "once", Load: "orders", Sum: 7})
			return b.begin(2.5, "once", 1).end(2.6, "once", 1, plan.Fail)
		}, ""},
		"an attempt after one that never began": {notBegun, "skipped once, again once"},
		"not if the time of its batch was over": {func(b *builder) *builder {
			b.world.Services[0].Way = plan.ConsumeBatch
			return notBegun(b).at(2.3, history.Line{Kind: history.Event, Process: "billing-0.1", Load: "billing", What: "RetryScheduled", Name: "name once", Attempt: 1})
		}, ""},
		"also a success": {func(b *builder) *builder {
			return inAnotherProcess(again(b), 20)
		}, "again good"},
		"other bytes": {func(b *builder) *builder {
			return b.change("once", 2, history.Begin, func(l *history.Line) { l.Sum = 8 })
		}, "altered once"},
		"another id": {func(b *builder) *builder {
			return b.change("once", 2, history.Begin, func(l *history.Line) { l.Name = "x" })
		}, "renamed once"},
		"a message that was not written": {func(b *builder) *builder { return b.begin(3, "x", 1) }, "unknown x"},
		"a message that begins in a pause": {func(b *builder) *builder {
			b.at(-30, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.PauseGroup, Target: "orders"})
			return b.without(func(l history.Line) bool { return l.ID != "good" && l.ID != "" })
		}, "not paused good"},
		"not if its process may have had it": {func(b *builder) *builder {
			b.world.Bounds.Pause = time.Minute
			b.at(-30, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.PauseGroup, Target: "orders"})
			return b.without(func(l history.Line) bool { return l.ID != "good" && l.ID != "" })
		}, ""},
		"not of another topic": {func(b *builder) *builder {
			b.at(-30, history.Line{Kind: history.Event, Load: "billing", What: "done: " + plan.PauseGroup, Target: "refunds"})
			return b.without(func(l history.Line) bool { return l.ID != "good" && l.ID != "" })
		}, ""},
		"a message that begins late": {late, "late once"},
		"not after a handler's pause, and its probe": {func(b *builder) *builder {
			return late(b).handlerPaused(3, 29.9)
		}, ""},
		"also if the pause was over": {func(b *builder) *builder { return late(b).handlerPaused(3, 3.2) }, "late once"},
		"a message that runs at the very end": {func(b *builder) *builder {
			return b.at(100, history.Line{Kind: history.Said, What: "at rest"}).begin(101, "good", 1).end(102, "good", 1, plan.OK)
		}, "left good, again good"},
		"an attempt long after all is healed": {func(b *builder) *builder {
			b.without(func(l history.Line) bool { return l.ID == "bad" && l.Attempt == 3 })
			return b.begin(400, "bad", 3).end(401, "bad", 3, plan.Fail).dead(402, "bad", "exhausted", 3)
		}, "restless "},
		"a world that does not end": {func(b *builder) *builder {
			return b.without(func(l history.Line) bool { return l.Kind == history.Settled })
		}, "unsettled "},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.change(valid()).check(t); got != c.want {
				t.Errorf("it finds %q, want %q", got, c.want)
			}
		})
	}
}

// The same seed gives the same plan.
func TestASeedGivesOnePlan(t *testing.T) {
	v := plan.Vocabulary{Ways: []plan.Way{plan.Consume}, Orders: []string{plan.OrderFirstAttempts}, Words: map[string]int{plan.Kill: 1, plan.Cut: 2}}
	one, same, other := fmt.Sprint(plan.Generate(1, v)), fmt.Sprint(plan.Generate(1, v)), fmt.Sprint(plan.Generate(2, v))
	if one != same || one == other {
		t.Errorf("equal %t, different %t", one == same, one != other)
	}
}
