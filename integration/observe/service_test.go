package observe_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/doctor"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
	"github.com/redeliver/redeliver/observe"
	"github.com/redeliver/redeliver/observe/prom"
)

const maxWait = 3 * time.Minute

var (
	errDeclined = errors.New("card declined")
	errAsked    = errors.New("not now")
)

// service runs on a real Kafka and fails in all possible ways.
type service struct {
	t            *testing.T
	addrs        []string
	topic, group string
	endless      string // a topic whose handler ends only with its session
	registry     *prometheus.Registry
	sink         redeliver.Sink
	client       *mq.Client
	stop         context.CancelFunc // ends the consumer, which closes over
	over         chan error

	mu     sync.Mutex
	events []redeliver.Event
	more   chan struct{} // has one when there are more
	free   chan struct{} // closed when a handler that hangs may return
	fixed  bool          // "fails" is handled

	entered chan struct{} // closed when the handler that does not end runs
	enter   func()
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{
		t: t, addrs: brokers.RequireKafka(t), registry: prometheus.NewRegistry(),
		topic: "observe.orders", endless: "observe.endless", group: "billing", more: make(chan struct{}, 1), free: make(chan struct{}), over: make(chan error, 1),
	}
	s.entered = make(chan struct{})
	s.enter = sync.OnceFunc(func() { close(s.entered) })
	s.provide()
	metrics, err := prom.New(prom.Config{System: "kafka", Registerer: s.registry})
	if err != nil {
		t.Fatal(err)
	}
	s.sink = observe.Sinks(metrics, redeliver.SinkFunc(s.onEvent))
	s.client, err = kafka.Open(t.Context(), kafka.Config{Brokers: s.addrs, Group: s.group, Sink: s.sink})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.client.Close(context.Background()) })
	s.consume()
	return s
}

// provide creates new topics and chooses a new group, because members of another test would end its sessions.
func (s *service) provide() {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.UnknownTopicRetries(50), kgo.SeedBrokers(s.addrs...))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	unique := time.Now().Format(".150405.000000")
	s.topic, s.endless, s.group = s.topic+unique, s.endless+unique, s.group+strings.ReplaceAll(unique, ".", "-")
	admin := kadm.NewClient(client)
	for _, topic := range []string{s.topic, s.endless} {
		kafkatest.MakeTopic(s.t, admin, 1, nil, topic)
	}
}

func (s *service) consume() {
	s.t.Helper()
	client, err := sarama.NewClient(s.addrs, kafkaConfig())
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() {
		defer client.Close()
		s.over <- kafka.Consume(ctx, client, kafka.Config{
			Group: s.group, DrainTimeout: 100 * time.Millisecond, RetryPartitions: 1, Sink: s.sink,
			Topics: map[string]redeliver.Policy{
				s.topic:   {MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second, 2 * time.Second}, Timeout: 3 * time.Second},
				s.endless: {MaxRetries: 1, Backoff: redeliver.Fixed(time.Second), Levels: []time.Duration{time.Second}, Timeout: redeliver.NoTimeout},
			},
		}, []string{s.topic, s.endless}, s.handle)
	}()
	s.t.Cleanup(s.stop)
}

func kafkaConfig() *sarama.Config {
	own := sarama.NewConfig()
	own.Consumer.Offsets.Initial = sarama.OffsetOldest
	return own
}

// handle fails as the message says.
func (s *service) handle(ctx context.Context, rec *sarama.ConsumerMessage) error {
	state, _ := redeliver.FromContext(ctx)
	first := state.Attempt() == 1
	switch body := string(rec.Value); {
	case rec.Topic == s.endless:
		s.enter()
		<-ctx.Done()
		return ctx.Err()
	case body == "recovers" && first:
		return errDeclined
	case body == "fails" && !s.isUp():
		return errDeclined
	case body == "stays" || body == "permanent":
		return redeliver.Permanent(errDeclined)
	case body == "panics":
		panic("a nil map")
	case body == "hangs":
		if first {
			<-s.free // whatever its context says
		}
		<-ctx.Done()
		return context.Cause(ctx)
	case body == "hops" && first:
		return redeliver.RetryAfter(errAsked, 3*time.Second)
	case body == "waits":
		return redeliver.RetryAfter(errAsked, time.Hour)
	case body == "postponed" && first && state.PostponedSince.IsZero():
		return redeliver.Postpone(errAsked)
	}
	return nil
}

