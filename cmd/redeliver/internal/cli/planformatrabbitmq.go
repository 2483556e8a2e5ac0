package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/mq"
)

// definitions is a file for rabbitmqctl import_definitions and the management plugin.
type definitions struct {
	Permissions []definedPermission `json:"permissions,omitempty"`
	Queues      []definedQueue      `json:"queues"`
}

type definedQueue struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Arguments  map[string]any `json:"arguments"`
}

type definedPermission struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// planForAdministrator returns a plan for an administrator, who creates the queues without redeliver. It ignores errors
// about missing queues and missing rights of the user.
func planForAdministrator(p *mq.Plan, err error) (*mq.Plan, error) {
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok || p == nil {
		return p, err
	}
	for _, problem := range refused.Problems {
		missing := strings.HasPrefix(problem.Field, "queue ") && problem.Value == "missing"
		if !missing && !strings.HasPrefix(problem.Field, "right to ") {
			return nil, err
		}
	}
	return p, nil
}

// rabbitMQFormatters returns the formatters for RabbitMQ's own tools.
func rabbitMQFormatters(p *mq.Plan, vhost string) map[string]planFormatter {
	return map[string]planFormatter{formatRabbitMQ: func(m *formatFlags) (string, []string, error) {
		d := definitions{Queues: []definedQueue{}}
		add := func(q mq.Place) {
			d.Queues = append(d.Queues, definedQueue{Name: q.Name, VHost: vhost, Durable: true, Arguments: q.Settings})
		}
		for _, q := range p.Places {
			if q.Old || q.Kind == "queue" && q.Exists { // of an older policy, or the service's own queue
				continue
			}
			add(q)
		}
		var notes []string
		for _, q := range p.OperatorPlaces {
			add(q)
			notes = append(notes, q.Name+" is for work on the DLQ")
		}
		if m.principal == "" {
			notes = append(notes, "no permissions are written: name the user with --principal USER")
		} else {
			rights := p.Rights
			if m.role == forOperator {
				rights = p.OperatorRights
			}
			d.Permissions = []definedPermission{{m.principal, vhost, pattern(mq.Allowing(rights, "configure")), pattern(mq.Allowing(rights, "write")), pattern(mq.Allowing(rights, "read"))}}
			notes = append(notes, fmt.Sprintf("user %s and virtual host %s must exist, and the file replaces all permissions of the user there", m.principal, vhost))
		}
		text, err := jsonFile(d)
		return text, notes, err
	}}
}

// pattern returns a pattern that matches exactly these names.
func pattern(names []string) string {
	if len(names) == 0 {
		return "^$"
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^(" + strings.Join(quoted, "|") + ")$"
}
