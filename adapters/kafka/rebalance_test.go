package kafka_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/mq"
)

// sequence checks the order of each key's first deliveries over all members.
type sequence struct {
	mu      sync.Mutex
	last    map[string]uint64
	running map[string]bool
	twice   int // repeated deliveries
	total   int // distinct messages
	seen    map[string]map[uint64]bool
	wrong   []string
}

func newSequence() *sequence {
	return &sequence{last: map[string]uint64{}, running: map[string]bool{}, seen: map[string]map[uint64]bool{}}
}

func (s *sequence) handle(member string, msg *message.Message, work func()) {
	rec := kafka.RecordFromContext(msg.Context())
	key, n := string(rec.Key), binary.BigEndian.Uint64(rec.Value)
	s.mu.Lock()
	if s.running[key] {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: two of key %s at once", member, key))
	}
	s.running[key] = true
	if s.seen[key] == nil {
		s.seen[key] = map[uint64]bool{}
	}
	switch {
	case s.seen[key][n]:
		s.twice++
	case n != s.last[key]+1:
		s.wrong = append(s.wrong, fmt.Sprintf("%s: key %s: %d after %d", member, key, n, s.last[key]))
	}
	if !s.seen[key][n] {
		s.total++
	}
	s.seen[key][n] = true
	s.last[key] = max(s.last[key], n)
	s.mu.Unlock()
	work()
	s.mu.Lock()
	s.running[key] = false
	s.mu.Unlock()
}

// writeRounds writes one message of each key in every round, until stop is closed. It is a little ahead of the
// handlers, so that members join and leave while messages run. It returns the number of rounds.
func (s *sequence) writeRounds(t *testing.T, p fixture, keys int, stop <-chan struct{}) (rounds int) {
	t.Helper()
	cl := independent(t, p.addrs, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return rounds
		case <-t.Context().Done():
			return rounds
		case <-tick.C:
		}
		if s.done() < (rounds-1)*keys {
			continue
		}
		rounds++
		for k := range keys {
			cl.Produce(context.Background(), &kgo.Record{Topic: p.topic, Key: fmt.Append(nil, k), Value: binary.BigEndian.AppendUint64(nil, uint64(rounds))}, nil)
		}
		if err := cl.Flush(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// done returns the number of distinct messages that have run.
func (s *sequence) done() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func TestOnKafkaRebalancesKeepTheOrderOfKeysAndRepeatNothing(t *testing.T) {
	t.Parallel()
	const keys = 1000
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			addrs := p.addrs
			seq := newSequence()
			join := func(member string) (*mq.Client, *events) {
				cfg := kafka.Config{Brokers: addrs, Group: p.group, Policy: quick(1), Sarama: sarama.NewConfig(), DrainTimeout: longDrain}
				cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
				c, ev := openClient(t, cfg)
				route(t, c, p.topic, func(msg *message.Message) error {
					seq.handle(member, msg, func() { <-time.After(time.Millisecond) })
					return nil
				})
				ev.awaitJoined(t, 1)
				return c, ev
			}
			a, evA := join("a")
			stop, written := make(chan struct{}), make(chan int, 1)
			go func() { written <- seq.writeRounds(t, p, keys, stop) }()
			more := func(what string) {
				from := seq.done()
				eventually(t, what, func() bool { return seq.done() > from+2*keys })
			}
			more("the first member works")
			b, evB := join("b")
			more("two members work")
			_, evC := join("c")
			if err := a.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			more("others work")
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			more("one works")
			close(stop)
			each := <-written
			t.Logf("report: %d rounds", each)
			eventually(t, "all are handled", func() bool { return seq.done() == keys*each })
			excused := countRepeats(t, keys*each/10, evA, evB, evC)
			seq.mu.Lock()
			defer seq.mu.Unlock()
			for i, w := range seq.wrong {
				if i < 10 {
					t.Error(w)
				}
			}
			if seq.twice > excused {
				t.Errorf("%d deliveries were repeated and %d were reported, although every handler had time to finish", seq.twice, excused)
			}
		})
	}
}

