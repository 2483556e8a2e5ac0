//go:build prove

package amqp_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/middleware"
	"github.com/redeliver/redeliver/mq"
)

// inTurn assigns the n-th variant of a test to one of the RabbitMQs. With REDELIVER_SOAK each variant runs on both.
func inTurn(t *testing.T, n int) map[string]*brokers.Rabbit {
	t.Helper()
	all := brokers.RequireRabbitMQs(t)
	if !brokers.Soak() {
		delete(all, []string{"3.10", "4.0"}[n%2])
	}
	return all
}

// singleConsumerArgs are the arguments of queues with a single active consumer.
var singleConsumerArgs = map[string]amqp091.Table{
	"ours":    nil, // as redeliver declares it
	"quorum":  {amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.SingleActiveConsumerArg: true, "x-delivery-limit": int32(1000)},
	"classic": {amqp091.SingleActiveConsumerArg: true},
}

// serviceGroup has several services of one queue, some of which die or close, and the results of their messages.
type serviceGroup struct {
	*fixture
	takes time.Duration // maximum time of a handler
	seed  uint64
	key   func(id string) string
	all   []string

	settled map[string]bool // guarded by fixture.mu, like all fields
	random  *rand.Rand
	live    *groupService // the service that ran a handler last
	repeats int
	wrong   []string
}

// groupService is one service.
type groupService struct {
	*serviceGroup
	client *mq.Client
	line   *cuttableDialer
	over   chan struct{} // closed when Consume has returned, if it is used
	stop   context.CancelFunc
	dead   bool
	cut    chan struct{} // closed when its connections are cut for good
}

// startService starts a service, with Consume if native is set.
func (tr *serviceGroup) startService(native bool) *groupService {
	tr.Helper()
	s := &groupService{serviceGroup: tr, line: &cuttableDialer{refused: new(sync.Map)}, over: make(chan struct{}), cut: make(chan struct{})}
	cfg := tr.cfg
	cfg.AMQP.Dial = s.line.dial
	cfg.Sink = redeliver.SinkFunc(s.event)
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	if native {
		go func() {
			defer close(s.over)
			if err := amqp.Consume(ctx, cfg, []string{tr.queue}, func(_ context.Context, d amqp091.Delivery) error { return s.run(d.MessageId) }); err != nil {
				tr.Error(err)
			}
		}()
	} else {
		s.subscribe(cfg)
	}
	tr.Cleanup(s.end)
	return s
}

func (s *groupService) subscribe(cfg amqp.Config) {
	client, err := amqp.Open(context.Background(), cfg)
	if err != nil {
		s.Fatal(err)
	}
	s.client = client
	messages, err := client.Subscriber().Subscribe(context.Background(), s.queue)
	if err != nil {
		s.Fatal(err)
	}
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) { return nil, s.run(msg.UUID) })
	go func() {
		defer close(s.over)
		for msg := range messages {
			go func() {
				if _, err := handle(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			}()
		}
	}()
}

// event records dead letters as settled.
func (s *groupService) event(e redeliver.Event) {
	if e, ok := e.(redeliver.DeadLettered); ok {
		s.update(func() {
			if !s.dead {
				s.settled[e.State.ID] = true
			}
		})
	}
}

// run is the handler. It fails now and then.
func (s *groupService) run(id string) error {
	fails, takes, dead := false, time.Duration(0), false
	s.update(func() {
		if dead = s.dead; dead {
			return
		}
		s.live = s
		fails, takes = s.random.IntN(5) == 0, time.Duration(s.random.IntN(int(s.takes)))
		if s.settled[id] {
			s.repeats++
			return
		}
		for _, before := range s.all[:slices.Index(s.all, id)] {
			if s.key(before) == s.key(id) && !s.settled[before] {
				s.wrong = append(s.wrong, fmt.Sprintf("%s began before %s was settled", id, before))
			}
		}
	})
	waitFor(takes)
	s.update(func() {
		if dead = dead || s.dead; !dead && !fails {
			s.settled[id] = true
		}
	})
	switch {
	case dead: // its answer has no effect
		<-s.cut
		return nil
	case fails:
		return errHandler
	default:
		return nil
	}
}

// kill cuts its connections. Later answers of its handlers do not count.
func (s *groupService) kill() {
	s.update(func() { s.dead = true })
	s.line.cut()
	close(s.cut)
}

// end closes it, if it still runs.
func (s *groupService) end() {
	s.stop()
	if s.client != nil {
		_ = s.client.Close(context.Background())
	}
	<-s.over
}

// With any failures, crashes and shutdowns, no message begins before all earlier messages, or all earlier ones of its
// key, are settled. This holds for each kind of queue, because the end of a channel returns its messages in order.
func TestOrderIsKeptOverFailuresAndKills(t *testing.T) {
	t.Parallel()
	for i, kind := range slices.Sorted(maps.Keys(singleConsumerArgs)) {
		for j, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
			for version, r := range inTurn(t, i+j) {
				t.Run(fmt.Sprintf("%s on %s, %s", order, version, kind), func(t *testing.T) {
					t.Parallel()
					keepsOrder(t, r, singleConsumerArgs[kind], order, order == redeliver.OrderThroughRetries) // the other combinations do not differ
				})
			}
		}
	}
}

