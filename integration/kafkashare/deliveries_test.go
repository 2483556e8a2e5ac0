package kafkashare_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// timeout bounds every wait.
const timeout = time.Minute

// events collects events and waits for them.
type events struct {
	mu   sync.Mutex
	all  []redeliver.Event
	news chan struct{}
}

func newEvents() *events { return &events{news: make(chan struct{}, 1)} }

// Event implements [redeliver.Sink].
func (s *events) Event(e redeliver.Event) {
	s.mu.Lock()
	s.all = append(s.all, e)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// await returns the first event for which is reports true.
func await[E redeliver.Event](t *testing.T, s *events, is func(E) bool) E {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		for _, e := range s.all {
			if e, ok := e.(E); ok && is(e) {
				s.mu.Unlock()
				return e
			}
		}
		s.mu.Unlock()
		select {
		case <-s.news:
		case <-deadline.C:
			t.Fatalf("no %T within %s; there were %+v", *new(E), timeout, s.all)
		}
	}
}

func anyOf[E redeliver.Event](E) bool { return true }

// openService opens a service on a new origin, without a subscription. It creates the topics and configures the group.
func openService(t *testing.T, h adaptertest.Harness, sink redeliver.Sink) (s adaptertest.Service, origin, group string) {
	t.Helper()
	origin, groups := h.Origin(t, 1)
	s, err := h.Open(t, adaptertest.Config{Origin: origin, Group: groups[0], Sink: sink, SendTimeout: time.Second, DrainTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Subscriber().(message.SubscribeInitializer).SubscribeInitialize(origin); err != nil {
		t.Fatal(err)
	}
	return s, origin, groups[0]
}

// useDeliveries delivers the only record of an origin n times to a member that gives it back.
func useDeliveries(t *testing.T, origin, group string, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers.RequireKafka(t)...), kgo.ShareGroup(group), kgo.ConsumeTopics(origin), kgo.ShareMaxRecordsStrict(), kgo.ShareMaxRecords(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	for times := 0; times < n; {
		for _, rec := range cl.PollFetches(ctx).Records() {
			times++
			if got := int(rec.DeliveryCount()); got != times {
				t.Fatalf("delivery %d has the count %d", times, got)
			}
			rec.Ack(kgo.AckRelease)
		}
		if err := errors.Join(cl.FlushAcks(ctx), ctx.Err()); err != nil {
			t.Fatal(err)
		}
	}
}

// handle subscribes and acks every message. It returns the ids of the messages so far.
func handle(t *testing.T, s adaptertest.Service, origin string) func() []string {
	t.Helper()
	messages, err := s.Subscriber().Subscribe(t.Context(), origin)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var ids []string
	go func() {
		for msg := range messages {
			mu.Lock()
			ids = append(ids, msg.UUID)
			mu.Unlock()
			msg.Ack()
		}
	}()
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(ids)
	}
}

// From its third delivery on, also at the last one, a message is copied before any handler runs. So the broker does not
// drop it.
func TestAMessageIsCopiedFromItsThirdDeliveryOn(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	for _, before := range []int{2, 9} {
		seen := newEvents()
		s, origin, group := openService(t, h, seen)
		h.Put(t, origin, adaptertest.Message{ID: "counted"})
		useDeliveries(t, origin, group, before)
		ids := handle(t, s, origin)
		hop := await(t, seen, anyOf[redeliver.Hopped])
		if want := origin + "." + group + ".retry"; hop.From != origin || hop.To != want {
			t.Errorf("it went from %s to %s, want %s to %s", hop.From, hop.To, origin, want)
		}
		done := await(t, seen, anyOf[redeliver.Committed])
		if done.State.Attempts != 0 || done.State.ID != "counted" || !done.State.Source.Known {
			t.Errorf("after %d deliveries its state is %+v, want the first attempt", before, done.State)
		}
		if got := ids(); !slices.Equal(got, []string{"counted"}) {
			t.Errorf("after %d deliveries the handler got %v", before, got)
		}
		isLast := func(e redeliver.SubscriptionChanged) bool { return e.Change == redeliver.ChangeLastDelivery }
		if before == 9 {
			await(t, seen, isLast)
			await(t, seen, func(e redeliver.SubscriptionChanged) bool { return e.Change == redeliver.ChangeLastDeliveryOver })
			continue
		}
		seen.mu.Lock()
		for _, e := range seen.all {
			if c, ok := e.(redeliver.SubscriptionChanged); ok && isLast(c) {
				t.Error("the third delivery was reported as the last")
			}
		}
		seen.mu.Unlock()
	}
}

// The broker drops a message that is given back at its last delivery, without an error.
func TestADroppedMessageIsReported(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	seen := newEvents()
	s, origin, group := openService(t, h, seen)
	h.Put(t, origin, adaptertest.Message{ID: "dropped"})
	useDeliveries(t, origin, group, 9)
	defer h.Refuse(t, origin, group, adaptertest.Levels)()
	ids := handle(t, s, origin)
	await(t, seen, anyOf[redeliver.PublishFailed])
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := await(t, seen, anyOf[redeliver.MessagesLost])
	if lost.Origin != origin || lost.Group != group || lost.Count != 1 || !strings.HasPrefix(lost.Where, origin+"/") {
		t.Errorf("reported as %+v", lost)
	}
	if got := ids(); len(got) > 0 {
		t.Errorf("the handler got %v", got)
	}
}

func TestAHandlerMayOutlastTheLock(t *testing.T) {
	t.Parallel()
	h := kafkatest.NewShare(t, brokers.RequireKafka(t))
	origin, groups := h.Origin(t, 1)
	setGroup(t, groups[0], "share.record.lock.duration.ms", "1500")
	seen := newEvents()
	s, err := h.Open(t, adaptertest.Config{Origin: origin, Group: groups[0], Sink: seen, MaxInFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	other, err := h.Open(t, adaptertest.Config{Origin: origin, Group: groups[0], Sink: seen, MaxInFlight: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	var mu sync.Mutex
	var ran []string
	for _, s := range []adaptertest.Service{s, other} {
		messages, err := s.Subscriber().Subscribe(t.Context(), origin)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for msg := range messages {
				go func() {
					mu.Lock()
					ran = append(ran, msg.UUID)
					mu.Unlock()
					if msg.UUID == "slow" {
						time.Sleep(5 * time.Second) //nolint:forbidigo // This is the work; it takes more than three locks.
					}
					msg.Ack()
				}()
			}
		}()
	}
	h.Put(t, origin, adaptertest.Message{ID: "slow"}, adaptertest.Message{ID: "quick"})
	await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == "slow" })
	h.Put(t, origin, adaptertest.Message{ID: "last"})
	await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == "last" })
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(ran)
	if want := []string{"last", "quick", "slow"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

// The handler gets each record as it is in its topic, at every attempt.
func TestConsumeAppliesEachAnswer(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	h := kafkatest.NewShare(t, addrs)
	origin, groups := h.Origin(t, 1)
	seen := newEvents()
	cfg := kafkashare.Config{Brokers: addrs, Group: groups[0], Sink: seen, Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, MaxRetries: 2, Backoff: redeliver.Fixed(50 * time.Millisecond)}}
	var mu sync.Mutex
	attempts := make(map[string][]int)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- kafkashare.Consume(ctx, cfg, []string{origin}, func(ctx context.Context, rec *kgo.Record) error {
			st, _ := redeliver.FromContext(ctx)
			if rec.Topic != origin || len(rec.Headers) != 2 || string(rec.Headers[1].Value) != "\x00\xff" || kafkashare.RecordFromContext(ctx) != rec {
				t.Errorf("attempt %d got %+v", st.Attempt(), rec)
			}
			mu.Lock()
			defer mu.Unlock()
			id := string(rec.Headers[0].Value)
			attempts[id] = append(attempts[id], st.Attempt())
			switch {
			case id == "permanent":
				return redeliver.Permanent(errors.New("declined"))
			case id == "panics":
				panic("ours")
			case id == "recovers" && st.Attempt() < 3:
				return errors.New("declined")
			}
			return nil
		})
	}()
	want := map[string][]int{"succeeds": {1}, "recovers": {1, 2, 3}, "permanent": {1}, "panics": {1, 2, 3}}
	for id := range want {
		h.Put(t, origin, adaptertest.Message{ID: id, Headers: []adaptertest.Header{{Name: "raw", Value: []byte{0, 255}}}})
	}
	for id, reason := range map[string]redeliver.Reason{"permanent": redeliver.ReasonPermanent, "panics": redeliver.ReasonPanic} {
		await(t, seen, func(e redeliver.DeadLettered) bool { return e.State.ID == id && e.State.Reason == reason })
	}
	for _, id := range []string{"succeeds", "recovers"} {
		await(t, seen, func(e redeliver.Committed) bool { return e.State.ID == id })
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for id := range want {
		if got := attempts[id]; !slices.Equal(got, want[id]) {
			t.Errorf("%s ran as attempts %v, want %v", id, got, want[id])
		}
	}
}

// setGroup sets the configuration of a group.
func setGroup(t *testing.T, group, name, value string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(brokers.RequireKafka(t)...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: group,
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: name, Value: &value}}}}
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil || resp.Resources[0].ErrorCode != 0 {
		t.Fatalf("setting %s of %s: %v, %+v", name, group, err, resp)
	}
}

