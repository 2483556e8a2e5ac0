package live

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/redeliver/redeliver"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// The outcomes of a handler beside the answers of its script.
const (
	timedOut = "timeout" // its context ended because its time was over
	down     = "down"    // the dependency is down
)

// handle runs a message's script, and records when it begins and ends.
func (r *runner) handle(ctx context.Context, p *Process, service int, rec Record) error {
	if p.Killed() {
		<-ctx.Done()
		return ctx.Err()
	}
	id := idOf(rec.Body)
	state, ok := redeliver.FromContext(ctx)
	line := history.Line{
		Process: p.Name, Load: p.Service.Group, ID: id, Name: state.ID, Attempt: state.Attempt(), Sum: sum(rec.Body, rec.Key, rec.Header),
	}
	begin := line
	begin.Kind, begin.What = history.Begin, rec.Topic
	if !state.Due.IsZero() {
		begin.Due = state.Due.UnixNano()
	}
	r.add(begin)
	r.mu.Lock()
	m, isDown := r.messages[id], r.down[service] > 0
	r.moved = time.Now()
	r.mu.Unlock()
	if m == nil || !ok {
		return nil // the checker knows that it was not written
	}
	step := m.Step(state.Attempt())
	if isDown {
		step = plan.Step{Answer: down}
	}
	if step.Answer == plan.Panic && p.Service.Way == plan.ConsumeBatch {
		step.Answer = plan.Fail // a panic would concern the whole batch
	}
	if ctx.Value(besideKey{}) != nil && (step.Answer == plan.Hang || step.Answer == plan.Slow) {
		step.Answer = plan.Fail // otherwise the time of those behind it would be over before they begin
	}
	if step.Extend > 0 {
		_ = redeliver.Extend(ctx, step.Extend)
	}
	outcome, err := r.answer(ctx, p, step)
	if p.Killed() {
		<-ctx.Done()
		return ctx.Err()
	}
	line.Kind, line.Outcome = history.End, outcome
	r.add(line)
	if outcome == history.OK {
		r.setEnded(service, id)
	}
	if outcome == string(plan.Panic) {
		panic("the handler of " + id + " panics")
	}
	return err
}

func (r *runner) answer(ctx context.Context, p *Process, step plan.Step) (outcome string, _ error) {
	takes := step.Takes
	switch step.Answer {
	case plan.Hang:
		rest := time.NewTimer(p.Version.Timeout + takes)
		defer rest.Stop()
		<-ctx.Done()
		cut := !errors.Is(context.Cause(ctx), redeliver.ErrTimeout)
		<-rest.C
		if cut {
			return history.Cut, ctx.Err()
		}
		return string(plan.Hang), nil
	case plan.Slow:
		takes = time.Hour
	}
	timer := time.NewTimer(takes)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // both, on a busy machine
		if errors.Is(context.Cause(ctx), redeliver.ErrTimeout) || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return timedOut, ctx.Err()
		}
		return history.Cut, ctx.Err()
	}
	since := time.Since(r.start)
	switch step.Answer {
	case plan.Fail:
		return string(step.Answer), errors.New("the handler fails")
	case plan.Panic:
		return string(step.Answer), nil
	case plan.Permanent:
		return string(step.Answer), redeliver.Permanent(errors.New("it can never work"))
	case plan.Reject:
		return string(step.Answer), redeliver.Reject("nobody wants it")
	case plan.RetryAfter:
		return string(step.Answer), redeliver.RetryAfter(errors.New("busy"), step.Wait)
	case plan.Postpone:
		if since < step.Until {
			return string(step.Answer), redeliver.Postpone(errors.New("not yet"))
		}
	case plan.Pause:
		if since < step.Until {
			return string(step.Answer), redeliver.Pause(errors.New("all must wait"), step.Wait)
		}
	case down:
		return down, errors.New("the dependency is down")
	}
	return history.OK, nil
}

// sink records redeliver's events.
func (r *runner) sink(p *Process) redeliver.Sink {
	return redeliver.SinkFunc(func(e redeliver.Event) {
		if p.Killed() {
			return
		}
		r.setMoved()
		line := history.Line{Kind: history.Event, Process: p.Name, Load: p.Service.Group, What: reflect.TypeOf(e).Name()}
		switch e := e.(type) {
		case redeliver.Attempted, redeliver.Committed:
			return
		case redeliver.SubscriptionChanged:
			line.What, line.Target, line.Reason = string(e.Change), e.Origin, text(e.Detail, e.Err)
		case redeliver.MessagesLost:
			line.Target, line.Reason, line.Offset = e.Where, e.Detail, e.Count
		case redeliver.PublishFailed:
			line.Name, line.Attempt, line.Target, line.Reason = e.State.ID, e.State.Attempts, e.Where, fmt.Sprintf("try %d: %v", e.Try, e.Err)
		case redeliver.RetryScheduled:
			line.Name, line.Attempt, line.Target, line.Reason = e.State.ID, e.State.Attempts, e.Where, e.Delay.String()
		case redeliver.MessagePostponed:
			line.Name, line.Attempt, line.Target, line.Reason = e.State.ID, e.State.Attempts, e.Where, e.Delay.String()
		case redeliver.DeadLettered:
			line.Name, line.Attempt, line.Target, line.Reason = e.State.ID, e.State.Attempts, e.Where, text(string(e.State.Reason), e.Err)
		case redeliver.Hopped:
			line.Name, line.Attempt, line.Target = e.State.ID, e.State.Attempts, e.From+" to "+e.To
		case redeliver.Abandoned:
			line.Name, line.Attempt, line.Reason = e.State.ID, e.State.Attempts, text("", e.Err)
		case redeliver.HandlerStuck:
			line.Name, line.Attempt = e.State.ID, e.State.Attempts
		case redeliver.LateAnswer:
			line.Name, line.Attempt, line.Reason = e.State.ID, e.State.Attempts, text("", e.Err)
		case redeliver.HeadersIgnored:
			line.Name, line.Target, line.Reason = e.ID, e.Topic, fmt.Sprint(e.Findings)
		}
		r.add(line)
	})
}

func text(detail string, err error) string {
	if err != nil {
		return detail + ": " + err.Error()
	}
	return detail
}
