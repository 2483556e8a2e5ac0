//go:build prove

package command_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/observed"
)

// member is a running member of the group, and what its events say.
type member struct {
	*kafkaRights

	mu       sync.Mutex
	ended    map[string]bool // messages, by their text
	changes  []redeliver.SubscriptionChanged
	troubles map[string]bool
	troubled bool // there was a trouble
}

// Event implements [redeliver.Sink].
func (m *member) Event(e redeliver.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := e.(redeliver.SubscriptionChanged); ok {
		m.changes = append(m.changes, e)
		for _, t := range observed.Transitions[e.Change] {
			if delete(m.troubles, t.Problem); t.Begins {
				m.troubles[t.Problem], m.troubled = true, true
			}
		}
	}
}

// begin starts the member, until stop is called.
func (m *member) begin(t *testing.T) (stop func()) {
	t.Helper()
	client, err := sarama.NewClient(m.g.UserAddrs(), login(consumer))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		cfg := m.config(nil)
		cfg.Sink, cfg.Policy.Outage.Off = m, true // half of the messages fail
		done <- kafka.Consume(ctx, client, cfg, []string{m.topic}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
			st, _ := redeliver.FromContext(ctx)
			text := string(rec.Value)
			m.mu.Lock()
			defer m.mu.Unlock()
			switch {
			case strings.HasPrefix(text, dies):
				m.ended[text] = st.Attempt() == 2
				return errors.New("no")
			case st.Attempt() == 1:
				return redeliver.RetryAfter(errors.New("not yet"), 50*time.Millisecond)
			}
			m.ended[text] = true
			return nil
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = client.Close()
	}
}

// within waits until ok, and sends messages of the given kinds meanwhile. It reports whether it was in time.
func (m *member) within(d time.Duration, ok func() bool, kinds ...string) bool {
	for end := time.Now().Add(d); time.Now().Before(end); <-time.After(500 * time.Millisecond) {
		m.mu.Lock()
		is := ok()
		m.mu.Unlock()
		if is {
			return true
		}
		for _, kind := range kinds {
			text := fmt.Sprint(kind, time.Now().UnixNano())
			m.mu.Lock()
			m.ended[text] = false
			m.mu.Unlock()
			m.send(text)
		}
	}
	return false
}

// A right is taken away while a member runs, and given back. Within a minute an event names the right and its place, and
// the member is not ready; within a minute after the right is back messages of all kinds end in the same process, none is
// lost, and the member is ready.
func TestOnKafkaARightIsTakenAwayAndGivenBack(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	g := newGuarded(t)
	for _, r := range []struct{ operation, suffix string }{
		{"Read", ""}, {"Read", ".retry.1s"}, {"Write", ".retry.1s"}, {"Write", ".dlq"}, {"DescribeConfigs", ".dlq"}, {"Read", "group"},
	} {
		t.Run(r.operation+" on "+r.suffix, func(t *testing.T) {
			t.Parallel()
			s := newKafkaRights(t, g)
			all := s.rights(consumer, "consumer")
			i := slices.IndexFunc(all, func(x right) bool {
				place := strings.TrimPrefix(x.name, strings.TrimSuffix(s.dlq, ".dlq"))
				return x.operation == r.operation && (place == r.suffix && r.suffix != "" || r.suffix == "" && x.name == s.topic || r.suffix == "group" && x.resource == "group")
			})
			if i < 0 {
				t.Fatalf("the plan does not name it: %v", all)
			}
			s.grant(all, right{})
			m := &member{kafkaRights: s, ended: make(map[string]bool), troubles: make(map[string]bool)}
			defer m.begin(t)()
			first := soon + "first"
			s.send(first)
			if !m.within(limit, func() bool { return len(m.ended) >= 4 && m.ended[first] }, dies, soon) {
				t.Fatalf("it does not begin: %v", m.ended)
			}
			m.mu.Lock()
			n := len(m.changes)
			m.troubled = false
			m.mu.Unlock()
			s.revoke(all[i : i+1])
			if r.operation == "DescribeConfigs" { // members compare settings after a rebalance
				defer (&member{kafkaRights: s, ended: make(map[string]bool), troubles: make(map[string]bool)}).join(t)()
			}
			want := r.operation + " on " + all[i].resource + " " + all[i].name
			if !m.within(limit, func() bool {
				return m.troubled && slices.ContainsFunc(m.changes[n:], func(e redeliver.SubscriptionChanged) bool {
					return e.Err != nil && strings.Contains(e.Err.Error(), want)
				})
			}, dies, soon) {
				t.Errorf("no event says %q, or it is ready; the troubles are %v, the changes %v", want, m.troubles, m.changes[n:])
			}
			s.grant(all[i:i+1], right{})
			last := fmt.Sprint(soon, "the last one")
			s.send(last)
			if !m.within(limit, func() bool { return m.ended[last] && len(m.troubles) == 0 }) {
				t.Errorf("a minute later the last message has ended: %t, the troubles are %v", m.ended[last], m.troubles)
			}
			if !m.within(limit, func() bool {
				for _, ended := range m.ended {
					if !ended {
						return false
					}
				}
				return true
			}) {
				t.Error("messages are lost")
			}
		})
	}
}

// join makes another client join the group and leave it.
func (m *member) join(t *testing.T) (stop func()) {
	t.Helper()
	cfg := login("")
	group, err := sarama.NewConsumerGroup(m.g.Addrs(), m.group, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	_ = group.Consume(ctx, []string{m.topic}, idle{})
	cancel()
	return func() { _ = group.Close() }
}

// idle reads nothing.
type idle struct{}

func (idle) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (idle) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (idle) ConsumeClaim(sess sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-sess.Context().Done()
	return nil
}