// All problems of the cluster are in one error.
func TestAStartIsRefusedWithUnsuitableGroups(t *testing.T) {
	t.Parallel()
	addrs := brokers.RequireKafka(t)
	h := kafkatest.NewShare(t, addrs)
	_, groups := h.Origin(t, 1)
	setGroup(t, groups[0], "share.delivery.count.limit", "5")
	_, err := kafkashare.Open(t.Context(), kafkashare.Config{Brokers: addrs, Group: groups[0], NoProvisioning: true})
	wantProblems(t, err, "share.auto.offset.reset", "share.delivery.count.limit")

	// A service makes the share group x-retry and the consumer group x-retry-retry.
	origin, groups := h.Origin(t, 1)
	group := groups[0] + "-retry"
	s, err := h.Open(t, adaptertest.Config{Origin: origin, Group: group, Sink: newEvents()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	handle(t, s, origin)
	for _, taken := range []string{groups[0], group + "-retry"} {
		err = nil
		for deadline := time.Now().Add(timeout); err == nil && time.Now().Before(deadline); { // the groups form in a moment
			var c *mq.Client
			if c, err = kafkashare.Open(t.Context(), kafkashare.Config{Brokers: addrs, Group: taken}); err == nil {
				_ = c.Close(t.Context())
			}
		}
		wantProblems(t, err, "Group")
	}
}

// The broker does not report that it cannot create the topic with the state of share groups.
func TestAStartIsRefusedIfTheStateTopicCannotBeCreated(t *testing.T) {
	t.Parallel()
	b := brokers.OwnKafka(t, brokers.KafkaOptions{Brief: true, Properties: map[string]string{
		"share.coordinator.state.topic.replication.factor": "3", "share.coordinator.state.topic.min.isr": "4",
	}})
	_, err := kafkashare.Open(t.Context(), kafkashare.Config{Brokers: b.Addrs(), Group: "billing"})
	wantProblems(t, err, "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr")
}

func wantProblems(t *testing.T, err error, fields ...string) {
	t.Helper()
	refused, ok := errors.AsType[*redeliver.ConfigError](err)
	if !ok {
		t.Fatalf("%v is no redeliver.ConfigError", err)
	}
	var got []string
	for _, p := range refused.Problems {
		got = append(got, p.Field)
	}
	slices.Sort(got)
	slices.Sort(fields)
	if !slices.Equal(got, fields) {
		t.Errorf("the problems are %v, want %v: %v", got, fields, err)
	}
}
