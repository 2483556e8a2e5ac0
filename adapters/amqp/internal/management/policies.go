package management

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
)

// Policy is a policy or an operator policy of RabbitMQ.
type Policy struct {
	Name       string      `json:"name"`
	Pattern    string      `json:"pattern"`
	ApplyTo    string      `json:"apply-to"`
	Priority   json.Number `json:"priority"`
	Definition Object      `json:"definition"`
	operator   bool
}

func (p *Policy) String() string {
	if p.operator {
		return fmt.Sprintf("operator policy %q", p.Name)
	}
	return fmt.Sprintf("policy %q", p.Name)
}

// IsOperator reports whether the policy is one of the service's operator, which the user may be unable to change.
func (p *Policy) IsOperator() bool { return p.operator }

// matches reports whether a policy applies to a queue. It returns an error if only Erlang can read the pattern.
func (p *Policy) matches(q QueueInfo) (bool, error) {
	switch p.ApplyTo {
	case "", "all", "queues":
	case "classic_queues", "quorum_queues", "streams":
		if !strings.HasPrefix(p.ApplyTo, q.Type) {
			return false, nil
		}
	default: // exchanges
		return false, nil
	}
	pattern, err := regexp.Compile(p.Pattern)
	if err != nil {
		return false, err
	}
	return pattern.MatchString(q.Name), nil
}

func (p *Policy) priority() int64 {
	n, _ := p.Priority.Int64() // an invalid one is 0, RabbitMQ's default
	return n
}

// Policies are the policies and the operator policies of a virtual host.
type Policies struct {
	lists  [2][]*Policy
	Denied bool // the user may not list all of them
}

// Policies lists the policies and the operator policies.
func (m *API) Policies(ctx context.Context) (ps Policies, err error) {
	for i, path := range []string{"policies", "operator-policies"} {
		err := m.get(ctx, &ps.lists[i], nil, path, m.vhost)
		if IsDenied(err) {
			ps.Denied = true
			continue
		}
		if err != nil {
			return ps, err
		}
		for _, p := range ps.lists[i] {
			if p == nil {
				return ps, fmt.Errorf("amqp: the management API at %s lists a %s that is null", m.base, path)
			}
			p.operator = i == 1
		}
	}
	return ps, nil
}

// Settings returns a queue with the policies that apply to it. unsure names policies whose patterns Go cannot read.
func (ps Policies) Settings(q QueueInfo) (r QueueSettings, unsure []string) {
	r.QueueInfo = q
	for i, named := range []*string{q.Policy, q.OperatorPolicy} {
		p, names := policyOf(ps.lists[i], q, named)
		if p != nil {
			p.operator = i == 1
			r.Policies = append(r.Policies, p)
		}
		unsure = append(unsure, names...)
	}
	return r, unsure
}

// policyOf returns the one of all policies that applies to a queue, or nil. The broker's own answer, named, takes
// precedence over the patterns, which decide for a queue that does not exist yet or has no statistics yet.
func policyOf(all []*Policy, q QueueInfo, named *string) (found *Policy, unsure []string) {
	if q.Effective != nil {
		if named == nil || *named == "" {
			return nil, nil
		}
		for _, p := range all {
			if p.Name == *named {
				return p, nil
			}
		}
		// It is not listed, but the effective definition contains it.
		return &Policy{Name: *named, Definition: *q.Effective}, nil
	}
	for _, p := range all {
		ok, err := p.matches(q)
		if err != nil {
			unsure = append(unsure, p.String())
		} else if ok && (found == nil || p.priority() > found.priority()) {
			found = p
		}
	}
	return found, unsure
}

// Setting is one limit on a queue and its source.
type Setting struct {
	Key   string
	Value any
	By    string
}

func (s Setting) String() string {
	return fmt.Sprintf("%s=%s by %s", s.Key, wire.ValueText(s.Value), s.By)
}

// Number returns the value of a limit.
func (s Setting) Number() (int64, bool) {
	n, ok := s.Value.(json.Number)
	if !ok {
		n = json.Number(fmt.Sprint(s.Value))
	}
	v, err := n.Int64()
	return v, err == nil
}

func (s Setting) Duration() (time.Duration, bool) {
	ms, ok := s.Number()
	return time.Duration(ms) * time.Millisecond, ok
}

// QueueSettings is an existing or planned queue with the policies that apply to it.
type QueueSettings struct {
	QueueInfo
	Policies []*Policy // policy, then operator policy
}

// Settings returns all values of a key, given without "x-": argument, policy, operator policy.
func (r QueueSettings) Settings(key string) (all []Setting) {
	if v, ok := r.Arguments["x-"+key]; ok {
		all = append(all, Setting{key, v, "argument"})
	}
	for _, p := range r.Policies {
		if v, ok := p.Definition[key]; ok {
			all = append(all, Setting{key, v, p.String()})
		}
	}
	return all
}

// Lowest returns the smallest limit, which is the one that RabbitMQ applies. Negative values are no limit.
func (r QueueSettings) Lowest(key string) (found Setting, ok bool) {
	var low int64
	for _, s := range r.Settings(key) {
		if v, is := s.Number(); is && v >= 0 && (!ok || v < low) {
			found, low, ok = s, v, true
		}
	}
	return found, ok
}

// RabbitMQ4Limit is the default delivery limit of a quorum queue since RabbitMQ 4.
const RabbitMQ4Limit = 20

// MaxDeliveries returns the limit at which the broker removes a message. hasDefault reports whether the server has a
// default, as RabbitMQ 4 does. A classic queue has no limit.
func (r QueueSettings) MaxDeliveries(hasDefault bool) (found Setting, ok bool) {
	if r.Type != amqp091.QueueTypeQuorum {
		return found, false
	}
	found, ok = r.Lowest("delivery-limit")
	if !ok && hasDefault && len(r.Settings("delivery-limit")) == 0 && fmt.Sprint(r.DeliveryLimit) != "unlimited" {
		return Setting{Key: "delivery-limit", Value: RabbitMQ4Limit, By: "RabbitMQ 4's default"}, true
	}
	return found, ok
}

// Preferred returns the value of a key for which RabbitMQ prefers the argument.
func (r QueueSettings) Preferred(key string) (found Setting, ok bool) {
	all := r.Settings(key)
	if len(all) == 0 {
		return Setting{}, false
	}
	return all[0], true
}
