package kafka_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// perKeyPolicy returns a policy whose failing keys wait.
func perKeyPolicy(levels ...time.Duration) redeliver.Policy {
	return redeliver.Policy{Order: redeliver.OrderThroughRetries, MaxRetries: len(levels), Backoff: redeliver.Steps(levels...), Levels: levels}
}

// A later message of the key is before the other keys in the partition.
func TestOnKafkaASlowRetryHoldsUpOnlyItsKey(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	others, slow := make(chan struct{}), make(chan struct{})
	ev, _ := consume(t, p, kafka.Config{MaxInFlight: 5, Policy: perKeyPolicy(100 * time.Millisecond)},
		func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			st, _ := redeliver.FromContext(ctx)
			switch {
			case string(rec.Value) == "slow" && st.Attempt() == 1:
				return errDeclined
			case string(rec.Value) == "slow":
				close(slow)
				select {
				case <-others:
				case <-time.After(waitTimeout):
					t.Error("the other keys waited")
				}
			}
			return nil
		})
	put(t, p.addrs, keyed(p, "the key", "slow"))
	<-slow
	recs, ids := orders(p.topic, 300)
	recs = append([]*kgo.Record{keyed(p, "the key", "behind")}, recs...)
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
	if n := len(all[redeliver.Committed](ev)); n != len(ids) {
		t.Errorf("%d were committed, want %d: the messages behind the slow one have not run", n, len(ids))
	}
	close(others)
	ev.awaitEnds(t, "slow", "behind")
}

// keyOrderChecker checks the promise of OrderThroughRetries over all members: no attempt of a message begins before all earlier ones
// of its key are settled. A settled message may run again, if that is allowed, and is not checked.
type keyOrderChecker struct {
	mu      sync.Mutex
	settled map[string][]bool // by key and number
	open    int
	repeats int
	wrong   []string
	done    chan struct{} // closed when all are settled
}

func newKeyOrderChecker(keys, each int) *keyOrderChecker {
	s := &keyOrderChecker{settled: make(map[string][]bool), open: keys * each, done: make(chan struct{})}
	for k := range keys {
		s.settled[fmt.Sprint("key ", k)] = make([]bool, each)
	}
	return s
}

// begin is called when an attempt begins.
func (s *keyOrderChecker) begin(rec *sarama.ConsumerMessage, attempt int) {
	key, n := string(rec.Key), int(binary.BigEndian.Uint32(rec.Value))
	s.mu.Lock()
	defer s.mu.Unlock()
	settled := s.settled[key]
	if settled[n] {
		s.repeats++
		return
	}
	if i := slices.Index(settled[:n], false); i >= 0 {
		s.wrong = append(s.wrong, fmt.Sprintf("attempt %d of %s/%d began before %d was settled", attempt, key, n, i))
	}
}

// end is called when an attempt has settled its message, as its handler sees it.
func (s *keyOrderChecker) end(rec *sarama.ConsumerMessage) {
	n := int(binary.BigEndian.Uint32(rec.Value))
	s.mu.Lock()
	defer s.mu.Unlock()
	if settled := s.settled[string(rec.Key)]; !settled[n] {
		settled[n] = true
		if s.open--; s.open == 0 {
			close(s.done)
		}
	}
}

func (s *keyOrderChecker) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range s.wrong {
		if i < 10 {
			t.Error(w)
		}
	}
	if s.open > 0 {
		t.Errorf("%d messages were not settled", s.open)
	}
}

func TestOnKafkaPerKeyKeepsItsOrderAcrossRebalances(t *testing.T) {
	t.Parallel()
	const keys, each, retries = 40, 25, 3
	p := onKafka(t)
	seq := newKeyOrderChecker(keys, each)
	seed := rand.Uint64()
	t.Logf("report: seed %d", seed)
	fails := func(rec *sarama.ConsumerMessage, attempt int) bool {
		r := rand.New(rand.NewPCG(seed, uint64(rec.Partition)<<32|uint64(rec.Offset)))
		switch n := r.IntN(100); {
		case n < 3:
			return true
		case n < 12:
			return attempt <= 1+r.IntN(retries)
		default:
			return false
		}
	}
	older := []time.Duration{50 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond}
	newer := []time.Duration{70 * time.Millisecond, 150 * time.Millisecond, 600 * time.Millisecond}
	join := func(levels []time.Duration) (ev *events, stop func()) {
		return consume(t, p, kafka.Config{
			MaxInFlight: 20, Policy: perKeyPolicy(levels...), DrainTimeout: longDrain,
		}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			st, _ := redeliver.FromContext(ctx)
			seq.begin(rec, st.Attempt())
			if fails(rec, st.Attempt()) {
				if st.Attempt() > retries {
					seq.end(rec) // it goes to the DLQ
				}
				return errDeclined
			}
			seq.end(rec)
			return nil
		})
	}
	evs := []*events{}
	come := func(levels []time.Duration) func() {
		ev, stop := join(levels)
		evs = append(evs, ev)
		return stop
	}
	first := come(older)
	cl := independent(t, p.addrs, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	var recs []*kgo.Record
	for n := range each {
		for k := range keys {
			recs = append(recs, &kgo.Record{Topic: p.topic, Key: fmt.Append(nil, "key ", k), Value: binary.BigEndian.AppendUint32(nil, uint32(n))})
		}
	}
	write := func(recs []*kgo.Record) {
		if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	write(recs[:len(recs)/3])
	second := come(older)
	write(recs[len(recs)/3 : 2*len(recs)/3])
	first()
	third := come(newer)
	write(recs[2*len(recs)/3:])
	second()
	fourth := come(newer)
	third()
	select {
	case <-seq.done:
	case <-time.After(waitTimeout):
	}
	seq.check(t)
	fourth()
	if excused := countRepeats(t, keys*each/10, evs...); seq.repeats > excused {
		t.Errorf("%d attempts were of messages that were settled; reported were %d: %v", seq.repeats, excused, runAgain(evs...))
	}
	for _, ev := range evs {
		ev.noFindings(t)
		ev.noneEarly(t, evs...)
	}
}