func (s *service) isUp() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fixed
}

func (s *service) onEvent(e redeliver.Event) {
	s.mu.Lock()
	s.events = append(s.events, e)
	s.mu.Unlock()
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// await waits for an event.
func (s *service) await(what string, is func(redeliver.Event) bool) {
	s.t.Helper()
	late := time.After(maxWait)
	for {
		s.mu.Lock()
		seen := slices.ContainsFunc(s.events, is)
		s.mu.Unlock()
		if seen {
			return
		}
		select {
		case <-s.more:
		case err := <-s.over:
			s.t.Fatalf("the consumer has ended while %s was waited for: %v", what, err)
		case <-late:
			s.t.Fatalf("not seen within %s: %s", maxWait, what)
		}
	}
}

// put writes messages that determine their own results.
func (s *service) put(topic string, bodies ...string) {
	s.t.Helper()
	for _, body := range bodies {
		if err := s.client.Publisher().Publish(topic, message.NewMessage(body, []byte(body))); err != nil {
			s.t.Fatal(err)
		}
	}
}

// fail makes a message fail in each way, replays the dead letters, and begins a handler that does not end.
func (s *service) fail() {
	s.t.Helper()
	s.put(s.topic, "ok", "recovers", "fails", "stays", "permanent", "panics", "hangs", "hops", "waits", "postponed")
	later := message.NewMessage("later", []byte("later"))
	delay.Message(later, delay.For(time.Second))
	forged := message.NewMessage("liar", []byte("liar"))
	forged.Metadata.Set(redeliver.HeaderAttempt, "7")
	if err := s.client.Publisher().Publish(s.topic, later, forged); err != nil {
		s.t.Fatal(err)
	}

	s.await("a handler that is stuck", func(e redeliver.Event) bool { _, ok := e.(redeliver.HandlerStuck); return ok })
	close(s.free)
	s.await("its answer", func(e redeliver.Event) bool { _, ok := e.(redeliver.LateAnswer); return ok })
	for _, id := range []string{"ok", "recovers", "hops", "postponed", "later"} {
		s.await(id+" handled", func(e redeliver.Event) bool { c, ok := e.(redeliver.Committed); return ok && c.State.ID == id })
	}
	for id, reason := range map[string]redeliver.Reason{
		"fails": redeliver.ReasonExhausted, "permanent": redeliver.ReasonPermanent, "stays": redeliver.ReasonPermanent,
		"panics": redeliver.ReasonPanic, "hangs": redeliver.ReasonTimeout,
	} {
		s.await(id+" dead", func(e redeliver.Event) bool {
			d, ok := e.(redeliver.DeadLettered)
			return ok && d.State.ID == id && d.State.Reason == reason
		})
	}
	s.await("the headers of a liar", func(e redeliver.Event) bool { _, ok := e.(redeliver.HeadersIgnored); return ok })
	s.await("a delayed publish", func(e redeliver.Event) bool { _, ok := e.(redeliver.Published); return ok })
	s.collect()
	s.replay()

	s.put(s.endless, "endless")
	select {
	case <-s.entered:
	case <-time.After(maxWait):
		s.t.Fatalf("the message of %s was not handed out within %s", s.endless, maxWait)
	}
}

// end ends the session under that handler.
func (s *service) end() {
	s.t.Helper()
	s.stop()
	s.await("an attempt that was cut short", func(e redeliver.Event) bool { _, ok := e.(redeliver.Abandoned); return ok })
	s.answered()
}

// collect registers the collectors of the DLQ and of waiting messages.
func (s *service) collect() {
	s.t.Helper()
	s.keep("604800000")
	q := s.deadLetters()
	dlqs, err := prom.NewDLQs(prom.DLQConfig{System: "kafka", Queues: []deadletter.Queue{q}, Timeout: maxWait})
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := s.client.Operations().Waiting(s.t.Context(), mq.WaitingConfig{Topic: s.topic})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = w.Close() })
	waiting, err := prom.NewWaiting(prom.WaitingConfig{System: "kafka", Timeout: maxWait, Interval: time.Millisecond, Subscriptions: []prom.Waiting{{
		Origin: s.topic, Group: s.group,
		Levels: func(ctx context.Context) ([]deadletter.WaitingLevel, error) {
			levels, err := w.Levels(ctx)
			s.t.Logf("what waits: %+v, %v", levels, err)
			return levels, err
		},
		Doctor: func(ctx context.Context) (*doctor.Diagnosis, error) {
			d, err := s.client.Operations().Doctor(ctx, s.topic, doctor.Examination{AnyPolicy: true})
			s.t.Logf("the doctor: %+v, %v", d, err)
			return d, err
		},
	}}})
	if err != nil {
		s.t.Fatal(err)
	}
	s.registry.MustRegister(dlqs, waiting)
}

