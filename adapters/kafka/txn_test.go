package kafka_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/kafkatest"
)

// onceEach checks that who reads only committed records finds n messages in some topics,
// and each of them once.
func onceEach(t *testing.T, addrs, topics []string, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	found := make(map[string]int)
	if err := kafkatest.Read(ctx, addrs, func(r *kgo.Record) { found[string(r.Value)]++ }, topics...); err != nil {
		t.Fatal(err)
	}
	if len(found) != n {
		t.Errorf("%v have %d messages, want %d", topics, len(found), n)
	}
	for id, times := range found {
		if times != 1 {
			t.Errorf("%v have %.20s %d times", topics, id, times)
		}
	}
}

// What fails goes through the levels into the DLQ, and nothing of ours can be read there
// that was not committed.
func TestOnKafkaTransactionsBringRetriesAndDeadLetters(t *testing.T) {
	t.Parallel()
	const n = 200
	for name, order := range map[string]redeliver.Order{"key order": redeliver.KeyOrder, "unordered": redeliver.Unordered, "blocking": redeliver.Blocking} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := onKafka(t)
			policy := quick(2)
			policy.Order = order
			if order == redeliver.Blocking { // which waits in its place
				policy.Backoff = redeliver.Fixed(20 * time.Millisecond)
			}
			c, ev := open(t, kafka.Config{Brokers: p.addrs, Group: p.group, Policy: policy, Transactions: true})
			route(t, c, p.topic, func(*message.Message) error { return errDeclined })
			recs, ids := orders(p.topic, n)
			write(t, p.addrs, recs...)
			ev.awaitEnds(t, ids...)
			onceEach(t, p.addrs, []string{p.ours("dlq")}, n)
			if failed := all[redeliver.PublishFailed](ev); len(failed) > 0 {
				t.Errorf("%d writes failed, one is %+v", len(failed), failed[0])
			}
		})
	}
}

// A window that is not committed has forwarded nothing: what was in it is written again,
// once, and the handler does not run again. Whether it was is found out where the answer
// was lost.
func TestAWindowThatIsNotCommittedLosesNothingAndLeavesNoCopy(t *testing.T) {
	t.Parallel()
	const n = 100
	// None of them refuses a write: sarama keeps the error of one in a field that it reads
	// without its lock, and the race detector sees that.
	for name, c := range map[string]struct {
		faults []kfake.Fault
		lost   int // so many answers to a commit are lost, and then one more is refused
	}{
		"the offsets are refused":          {faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.IllegalGeneration, Count: 2}}},
		"the offsets are refused for good": {faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.TxnOffsetCommit}, Err: kerr.InvalidProducerEpoch, Count: 2}}},
		"the commit is refused":            {faults: []kfake.Fault{{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ProducerFenced, Count: 2}}},
		"the answer to the commit is lost": {lost: 1},
		"the answers to commits are lost":  {lost: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := fake(t, "orders")
			addrs := cluster.ListenAddrs()
			sc := sarama.NewConfig()
			sc.Consumer.Offsets.Initial = sarama.OffsetOldest
			deaf := &deafDialer{after: func() {
				cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.ProducerFenced})
			}}
			deaf.left.Store(int32(c.lost))
			sc.Net.Proxy.Enable, sc.Net.Proxy.Dialer = true, deaf
			cl, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), Transactions: true, Sarama: sc})
			if err := cl.Subscriber().SubscribeInitialize("orders"); err != nil {
				t.Fatal(err)
			}
			var fault *kfake.FaultHandle
			if c.faults != nil {
				fault = cluster.Fault(c.faults...)
			}
			var mu sync.Mutex
			runs := make(map[string]int)
			route(t, cl, "orders", func(msg *message.Message) error {
				st, _ := redeliver.FromContext(msg.Context())
				mu.Lock()
				runs[fmt.Sprint(msg.UUID, " ", st.Attempt())]++
				mu.Unlock()
				return errDeclined
			})
			recs, ids := orders("orders", n)
			write(t, addrs, recs...)
			ev.awaitEnds(t, ids...)
			if fault != nil && fault.Hits() == 0 {
				t.Error("nothing was refused")
			}
			if left := deaf.left.Load(); left > 0 {
				t.Errorf("%d answers were not lost", left)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(runs) != 2*n || slices.Max(slices.Collect(maps.Values(runs))) > 1 {
				t.Errorf("%d attempts, want %d, and one ran %d times", len(runs), 2*n, slices.Max(slices.Collect(maps.Values(runs))))
			}
			onceEach(t, addrs, []string{"orders.billing.dlq"}, n)
			// What is written late is due too soon for the level.
			onceEach(t, addrs, []string{"orders.billing.retry.100ms", "orders.billing.retry"}, n)
		})
	}
}

// deafDialer makes connections that close when they have an answer to a commit: the
// coordinator has committed, and nobody knows.
type deafDialer struct {
	left  atomic.Int32
	after func() // before an answer is lost: so that the next try is told otherwise
}

