package command_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// The users of the guarded Kafka, and the password of both.
const (
	consumer = "billing"
	operator = "ops"
	password = "pa55"
)

// guarded is a Kafka whose users may do what ACLs allow, with an administrator who may do everything.
type guarded struct {
	*brokers.Broker
	cl  *kgo.Client
	adm *kadm.Client
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	// No test kills it, so a long session lets it keep its partitions while it is paused.
	g := &guarded{Broker: brokers.OwnKafka(t, brokers.KafkaOptions{Heap: "512m", Session: time.Minute, Users: map[string]string{consumer: password, operator: password}})}
	cl, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(g.Addrs()...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	g.cl, g.adm = cl, kadm.NewClient(cl)
	return g
}

// kafkaRights is a topic of the guarded Kafka with its group, and the command's plan for them.
type kafkaRights struct {
	*shop
	g *guarded
}

// newKafkaRights creates a topic, and everything else that the plan says the group needs.
func newKafkaRights(t *testing.T, g *guarded) *kafkaRights {
	t.Helper()
	s := &kafkaRights{&shop{t: t, url: "kafka://" + strings.Join(g.Addrs(), ","), topic: name(), group: "it's a group: $HOME `id` " + name()}, g}
	kafkatest.MakeTopic(t, g.adm, 1, nil, s.topic)
	s.there(s.topic)
	s.send = func(body string, _ ...string) {
		t.Helper()
		if err := g.cl.ProduceSync(t.Context(), &kgo.Record{Topic: s.topic, Value: []byte(body)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, call := range calls(t, s.planned("kafka-topics"), "--command-config", "admin.properties") {
		s.create(call)
	}
	plan, err := s.open(t.Context(), g.Addrs(), "", func(redeliver.Event) {}).Plan(t.Context(), s.topic)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range plan.Places {
		if topic.Kind == "dlq" {
			s.dlq = topic.Name
		}
	}
	s.whose = []string{"--topic", s.topic, "--group", s.group}
	return s
}

// planned returns the output of the command in a format.
func (s *kafkaRights) planned(format string, more ...string) string {
	s.t.Helper()
	return s.command(0, append([]string{"plan", "--topic", s.topic, "--group", s.group, "--retries", "1", "--backoff", "fixed:1s", "--levels", "1s", "--format", format}, more...)...)
}

// create does what kafka-topics.sh would.
func (s *kafkaRights) create(call []string) {
	s.t.Helper()
	flags := flagsOf(s.t, call, "create", "if-not-exists")
	n, err1 := strconv.Atoi(strings.Join(flags["partitions"], " "))
	replicas, err2 := strconv.Atoi(strings.Join(flags["replication-factor"], " "))
	if err := errors.Join(err1, err2); err != nil || call[0] != "kafka-topics.sh" || len(flags["topic"]) != 1 || flags["create"] == nil || flags["if-not-exists"] == nil ||
		!slices.Equal(flags["bootstrap-server"], s.g.Addrs()) || !slices.Equal(flags["command-config"], []string{"admin.properties"}) {
		s.t.Fatalf("%q: %v", call, err)
	}
	settings := make(map[string]*string)
	for _, c := range flags["config"] {
		name, value, _ := strings.Cut(c, "=")
		settings[name] = &value
	}
	if _, err := s.g.adm.CreateTopic(s.t.Context(), int32(n), int16(replicas), settings, flags["topic"][0]); err != nil {
		s.t.Fatal(err)
	}
	s.there(flags["topic"][0])
}

// there waits until the broker knows a topic that its controller has created.
func (s *kafkaRights) there(topic string) {
	s.t.Helper()
	if err := kafkatest.AwaitTopics(s.t.Context(), s.g.adm, topic); err != nil {
		s.t.Fatal(err)
	}
}

// right is one ACL.
type right struct {
	principal, resource, name, operation string
}

func (r right) acl() *kadm.ACLBuilder {
	op, err := kmsg.ParseACLOperation(strings.ToUpper(r.operation))
	if err != nil {
		panic(err)
	}
	b := kadm.NewACLs().Allow(r.principal).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(op)
	if r.resource == "group" {
		return b.Groups(r.name)
	}
	return b.Topics(r.name)
}

// rights returns the ACLs that kafka-acls.sh would create.
func (s *kafkaRights) rights(user, whose string) (all []right) {
	s.t.Helper()
	for _, call := range calls(s.t, s.planned("kafka-acls", "--principal", "User:"+user, "--for", whose)) {
		flags := flagsOf(s.t, call, "add")
		if call[0] != "kafka-acls.sh" || flags["add"] == nil || !slices.Equal(flags["allow-principal"], []string{"User:" + user}) || !slices.Equal(flags["bootstrap-server"], s.g.Addrs()) {
			s.t.Fatalf("%q", call)
		}
		for _, resource := range []string{"topic", "group"} {
			for _, name := range flags[resource] {
				for _, operation := range flags["operation"] {
					all = append(all, right{"User:" + user, resource, name, operation})
				}
			}
		}
	}
	if len(all) < 5 {
		s.t.Fatalf("%s has the rights %v only", user, all)
	}
	return all
}

// grant grants all rights except one.
func (s *kafkaRights) grant(all []right, without right) {
	s.t.Helper()
	all = slices.DeleteFunc(slices.Clone(all), func(r right) bool { return r == without })
	for _, r := range all {
		results, err := s.g.adm.CreateACLs(s.t.Context(), r.acl())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, result := range results {
			if result.Err != nil {
				s.t.Fatalf("%v: %v", r, result.Err)
			}
		}
	}
	s.until(all[len(all)-1], true)
}

// revoke removes rights.
func (s *kafkaRights) revoke(all []right) {
	s.t.Helper()
	for _, r := range all {
		if _, err := s.g.adm.DeleteACLs(s.t.Context(), r.acl()); err != nil {
			s.t.Fatal(err)
		}
	}
	s.until(all[len(all)-1], false)
}

// until waits until the broker knows the latest change, and so all earlier ones.
func (s *kafkaRights) until(r right, given bool) {
	s.t.Helper()
	s.awaits(fmt.Sprintf("the broker does not say that %v is given: %v", r, given), func() bool {
		results, err := s.g.adm.DescribeACLs(s.t.Context(), r.acl())
		if err != nil {
			s.t.Fatal(err)
		}
		known := false
		for _, result := range results {
			known = known || len(result.Described) > 0
		}
		return known == given
	})
}

// awaits waits until so returns true.
func (s *kafkaRights) awaits(not string, so func() bool) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(maxWait); !so(); {
		select {
		case <-tick.C:
		case <-deadline:
			s.t.Fatal(not)
		}
	}
}

// login returns a client's configuration with a user.
func login(user string) *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	if user != "" {
		cfg.Net.SASL.Enable = true
		cfg.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		cfg.Net.SASL.User, cfg.Net.SASL.Password = user, password
	}
	return cfg
}

func (s *kafkaRights) config(sink redeliver.SinkFunc) kafka.Config {
	return kafka.Config{
		Group: s.group, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second}},
		NoProvisioning: true, Sink: sink,
	}
}