// answered returns when the broker answers all requests of a scrape, because its group has just lost its member.
func (s *service) answered() {
	s.t.Helper()
	late := time.After(maxWait)
	for look := time.NewTicker(100 * time.Millisecond); ; {
		families, err := s.registry.Gather()
		if err != nil {
			s.t.Fatal(err)
		}
		silent := slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
			return strings.HasSuffix(f.GetName(), "_up") && slices.ContainsFunc(f.GetMetric(), func(m *dto.Metric) bool { return m.GetGauge().GetValue() != 1 })
		})
		if !silent {
			look.Stop()
			return
		}
		select {
		case <-look.C:
		case <-late:
			s.t.Fatalf("the broker has not answered all that a scrape asks within %s", maxWait)
		}
	}
}

// keep limits the retention of the DLQ, which redeliver's default keeps forever.
func (s *service) keep(ms string) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	changed, err := kadm.NewClient(client).AlterTopicConfigs(s.t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &ms}}, s.topic+"."+s.group+".dlq")
	for _, c := range changed {
		err = errors.Join(err, c.Err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *service) deadLetters() deadletter.Queue {
	s.t.Helper()
	q, err := s.client.Operations().DeadLetters(s.t.Context(), mq.DeadLetterConfig{Topic: s.topic})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = q.Close() })
	return q
}

// replay replays a message that succeeds now and one that fails again, and leaves a task that can be resumed.
func (s *service) replay() {
	s.t.Helper()
	s.mu.Lock()
	s.fixed = true
	s.mu.Unlock()
	q := s.deadLetters()
	for _, id := range []string{"fails", "stays"} {
		task, err := deadletter.Replay(s.t.Context(), q, deadletter.ReplayOptions{Who: "ann", Why: "fixed", Filter: deadletter.Filter{IDs: []string{id}}})
		if err != nil || task.Counts.Replayed != 1 {
			s.t.Fatalf("replaying %s: %v, %+v", id, err, task.Counts)
		}
	}
	claim, err := q.Claim(s.t.Context(), deadletter.Holder{Who: "ann", Task: "open"})
	if err == nil {
		err = errors.Join(claim.Save(s.t.Context(), deadletter.Task{ID: "open", Kind: deadletter.KindPurge, Status: deadletter.StatusPaused}), claim.Release(s.t.Context()))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.await("a replay that is handled", func(e redeliver.Event) bool {
		c, ok := e.(redeliver.Committed)
		return ok && c.State.ID == "fails" && c.State.Replays == 1
	})
	s.await("a replay that comes back", func(e redeliver.Event) bool {
		d, ok := e.(redeliver.DeadLettered)
		return ok && d.State.ID == "stays" && d.State.Replays == 1 && strings.HasSuffix(d.Where, ".dlq")
	})
}