// Dial implements proxy.Dialer.
func (d *deafDialer) Dial(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	return &deafConn{Conn: c, d: d}, err
}

type deafConn struct {
	net.Conn
	d     *deafDialer
	ended atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if len(b) >= 6 && binary.BigEndian.Uint16(b[4:6]) == uint16(kmsg.EndTxn) && c.d.left.Load() > 0 {
		c.ended.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.ended.Swap(false) && c.d.left.Add(-1) >= 0 {
		c.d.after()
		_ = c.Close()
		return 0, errors.New("the line is dead")
	}
	return n, err
}

// What is too large for the batches of the one producer goes by the other, in a window
// of its own.
func TestTransactionsTakeWhatIsTooLargeForABatch(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), Transactions: true})
	route(t, c, "orders", func(*message.Message) error { return errDeclined })
	recs, ids := orders("orders", 20)
	large := order("orders", "large")
	large.Value = bytes.Repeat([]byte("a"), 3<<20) // the topic takes it as it is compressed
	cl := independent(t, addrs, kgo.ProducerBatchMaxBytes(8<<20), kgo.ProducerBatchCompression(kgo.ZstdCompression()))
	if err := cl.ProduceSync(t.Context(), append(recs, large)...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	ev.awaitEnds(t, append(ids, "large")...)
	onceEach(t, addrs, []string{"orders.billing.dlq"}, 21)
}

// What cannot be had with transactions is refused by its name.
func TestTransactionsRefuse(t *testing.T) {
	t.Parallel()
	cluster := fake(t, "orders")
	with := func(change func(*kafka.Config)) error {
		cfg := kafka.Config{Brokers: cluster.ListenAddrs(), Group: "billing", Transactions: true, Sarama: sarama.NewConfig()}
		change(&cfg)
		c, err := kafka.Open(t.Context(), cfg)
		if err == nil {
			_ = c.Close(t.Context())
		}
		return err
	}
	for want, change := range map[string]func(*kafka.Config){
		"Order is PerKey":         func(c *kafka.Config) { c.Policy.Order = redeliver.PerKey },
		"Sarama.Version is 2.4.0": func(c *kafka.Config) { c.Sarama.Version = sarama.V2_4_0_0 },
		"is cooperative-sticky": func(c *kafka.Config) {
			c.Sarama.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategyCooperativeSticky()}
		},
		"Producer.Transaction.ID is": func(c *kafka.Config) { c.Sarama.Producer.Transaction.ID = "x" },
	} {
		if err := with(change); !errors.Is(err, redeliver.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if err := with(func(*kafka.Config) {}); err != nil {
		t.Errorf("nothing is wrong, and it is refused: %v", err)
	}
	old := fake(t, "orders")
	old.ControlKey(int16(kmsg.ApiVersions), func(r kmsg.Request) (kmsg.Response, error, bool) {
		res := r.ResponseKind().(*kmsg.ApiVersionsResponse)
		res.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: int16(kmsg.TxnOffsetCommit), MaxVersion: 2}}
		old.KeepControl()
		return res, nil, true
	})
	if err := with(func(c *kafka.Config) { c.Brokers = old.ListenAddrs() }); err == nil {
		t.Error("brokers without fenced transactions are taken")
	}
}

// Two Subscribes of one client for one topic are two members. They had one transactional
// id, and each shut the other out with every window.
func TestTransactionsOfTwoSubscribesDoNotMeet(t *testing.T) {
	t.Parallel()
	const n = 200
	cluster := fake(t, "orders")
	addrs := cluster.ListenAddrs()
	c, ev := open(t, kafka.Config{Brokers: addrs, Group: "billing", Policy: quick(1), Transactions: true})
	var ran [2]atomic.Bool
	for i := range ran {
		route(t, c, "orders", func(msg *message.Message) error {
			ran[i].Store(true)
			if strings.HasPrefix(msg.UUID, "first") {
				return nil
			}
			return errDeclined
		})
	}
	// Both have partitions once both have run a message. What was assigned does not tell: the
	// first one's comes twice when the second joins later, and once when they join together.
	// Nothing is forwarded before that: a rebalance may well shut out a window.
	written := 0
	eventually(t, "both members run messages", func() bool {
		first := make([]*kgo.Record, 20)
		for i := range first {
			first[i] = order("orders", fmt.Sprintf("first-%d", written+i))
		}
		write(t, addrs, first...)
		written += len(first)
		return ran[0].Load() && ran[1].Load()
	})
	recs, ids := orders("orders", n)
	write(t, addrs, recs...)
	ev.awaitEnds(t, ids...)
	onceEach(t, addrs, []string{"orders.billing.dlq"}, n)
	if failed := all[redeliver.PublishFailed](ev); len(failed) > 0 {
		t.Errorf("%d writes failed, one is %+v", len(failed), failed[0])
	}
}