func (s *kafkaRights) open(ctx context.Context, addrs []string, user string, sink redeliver.SinkFunc) *mq.Client {
	s.t.Helper()
	cfg := s.config(sink)
	cfg.Brokers, cfg.Sarama = addrs, login(user)
	c, err := kafka.Open(ctx, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(ctx)); err != nil {
			s.t.Error(err)
		}
	})
	return c
}

// The instructions for the handler in the messages of a run.
const (
	dies = "dies" // fails twice: it waits on the level, then goes to the DLQ
	soon = "soon" // fails once, and comes back through the retry topic
)

// endings returns a sink that reports which messages of a run have ended, and which errors occurred.
func endings(done chan<- string, failed chan<- error) redeliver.SinkFunc {
	return func(e redeliver.Event) {
		switch e := e.(type) {
		case redeliver.DeadLettered:
			done <- dies
		case redeliver.Committed:
			done <- soon
		case redeliver.PublishFailed:
			failed <- e.Err
		case redeliver.SubscriptionChanged:
			if e.Err != nil {
				failed <- fmt.Errorf("%s: %w", e.Change, e.Err)
			}
		}
	}
}

// run makes the group's member do everything that it supports, and returns the first failure. It returns nil when one
// message has been retried and dead-lettered, one has come back soon, and the settled records on both topics have been
// deleted. ask finds failures that no event reports.
func (s *kafkaRights) run(t *testing.T, ask func() error) error {
	ctx, cancel := context.WithTimeout(t.Context(), 3*maxWait)
	defer cancel()
	failed, done := make(chan error, 1000), make(chan string, 1000)
	client, err := sarama.NewClient(s.g.UserAddrs(), login(consumer))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ended := make(chan error, 1)
	consuming, stop := context.WithCancel(ctx)
	go func() {
		ended <- kafka.Consume(consuming, client, s.config(endings(done, failed)), []string{s.topic}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			st, _ := redeliver.FromContext(ctx)
			switch {
			case string(rec.Value) == dies:
				return errors.New("no")
			case st.Attempt() == 1:
				return redeliver.RetryAfter(errors.New("not yet"), 50*time.Millisecond)
			default:
				return nil
			}
		})
	}()
	defer func() {
		stop()
		if ended != nil {
			if err := <-ended; err != nil {
				t.Log(err)
			}
		}
	}()
	s.send(dies)
	s.send(soon)
	want := map[string]bool{dies: true, soon: true}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case what := <-done:
			delete(want, what)
		case err := <-failed:
			return err
		case err := <-ended:
			ended = nil
			return err
		case <-look.C:
			if len(want) == 0 && s.swept(t) {
				return nil
			}
			if err := ask(); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("nothing is reported, and %v has not ended", want)
		}
	}
}

