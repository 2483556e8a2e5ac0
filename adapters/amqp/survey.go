package amqp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
)

// queueBroker is how the checks reach a broker.
type queueBroker struct {
	Consuming, Publishing *link.Link
	Management            *management.API // nil if there is none
	DialTimeout           time.Duration
	ConsumerTimeout       time.Duration
	NoProvisioning        bool
}

// declarer returns a declarer, which must be closed.
func (b *queueBroker) declarer(ctx context.Context) *declarer {
	// Not the publishing connection, which does not answer while the broker is in alarm.
	return &declarer{open: func() (*amqp091.Channel, error) { return b.Consuming.Channel(ctx) }, noProvisioning: b.NoProvisioning}
}

// survey is the broker's information about a subscription's queues before they are declared.
type survey struct {
	broker *queueBroker
	layout *layout.Layout
	server string
	major  int
	minor  int
	// asked reports whether the management API answered; queues has its answer by name.
	asked       bool
	originKnown bool // it described the subscription's queue
	queues      map[string]management.QueueInfo
	refused     map[string]bool // queues of redeliver whose arguments differ
	problems    redeliver.Problems
	notes       []string
	// unchecked lists what was not checked, and why.
	unchecked []string
}

// verify adds what AMQP reports, and returns all problems in one error. there is set even then; it is nil if AMQP did
// not answer.
func (b *queueBroker) verify(ctx context.Context, s *survey, rights bool) (there map[string]bool, err error) {
	d := b.declarer(ctx)
	defer d.close()
	there = d.inspectQueues(s.layout, &s.problems, s.refused, rights)
	switch {
	case s.originKnown || !there[s.layout.Queue]:
	case s.major == 0:
		s.unchecked = append(s.unchecked, fmt.Sprintf("the type of %s (%v)", s.layout.Queue, errNoRabbit))
	default:
		before := len(s.problems)
		s.unchecked = append(s.unchecked, d.checkKind(s.layout.Queue, &s.problems)...)
		if len(s.problems) > before {
			break
		}
		q, why := d.readArguments(s.layout.OriginQueue())
		if why != "" {
			s.unchecked = append(s.unchecked, fmt.Sprintf("the arguments of %s: limit, dead-letter exchange, single active consumer (the broker says: %s)", q.Name, why))
		} else if d.err == nil {
			exists := func(name string) (bool, error) { return d.exists(&s.problems, name), d.err }
			if err := s.checkMain(exists, management.QueueSettings{QueueInfo: q}); err != nil {
				return nil, err
			}
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	if err := b.checkWrite(ctx, s, &d.rights); err != nil {
		s.unchecked = append(s.unchecked, fmt.Sprintf("the right to write to the default exchange (%v)", err))
	}
	d.rights.problems(&s.problems)
	if err := s.problems.Err(); err != nil {
		return there, fmt.Errorf("amqp: %w", err)
	}
	return there, nil
}

// surveyOf asks the management API, if it is configured. The survey has the broker's problems. The error means that
// the API does not answer or, if the survey is nil, that AMQP does not.
func (b *queueBroker) surveyOf(ctx context.Context, l *layout.Layout) (*survey, error) {
	conn, err := b.Publishing.Get(ctx)
	if err != nil {
		return nil, err
	}
	return b.surveyAs(ctx, l, conn.Properties)
}

// surveyAs is surveyOf for a server with these properties.
func (b *queueBroker) surveyAs(ctx context.Context, l *layout.Layout, properties amqp091.Table) (*survey, error) {
	s := &survey{broker: b, layout: l, refused: make(map[string]bool)}
	s.readServer(properties)
	m := b.Management
	if m == nil {
		for _, what := range []string{
			"policies and operator policies on all queues: limits, TTL, expiry, dead-letter exchange",
			"arguments that a declaration does not compare", "feature flags", "how many messages wait, stuck messages, depth of " + l.DLQ(),
			"levels and shards that are left over",
		} {
			s.unchecked = append(s.unchecked, what+" (ManagementURL is not set)")
		}
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.DialTimeout)
	defer cancel()
	return s, s.askManagement(ctx, m, properties)
}

// readServer reads the server's properties of the AMQP connection.
func (s *survey) readServer(properties amqp091.Table) {
	product, _ := properties["product"].(string)
	version, _ := properties["version"].(string)
	s.server = strings.TrimSpace(product + " " + version)
	if product != "RabbitMQ" {
		return
	}
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	s.major, _ = strconv.Atoi(major) // 0 means unknown
	s.minor, _ = strconv.Atoi(minor)
	if s.major > 0 && !s.isAtLeast(3, 10) {
		s.problems.Add("server", s.server, "must be RabbitMQ 3.10 or later: older ones do not dead-letter at least once, and waiting messages can get lost")
	}
}

// isAtLeast reports whether the server has at least this version. It returns false for an unknown version.
func (s *survey) isAtLeast(major, minor int) bool {
	return s.major > major || s.major == major && s.minor >= minor
}

func (s *survey) askManagement(ctx context.Context, m *management.API, properties amqp091.Table) error {
	info, err := m.Overview(ctx)
	if err != nil {
		return err
	}
	s.asked = true
	if cluster, _ := properties["cluster_name"].(string); cluster != "" && info.Cluster != "" && cluster != info.Cluster {
		s.problems.Add("ManagementURL", info.Cluster, "must belong to the cluster of URLs, which is "+cluster)
		return nil
	}
	if err := s.flags(ctx, m); err != nil {
		return err
	}
	user, err := m.Policies(ctx, false)
	if err != nil {
		return err
	}
	operator, err := m.Policies(ctx, true)
	if err != nil {
		return err
	}
	if s.queues, err = m.Queues(ctx, s.layout.Pattern()); err != nil {
		return err
	}
	unseen := user.Unread || operator.Unread
	if unseen {
		s.unchecked = append(s.unchecked, "policies on queues that do not exist yet (the user of ManagementURL may not list policies)")
	}
	rule := func(q management.QueueInfo) management.QueueSettings {
		r := management.QueueSettings{QueueInfo: q}
		for _, ps := range []management.Policies{user, operator} {
			p, unsure := ps.Of(q)
			if p != nil {
				r.Policies = append(r.Policies, p)
			}
			for _, name := range unsure {
				s.unchecked = append(s.unchecked, fmt.Sprintf("whether %s is for %s (Go cannot read its pattern)", name, q.Name))
			}
		}
		if q.Effective == nil && q.State != "" && unseen {
			s.unchecked = append(s.unchecked, "policies on "+q.Name+" (the broker has not counted it yet)")
		}
		return r
	}
	origin := s.layout.OriginQueue()
	exists := func(name string) (bool, error) { return m.Exists(ctx, name) }
	if err := s.checkMain(exists, rule(s.infoOf(origin))); err != nil {
		return err
	}
	s.originKnown = true
	for _, q := range s.layout.Queues {
		s.checkOwn(q, rule(s.infoOf(q)))
	}
	s.noteOldLevels()
	return nil
}

// infoOf returns the known information about an existing queue, or the expected one about a queue that will be
// created.
func (s *survey) infoOf(q layout.Queue) management.QueueInfo {
	if there, ok := s.queues[q.Name]; ok {
		return there
	}
	kind, _ := q.Args[amqp091.QueueTypeArg].(string)
	return management.QueueInfo{Name: q.Name, Type: cmp.Or(kind, amqp091.QueueTypeClassic), Durable: true, Arguments: management.Object(q.Args)}
}

func (s *survey) flags(ctx context.Context, m *management.API) error {
	missing, err := m.Disabled(ctx, "quorum_queue", "stream_queue")
	switch {
	case management.IsDenied(err):
		s.unchecked = append(s.unchecked, "feature flags (the user of ManagementURL may not list them; it needs the tag administrator)")
		return nil
	case err != nil:
		return err
	}
	for _, flag := range missing {
		s.problems.Add("feature flag "+flag, "disabled", fmt.Sprintf(
			"must be enabled, or dead-lettering is not at least once, and waiting messages can get lost: rabbitmqctl enable_feature_flag %s", flag))
	}
	return nil
}

// noteOldLevels notes the levels and shards that this policy no longer has.
func (s *survey) noteOldLevels() {
	for _, old := range s.oldLevels() {
		s.noteStuck(old, s.queues[old.Name])
		waiting := "how many messages wait on it is not known yet"
		if n := s.queues[old.Name].Messages; n != nil {
			waiting = fmt.Sprintf("%d messages wait on it and come back by themselves", *n)
			if *n == 0 {
				waiting = "it is empty"
			}
		}
		s.notes = append(s.notes, fmt.Sprintf("%s belongs to an older policy or number of shards; %s; delete it when it is empty and no older version of the service runs", old.Name, waiting))
	}
}

// oldLevels returns the existing delay queues that are no longer written to.
func (s *survey) oldLevels() (found []layout.Queue) {
	for _, name := range slices.Sorted(maps.Keys(s.queues)) {
		level, ok := s.layout.Names.Level(s.layout.Queue, name)
		if ok && s.layout.ShardOf(name, level) >= 0 && !slices.ContainsFunc(s.layout.Queues, func(q layout.Queue) bool { return q.Name == name }) {
			found = append(found, layout.Queue{Name: name, Kind: layout.DelayQueue, Level: level, Args: amqp091.Table(s.queues[name].Arguments)})
		}
	}
	return found
}