func TestOnKafkaRebalancesLoseNoRetry(t *testing.T) {
	t.Parallel()
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			addrs := p.addrs
			recs, ids := orders(p.topic, 1500)
			join := func() (*mq.Client, *events) {
				cfg := kafka.Config{Brokers: addrs, Group: p.group, Policy: redeliver.Policy{
					MaxRetries: 3, Backoff: redeliver.Steps(100*time.Millisecond, 300*time.Millisecond), Levels: []time.Duration{100 * time.Millisecond, 300 * time.Millisecond},
				}, Sarama: sarama.NewConfig(), DrainTimeout: longDrain}
				cfg.Sarama.Consumer.Offsets.Initial = sarama.OffsetOldest
				cfg.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy()}
				c, ev := openClient(t, cfg)
				route(t, c, p.topic, func(msg *message.Message) error {
					if st, _ := redeliver.FromContext(msg.Context()); st.Attempts < 2 {
						return errDeclined
					}
					return nil
				})
				ev.awaitJoined(t, 1)
				return c, ev
			}
			var evs []*events
			a, ev := join()
			evs = append(evs, ev)
			write(t, addrs, recs[:500]...)
			b, ev := join()
			evs = append(evs, ev)
			write(t, addrs, recs[500:1000]...)
			if err := a.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, ev = join()
			evs = append(evs, ev)
			write(t, addrs, recs[1000:]...)
			if err := b.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			committed := make(map[string]int)
			eventually(t, "every message is committed", func() bool {
				clear(committed)
				for _, ev := range evs {
					for _, c := range all[redeliver.Committed](ev) {
						committed[c.State.ID]++
					}
				}
				return len(committed) == len(ids)
			})
			twice := 0
			for _, n := range committed {
				twice += n - 1
			}
			if excused := countRepeats(t, len(ids)/10, evs...); twice > excused {
				t.Errorf("%d messages were committed twice and %d were reported, although every handler had time to finish", twice, excused)
			}
			for i, ev := range evs {
				ev.noneEarly(t, append(append([]*events{}, evs[:i]...), evs[i+1:]...)...)
				ev.noFindings(t)
			}
		})
	}
}

func TestOnKafkaCloseWaitsForHandlersInFlight(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	addrs := p.addrs
	cfg := kafka.Config{Brokers: addrs, Group: p.group, Policy: quick(1)}
	c, _ := openClient(t, cfg)
	entered, leave := make(chan struct{}), make(chan struct{})
	var left atomic.Bool
	route(t, c, p.topic, func(msg *message.Message) error {
		close(entered)
		<-leave
		left.Store(true)
		return msg.Context().Err()
	})
	put(t, addrs, order(p.topic, "a"))
	<-entered
	time.AfterFunc(300*time.Millisecond, func() { close(leave) })
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !left.Load() {
		t.Error("Close returned before the handler")
	}
	if off := unacked(t, addrs, p.group, p.topic, 0); off != 1 {
		t.Errorf("committed up to %d, want 1: the handler had finished", off)
	}
}

func TestOnKafkaAHandlerBeyondTheDrainTimeoutIsNoAttempt(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	addrs := p.addrs
	cfg := kafka.Config{Brokers: addrs, Group: p.group, Policy: quick(1), DrainTimeout: 200 * time.Millisecond}
	c, before := openClient(t, cfg)
	entered := make(chan struct{})
	route(t, c, p.topic, func(msg *message.Message) error {
		close(entered)
		<-msg.Context().Done()
		return msg.Context().Err()
	})
	put(t, addrs, order(p.topic, "a"))
	<-entered
	begin := time.Now()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 200*time.Millisecond {
		t.Errorf("Close took %s, it did not wait for the drain timeout", took)
	}
	before.await(t, 1, is[redeliver.Abandoned])
	if n := len(all[redeliver.RetryScheduled](before)) + len(all[redeliver.DeadLettered](before)); n > 0 {
		t.Errorf("the attempt that the shutdown cut short was counted")
	}
	if off := unacked(t, addrs, p.group, p.topic, 0); off != 0 {
		t.Errorf("offset %d is committed", off)
	}
	c2, ev := openClient(t, cfg)
	route(t, c2, p.topic, func(*message.Message) error { return nil })
	ev.awaitEnds(t, "a")
	if a := all[redeliver.Attempted](ev); len(a) != 1 || a[0].State.Attempt() != 1 {
		t.Errorf("came back as %+v, want attempt 1", a)
	}
}

// The answer to a join comes when the other members have drained, which may take longer than sarama waits for answers.
func TestOnKafkaAMemberWaitsWhileAnotherOneDrains(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	runs := make(chan struct{}, 1)
	config := func() kafka.Config {
		cfg := fastMetadataConfig()
		cfg.Net.ReadTimeout = time.Second
		return kafka.Config{Brokers: p.addrs, Group: p.group, Policy: quick(1), Sarama: cfg, DrainTimeout: longDrain}
	}
	first, before := openClient(t, config())
	route(t, first, p.topic, func(msg *message.Message) error {
		runs <- struct{}{}
		return wait.For(msg.Context(), 4*time.Second)
	})
	before.awaitJoined(t, 1)
	put(t, p.addrs, order(p.topic, "slow"))
	<-runs
	second, ev := openClient(t, config())
	route(t, second, p.topic, func(*message.Message) error { return nil })
	ev.awaitJoined(t, 1)
	before.awaitEnds(t, "slow")
	for _, e := range all[redeliver.SubscriptionChanged](ev) {
		if e.Change == redeliver.ChangeDisconnected {
			t.Errorf("reported %q: %v", e.Change, e.Err)
		}
	}
}