// doctor returns a function that calls the doctor. A member's client does not report that it may not read a topic on
// which messages wait.
func (s *kafkaRights) doctor(t *testing.T) func() error {
	t.Helper()
	c := s.open(t.Context(), s.g.Addrs(), "", func(redeliver.Event) {})
	return func() error {
		d, err := c.Operations().Doctor(t.Context(), s.topic, doctor.Examination{Late: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range d.Symptoms {
			if found.Kind == doctor.SymptomLate {
				return fmt.Errorf("%s is late: %s", found.Place, found.Text)
			}
		}
		return nil
	}
}

// swept reports whether both topics on which messages waited are empty.
func (s *kafkaRights) swept(t *testing.T) bool {
	t.Helper()
	for _, r := range s.waiting() {
		starts, err1 := s.g.adm.ListStartOffsets(t.Context(), r)
		ends, err2 := s.g.adm.ListEndOffsets(t.Context(), r)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		start, _ := starts.Lookup(r, 0)
		end, _ := ends.Lookup(r, 0)
		if end.Offset == 0 {
			t.Errorf("nothing ever waited on %s", r)
		}
		if start.Offset < end.Offset {
			return false
		}
	}
	return true
}

// waiting returns the topics on which messages wait.
func (s *kafkaRights) waiting() []string {
	back := strings.TrimSuffix(s.dlq, ".dlq") + ".retry"
	return []string{back, back + ".1s"}
}

// The rights that the command prints are sufficient: a consumer with only these retries, dead-letters, and deletes
// settled records; an operator sees the DLQ, replays messages, and purges the rest. They are also necessary: without
// any one of them something fails and is reported, which make prove tests.
func TestOnKafkaWithTheRightsOfThePlanAndNoOther(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	first := newKafkaRights(t, g)
	all := first.rights(consumer, "consumer")
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		s := newKafkaRights(t, g)
		s.grant(s.rights(consumer, "consumer"), right{})
		if err := s.run(t, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		s.operate(t)
	})
	if !brokers.Proving {
		return
	}
	for i, r := range all {
		switch { // slow cases run once, and commands have their own test
		case r.operation == "Delete" && r.name == first.waiting()[0]:
			continue
		case strings.HasSuffix(r.name, ".control"):
			continue
		}
		t.Run(fmt.Sprintf("without %s on %s", r.operation, strings.ReplaceAll(r.name, first.topic, "T")), func(t *testing.T) {
			t.Parallel()
			s := newKafkaRights(t, g)
			mine := s.rights(consumer, "consumer")
			s.grant(mine, mine[i])
			err := s.run(t, s.doctor(t))
			if err == nil {
				t.Errorf("there is no error without %v", mine[i])
			}
			t.Log(err)
		})
	}
}

// operate does an operator's work, with an operator's rights, and checks that some of the rights are necessary.
func (s *kafkaRights) operate(t *testing.T) {
	t.Helper()
	rights := s.rights(operator, "operator")
	ops := *s.shop
	ops.t, ops.url = t, "kafka://"+operator+":"+password+"@"+strings.Join(s.g.UserAddrs(), ",")
	replay := append([]string{"dlq", "replay", "--note", "test", "--yes"}, s.whose...)
	back := s.waiting()[0]
	for _, r := range []right{
		{"User:" + operator, "topic", s.dlq, "Read"}, {"User:" + operator, "topic", s.dlq + ".state", "Write"}, {"User:" + operator, "topic", s.dlq + ".state", "Read"},
		{"User:" + operator, "topic", s.dlq + ".state", "DescribeConfigs"}, {"User:" + operator, "topic", back, "Write"},
	} {
		if !slices.Contains(rights, r) {
			t.Errorf("%v is not one of the operator's rights", r)
		}
		s.grant(rights, r)
		ops.command(1, replay...)
		s.revoke(rights)
	}
	s.grant(rights, right{})
	if shown := ops.rows(0, append([]string{"dlq", "show"}, s.whose...)...); len(shown) != 1 || shown[0]["body_text"] != dies {
		t.Fatalf("%v", shown)
	}
	if out := ops.command(0, append([]string{"doctor", "--retries", "1", "--backoff", "fixed:1s", "--levels", "1s"}, s.whose...)...); strings.Contains(out, "not checked") {
		t.Errorf("the operator's doctor could not check all: %s", out)
	}
	ops.command(0, append([]string{"waiting", "release", "--all", "--note", "test", "--yes"}, s.whose...)...)
	exported := t.TempDir() + "/dead.jsonl"
	ops.command(0, append([]string{"dlq", "export", "--file", exported}, s.whose...)...)
	ops.command(0, replay...)
	ops.command(0, append([]string{"dlq", "import", "--file", exported, "--note", "test", "--yes"}, s.whose...)...)
	ops.command(0, append([]string{"dlq", "purge", "--all", "--note", "test", "--yes"}, s.whose...)...)
	starts, err1 := s.g.adm.ListStartOffsets(t.Context(), s.dlq)
	ends, err2 := s.g.adm.ListEndOffsets(t.Context(), s.dlq)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	start, _ := starts.Lookup(s.dlq, 0)
	end, _ := ends.Lookup(s.dlq, 0)
	if start.Offset != 2 || end.Offset != 2 {
		t.Errorf("the DLQ has the offsets %d to %d, want 2 to 2 (empty)", start.Offset, end.Offset)
	}
}
