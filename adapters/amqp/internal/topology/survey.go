package topology

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/link"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/internal/check"
)

// Broker gives checks access to a broker.
type Broker struct {
	Consuming, Publishing *link.Link
	Management            *management.API // nil if there is none
	DialTimeout           time.Duration
	ConsumerTimeout       time.Duration
	NoProvisioning        bool
}

// Declarer returns a declarer, which must be closed.
func (b *Broker) Declarer(ctx context.Context) *Declarer {
	// Not the publishing connection, which does not answer while the broker is in alarm.
	return &Declarer{ctx: ctx, link: b.Consuming, open: func() (*amqp091.Channel, error) { return b.Consuming.Channel(ctx) }, noProvisioning: b.NoProvisioning}
}

// Survey is the broker's information about a subscription's queues before they are declared.
type Survey struct {
	broker *Broker
	layout *layout.Layout
	Server string
	// major and minor are the server's version.
	major, minor int
	// Asked reports whether the management API answered; Queues has its answer by name.
	Asked       bool
	originKnown bool // the API described the origin
	Queues      map[string]management.QueueInfo
	refused     map[string]bool // redeliver's queues whose arguments differ
	Problems    check.Problems
	Notes       []string
	// Unchecked lists what was not checked, and why.
	Unchecked []string
}

// Verify adds what AMQP reports, and returns all problems in one error. there says which queues exist; it is nil if
// AMQP fails.
func (b *Broker) Verify(ctx context.Context, s *Survey, rights bool) (there map[string]bool, err error) {
	d := b.Declarer(ctx)
	defer d.Close()
	there = d.inspectQueues(s, rights)
	if !s.originKnown && there[s.layout.Queue] {
		if err := s.checkExisting(d); err != nil {
			return nil, err
		}
	}
	if d.err != nil {
		return nil, d.err
	}
	if err := b.checkWrite(ctx, &d.rights); err != nil {
		s.Unchecked = append(s.Unchecked, fmt.Sprintf("the right to write to the default exchange (%v)", err))
	}
	return there, d.Refusal(s.Problems)
}

// checkExisting checks the queue of the subscription over AMQP, without a management API.
func (s *Survey) checkExisting(d *Declarer) error {
	q, why := d.readArguments(s.infoOf(s.layout.OriginQueue()))
	return s.checkArgumentsOf(d, q, why)
}

// checkArgumentsOf checks the queue of the subscription, as readArguments returned it.
func (s *Survey) checkArgumentsOf(d *Declarer, q management.QueueInfo, why string) error {
	switch {
	case d.err != nil:
		return d.err
	case why == "":
		exists := func(name string) (bool, error) { return d.Exists(&s.Problems, name), d.err }
		return s.checkMain(exists, management.QueueSettings{QueueInfo: q})
	case d.isStream(q.Name):
		addType(&s.Problems, q.Name, amqp091.QueueTypeStream)
	default:
		s.Unchecked = append(s.Unchecked, fmt.Sprintf("the type and the arguments of %s: limit, dead-letter exchange, single active consumer, auto-delete; if it is a classic queue, an x-delivery-count that a message brings is believed (the broker says: %s)", q.Name, why))
	}
	return nil
}

// Survey asks the management API, if it is configured. The survey has the broker's problems. The error means that
// the API does not answer or, if the survey is nil, that AMQP does not.
func (b *Broker) Survey(ctx context.Context, l *layout.Layout) (*Survey, error) {
	conn, err := b.Publishing.Get(ctx)
	if err != nil {
		return nil, err
	}
	return b.SurveyAs(ctx, l, conn.Properties)
}

// SurveyAs is Survey for a server with these properties.
func (b *Broker) SurveyAs(ctx context.Context, l *layout.Layout, properties amqp091.Table) (*Survey, error) {
	s := &Survey{broker: b, layout: l, refused: make(map[string]bool)}
	s.readServer(properties)
	m := b.Management
	if m == nil {
		for _, what := range []string{
			"policies and operator policies on all queues: limits, TTL, expiry, dead-letter exchange",
			"arguments that a declaration does not compare", "feature flags", "how many messages wait, stuck messages, depth of " + l.DLQ(),
			"levels that are left over",
		} {
			s.Unchecked = append(s.Unchecked, what+" (ManagementURL is not set)")
		}
		return s, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.DialTimeout)
	defer cancel()
	return s, s.askManagement(ctx, m, properties)
}

// readServer reads the server's properties of the AMQP connection.
func (s *Survey) readServer(properties amqp091.Table) {
	product, _ := properties["product"].(string)
	version, _ := properties["version"].(string)
	s.Server = strings.TrimSpace(product + " " + version)
	_, _ = fmt.Sscanf(version, "%d.%d", &s.major, &s.minor) // 0 if the server has no such version
	if product != "RabbitMQ" || !s.isAtLeast(3, 10) {
		s.Problems.Add("server", s.Server, "must be RabbitMQ 3.10 or later: older ones do not dead-letter at least once, and waiting messages can get lost")
	}
}