func keepsOrder(t *testing.T, r *brokers.Rabbit, args amqp091.Table, order redeliver.Order, native bool) {
	const n, keys, every = 240, 6, 20
	tr := &serviceGroup{takes: 3 * time.Millisecond, all: ids(n), settled: make(map[string]bool), seed: rand.Uint64()}
	tr.random = rand.New(rand.NewPCG(tr.seed, 0))
	tr.key = func(string) string { return "" }
	if order == redeliver.OrderThroughRetries {
		tr.takes *= keys
		tr.key = func(id string) string { return fmt.Sprint(slices.Index(tr.all, id) % keys) }
	}
	tr.fixture = newFixture(t, r, func(l *fixture) {
		l.cfg.Policy = redeliver.Policy{Order: order, MaxRetries: 2, Backoff: redeliver.Fixed(20 * time.Millisecond)}
		l.cfg.Key = func(d amqp091.Delivery) string { return tr.key(d.MessageId) }
		l.cfg.MaxInFlight, l.cfg.Prefetch = 10, 50
		if args != nil {
			l.declareQueue(args)
		}
	})
	tr.declared()
	tr.publishMessages(tr.all...)
	services := []*groupService{tr.startService(native), tr.startService(native)}
	kills, ends := 0, 0
	for at := every; at < n; at += every {
		tr.await("progress", func() bool { return len(tr.settled) >= at })
		tr.mu.Lock()
		victim, kill := tr.live, tr.random.IntN(3) > 0
		tr.mu.Unlock()
		if !slices.Contains(services, victim) { // the next service has not run a handler yet
			continue
		}
		if kill {
			kills++
			victim.kill()
		} else {
			ends++
			victim.end()
		}
		services = append(slices.DeleteFunc(services, func(s *groupService) bool { return s == victim }), tr.startService(native))
	}
	tr.await("the end", func() bool { return len(tr.settled) == n })
	for _, s := range services {
		s.end()
	}
	tr.awaitReady(tr.queue, 0)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	t.Logf("report: %d kills and %d ends in order, %d repeats, seed %d", kills, ends, tr.repeats, tr.seed)
	if len(tr.wrong) > 0 {
		t.Errorf("seed %d: %d out of order, first %q", tr.seed, len(tr.wrong), tr.wrong[:min(5, len(tr.wrong))])
	}
}

// Messages that wait behind a failing one for half of the consumer timeout do not wait until the broker closes the
// channel. redeliver ends the channel, all messages come back in order, and the failing message continues with its
// state.
func TestMessagesHeldForTooLongComeBackInOrderAndUnchanged(t *testing.T) {
	t.Parallel()
	for version, r := range brokers.RequireRabbitMQs(t) {
		for _, order := range []redeliver.Order{redeliver.OrderBlocking, redeliver.OrderThroughRetries} {
			t.Run(fmt.Sprintf("%s on %s", order, version), func(t *testing.T) {
				t.Parallel()
				const fails = 18
				l := newFixture(t, r, func(l *fixture) {
					l.cfg.ConsumerTimeout = 2 * time.Second
					l.cfg.Policy = redeliver.Policy{Order: order, Timeout: time.Second, MaxRetries: fails, Backoff: redeliver.Fixed(100 * time.Millisecond)}
					l.cfg.Key = func(amqp091.Delivery) string { return "one" }
				})
				l.declared()
				var ran []string
				redelivered := false
				l.consume(func(msg *message.Message, r run) error {
					l.update(func() {
						ran = append(ran, msg.UUID)
						redelivered = redelivered || r.redelivered
					})
					if msg.UUID == "failing" && r.attempt <= fails {
						return errHandler
					}
					return nil
				})
				l.publishMessages("failing", "behind", "last")
				l.awaitEnds([]string{"failing", "behind", "last"})
				l.checkNothingEarly()
				l.mu.Lock()
				defer l.mu.Unlock()
				if got := slices.Compact(slices.Clone(ran)); !slices.Equal(got, []string{"failing", "behind", "last"}) {
					t.Errorf("ran in the order %q", got)
				}
				for i, r := range l.runs["failing"] {
					if r.attempt != i+1 {
						t.Errorf("run %d was attempt %d", i+1, r.attempt)
					}
				}
				if !redelivered {
					t.Error("no message came back, so this test checks nothing")
				}
				if n := l.countLocked("disconnected"); n > 0 || len(l.dead) > 0 {
					t.Errorf("disconnected %d times, dead letters %v", n, l.deadIDsLocked())
				}
			})
		}
	}
}
