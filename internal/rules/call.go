package rules

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// Call has the arguments of a function that calls handlers of a client library's own messages: Consume, ConsumeBatch, Wrap.
type Call struct {
	// Kind is "topic" or "queue", and Names are those to read.
	Kind  string
	Names []string
	// NameOf returns the name on the broker. Default: the name itself.
	NameOf func(name string) string
	// CheckName refuses names of topics or queues. Default: Open checks them.
	CheckName func(ps *check.Problems, field, name string)
	// HandlerMissing reports that the handler is nil.
	HandlerMissing bool
	// Marshaler and NackDelay are those of the Config. They concern Watermill messages, so they must be empty.
	Marshaler any
	NackDelay time.Duration
}

// Check returns the problems of the arguments.
func (c *Call) Check() (ps check.Problems) {
	if c.Marshaler != nil {
		ps.Add("Marshaler", fmt.Sprintf("%T", c.Marshaler), "must be nil: the handler gets the client library's own message")
	}
	if c.NackDelay != 0 {
		ps.Add("NackDelay", c.NackDelay, "must be 0: a handler has no nack; it returns redeliver.RetryAfter")
	}
	if len(c.Names) == 0 {
		ps.Add(c.Kind+"s", "empty", "it is required: at least one "+c.Kind)
	}
	var names []string
	for i, name := range c.Names {
		field := fmt.Sprintf("%ss[%d]", c.Kind, i)
		if c.NameOf != nil {
			name = c.NameOf(name)
		}
		if c.CheckName != nil {
			c.CheckName(&ps, field, name)
		}
		if slices.Contains(names, name) {
			ps.Add(field, fmt.Sprintf("%q", name), "must not be listed twice")
		}
		names = append(names, name)
	}
	Require(&ps, "handler", !c.HandlerMissing)
	return ps
}

// Batch adds the problems of a BatchConfig for a subscription with maxInFlight, which may be 0, and returns it with its defaults.
func Batch(ps *check.Problems, b redeliver.BatchConfig, maxInFlight int) redeliver.BatchConfig {
	ps.Include(b.Validate())
	b = b.WithDefaults()
	engine.CheckBatchSize(ps, b, cmp.Or(maxInFlight, DefaultMaxInFlight))
	return b
}

// Require adds a problem if a field is not set.
func Require(ps *check.Problems, field string, set bool) {
	if !set {
		ps.Add(field, "nil", "it is required")
	}
}

// RequireGroup adds a problem if there is no group.
func RequireGroup(ps *check.Problems, field, group string) {
	if group == "" {
		ps.Add(field, `""`, "it is required: a retry comes back to the group that failed it")
	}
}

// RequireBrokers adds a problem if there are no addresses of brokers. form is how one looks.
func RequireBrokers(ps *check.Problems, field string, addresses []string, form string) {
	if len(addresses) == 0 {
		ps.Add(field, "empty", "it is required: "+form+" of at least one broker")
	}
}