// isAtLeast reports whether the server has at least this version.
func (s *Survey) isAtLeast(major, minor int) bool {
	return s.major > major || s.major == major && s.minor >= minor
}

// PassiveNeedsConfigure reports whether the server requires the right to configure a queue for a passive declaration, too.
func (s *Survey) PassiveNeedsConfigure() bool { return s.isAtLeast(4, 3) }

func (s *Survey) askManagement(ctx context.Context, m *management.API, properties amqp091.Table) error {
	info, err := m.Overview(ctx)
	if err != nil {
		return err
	}
	s.Asked = true
	if cluster, _ := properties["cluster_name"].(string); cluster != "" && info.Cluster != "" && cluster != info.Cluster {
		s.Problems.Add("ManagementURL", info.Cluster, "must belong to the cluster of URLs, which is "+cluster)
		return nil
	}
	if err := s.flags(ctx, m); err != nil {
		return err
	}
	policies, err := m.Policies(ctx)
	if err != nil {
		return err
	}
	if s.Queues, err = m.Queues(ctx, s.layout.Pattern()); err != nil {
		return err
	}
	if policies.Denied {
		s.Unchecked = append(s.Unchecked, "policies on queues that do not exist yet (the user of ManagementURL may not list policies)")
	}
	settings := func(q layout.Queue) management.QueueSettings {
		r, unsure := policies.Settings(s.infoOf(q))
		for _, name := range unsure {
			s.Unchecked = append(s.Unchecked, fmt.Sprintf("whether %s is for %s (Go cannot read its pattern)", name, q.Name))
		}
		if r.Effective == nil && r.State != "" && policies.Denied {
			s.Unchecked = append(s.Unchecked, "policies on "+q.Name+" (the broker has not counted it yet)")
		}
		return r
	}
	exists := func(name string) (bool, error) { return m.Exists(ctx, name) }
	if err := s.checkMain(exists, settings(s.layout.OriginQueue())); err != nil {
		return err
	}
	s.originKnown = true
	for _, q := range s.layout.Queues {
		s.checkOwn(q, settings(q))
	}
	s.noteOldLevels()
	return nil
}

// infoOf returns the known information about an existing queue, or the expected one about a queue that will be
// created.
func (s *Survey) infoOf(q layout.Queue) management.QueueInfo {
	if there, ok := s.Queues[q.Name]; ok {
		return there
	}
	kind, _ := q.Args[amqp091.QueueTypeArg].(string)
	return management.QueueInfo{Name: q.Name, Type: cmp.Or(kind, amqp091.QueueTypeClassic), Durable: true, Arguments: management.Object(q.Args)}
}

func (s *Survey) flags(ctx context.Context, m *management.API) error {
	missing, err := m.Disabled(ctx, "quorum_queue", "stream_queue")
	switch {
	case management.IsDenied(err):
		s.Unchecked = append(s.Unchecked, "feature flags (the user of ManagementURL may not list them; it needs the tag administrator)")
		return nil
	case err != nil:
		return err
	}
	for _, flag := range missing {
		s.Problems.Add("feature flag "+flag, "disabled", fmt.Sprintf(
			"must be enabled, or dead-lettering is not at least once, and waiting messages can get lost: rabbitmqctl enable_feature_flag %s", flag))
	}
	return nil
}

// noteOldLevels notes the levels that this policy no longer has.
func (s *Survey) noteOldLevels() {
	for _, old := range s.OldLevels() {
		s.noteStuck(old, s.Queues[old.Name])
		s.notef("%s %s", old.Name, s.oldLevelText(old))
	}
}

// oldLevelText describes an old level.
func (s *Survey) oldLevelText(old layout.Queue) string {
	const text = "belongs to an older policy"
	switch n := s.Queues[old.Name].Messages; {
	case n == nil:
		return text + "; how many messages wait on it is not known yet"
	case *n > 0:
		return fmt.Sprintf("%s; %d messages wait on it and come back when they are due", text, *n)
	default:
		return text + " and is empty: when no older version of the service runs, delete it: " + s.broker.Management.DeleteCommand(old.Name)
	}
}

// OldLevels returns the existing delay queues that are no longer written to.
func (s *Survey) OldLevels() (found []layout.Queue) {
	for _, name := range slices.Sorted(maps.Keys(s.Queues)) {
		level, ok := s.layout.Names.Level(s.layout.Queue, name)
		if ok && !slices.ContainsFunc(s.layout.Queues, func(q layout.Queue) bool { return q.Name == name }) {
			found = append(found, layout.Queue{Name: name, Kind: layout.DelayQueue, Level: level, Args: amqp091.Table(s.Queues[name].Arguments)})
		}
	}
	return found
}
