package amqp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/topology"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/internal/engine"
	"github.com/redeliver/redeliver/internal/wait"
)

// Doctor checks a queue and the queues on which its messages wait. It checks that they exist, keep
// their messages, are read, and deliver what is due. It lists levels that the policy does not use,
// with the command that deletes each. It consumes, writes and creates nothing. Most of these checks
// need the management API: without Config.ManagementURL they are listed as not checked. Doctor
// returns an error if the broker or that API does not answer.
func (c *client) Doctor(ctx context.Context, topic string, how doctor.Examination) (*doctor.Diagnosis, error) {
	_, s, err := c.survey(ctx, topic)
	if err != nil {
		return nil, err
	}
	return s.Examine(ctx, how, func() (*redeliver.PauseMark, error) { return c.Paused(ctx, topic) })
}

// checkInterval is how often the checks of the start are repeated, and up to a tenth less, so that processes which were
// started together do not ask together.
const checkInterval = 5 * time.Minute

// operationInterval is how often a reader looks at the operations that fail.
const operationInterval = 10 * time.Second

// openChecked is open. A queue that its owner may have declared again is checked first, as at the start.
func (r *reader) openChecked(ctx context.Context, cfg *queueConfig) (*amqp091.Channel, <-chan amqp091.Delivery, error) {
	if cfg.kind == layout.MainQueue && cfg.first == nil {
		if err := r.checkOrigin(ctx, (*topology.Broker).CheckOrigin, "it is not read until that is corrected"); err != nil {
			return nil, nil, err
		}
	}
	return r.open(ctx, cfg)
}

// recordResult records the result of a request, with what to do about a denial. Other errors without an answer of the
// broker are not recorded: the connection is lost, and that is reported once for all its requests.
func (r *reader) recordResult(method, place string, err error) {
	op := engine.Operation{Name: method, Place: place}
	switch {
	case err == nil:
		r.operations.Succeeded(op)
	case link.IsAnswer(err):
		r.operations.Failed(op, link.DescribeDenial(method, place, err), link.IsDenied(err), false)
	}
}

// checkOperation is the repetition of the checks of the start.
func (r *reader) checkOperation() engine.Operation {
	return engine.Operation{Name: "checking the queues", Place: r.layout.Queue}
}

// declareOperation is the declaration of what is missing.
func (r *reader) declareOperation() engine.Operation {
	return engine.Operation{Name: "declaring the queues", Place: r.layout.Queue}
}

// checkOrigin makes a check of the origin, takes over what it has found, and reports problems once, with their result.
func (r *reader) checkOrigin(ctx context.Context, check func(*topology.Broker, context.Context, *layout.Layout, *topology.Origin) error, result string) error {
	r.originMu.Lock()
	defer r.originMu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.client.cfg.SendTimeout)
	defer cancel()
	fresh, err := newLayout(&r.client.cfg, r.layout.Topic)
	if err != nil {
		return err
	}
	err = check(r.client.broker(), ctx, fresh, &r.origin)
	r.expires.Store(r.origin.Expires)
	r.classic.Store(r.origin.Classic)
	if r.origin.Unasked != nil && !r.unasked {
		r.sub.EmitChange(redeliver.ChangeNotChecked, unanswered, r.origin.Unasked)
	}
	r.unasked = r.origin.Unasked != nil
	if topology.IsDenial(err) { // it says nothing about the queues
		r.operations.Failed(r.checkOperation(), err, true, false)
		return err
	}
	if err == nil || errors.Is(err, redeliver.ErrConfig) {
		r.operations.Succeeded(r.checkOperation())
	}
	switch {
	case err == nil:
		r.unfit = ""
	case errors.Is(err, redeliver.ErrConfig) && err.Error() != r.unfit:
		r.unfit = err.Error()
		r.sub.EmitChange(redeliver.ChangeTopicUnfit, result, err)
	}
	return err
}

// restore declares the queues again of which one is missing, and reports it once: its messages are lost.
func (r *reader) restore(ctx context.Context, missing error) error {
	r.mu.Lock()
	if text := missing.Error(); text != r.missing {
		r.missing = text
		r.sub.EmitChange(redeliver.ChangeTopicMissing, "it is declared again; if it was deleted, by a policy with expires for example, the messages on it are lost", missing)
	}
	r.mu.Unlock()
	err := r.declare(ctx)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.missing = ""
	}
	return err
}

// declare declares what is missing.
func (r *reader) declare(ctx context.Context) error {
	err := r.client.declared.restore(ctx, r.layout)
	switch {
	case err == nil:
		r.operations.Succeeded(r.declareOperation())
	case errors.Is(err, redeliver.ErrConfig):
		r.operations.Failed(r.declareOperation(), err, true, false)
	}
	return err
}

// checkRegularly repeats the checks of the start until ctx ends, and more often while the broker refuses them, or the
// declaration of what is missing.
func (r *reader) checkRegularly(ctx context.Context) {
	next := func() time.Time { return time.Now().Add(checkInterval - rand.N(checkInterval/10)) }
	for due := next(); wait.For(ctx, min(operationInterval, time.Until(due))) == nil; {
		failing := r.operations.Failing()
		declares := slices.Contains(failing, r.declareOperation())
		if time.Now().Before(due) && !declares && !slices.Contains(failing, r.checkOperation()) {
			continue
		}
		due = next()
		// Another error has no use: what uses the broker reports it.
		_ = r.checkOrigin(ctx, (*topology.Broker).CheckAgain, "it was changed since the start; messages may be lost")
		r.originMu.Lock()
		missing := strings.Join(r.origin.Missing, ", ")
		r.originMu.Unlock()
		switch {
		case missing != "":
			_ = r.restore(ctx, fmt.Errorf("amqp: %s does not exist", missing)) // see above
		case declares:
			_ = r.declare(ctx) // an exchange or a binding is missing
		}
	}
}
