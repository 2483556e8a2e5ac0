//go:build prove

package loss

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
	"github.com/redeliver/redeliver/integration/onlooker"
)

func init() { connectors["kafkashare"] = connectKafkaShare }

// TestLossKafkaShare is TestLossKafka on a share group. The brokers' sessions are short, as the suite's are on Kafka.
func TestLossKafkaShare(t *testing.T) {
	t.Parallel()
	p := drawPlan(t, full())
	p.variant, p.suspects = cooperative, true // the group of the levels; copies of counted messages have a due time
	b := brokers.OwnKafka(t, brokers.KafkaOptions{Properties: map[string]string{
		"group.share.session.timeout.ms": strconv.FormatInt(kafkaSession.Milliseconds(), 10), "group.share.min.session.timeout.ms": "1000",
		"group.share.record.lock.duration.ms": "6000",
	}})
	sys := shareSystem{newKafka(t, b.Addrs(), b, "loss", 10)}
	wantNoLoss(t, "loss: Kafka share group", sys, p, explained)
}

// shareSystem is a kafkaSystem whose topic is read by a share group.
type shareSystem struct{ *kafkaSystem }

func (k shareSystem) consumer() consumerConfig {
	cfg := k.kafkaSystem.consumer()
	cfg.Broker = "kafkashare"
	return cfg
}

func (k shareSystem) unsettled(ctx context.Context) (int64, string, error) {
	n, detail, err := onlooker.Kafka(ctx, k.admin, k.group()+"-retry", k.base()+".retry", k.base())
	if err != nil {
		return 0, "", err
	}
	groups, err := k.admin.DescribeShareGroupOffsets(ctx, k.group())
	if err != nil {
		return 0, "", err
	}
	for topic, partitions := range groups[k.group()].Offsets {
		for p, o := range partitions {
			if o.Lag != 0 { // -1: nothing was read yet
				n += max(1, o.Lag)
				detail += fmt.Sprintf(" %s[%d] lag %d", topic, p, o.Lag)
			}
		}
	}
	return n, detail, nil
}

// connectKafkaShare opens the adapter with clients whose records and requests the spy sees.
func connectKafkaShare(ctx context.Context, cfg consumerConfig, s *spy) (consumer.Client, error) {
	d := dialer{s, cfg.Strain}
	return consumer.Open(ctx, func() (consumer.Client, error) {
		client, err := kafkashare.Open(ctx, kafkashare.Config{
			Brokers: cfg.Addrs, Group: cfg.Group, Policy: cfg.policy(), Sink: s, MaxInFlight: cmp.Or(cfg.Strain.InFlight, 20),
			DrainTimeout: 2 * time.Second, SendTimeout: cfg.Strain.SendTimeout,
			Options: []kgo.Opt{
				kgo.SessionTimeout(kafkaSession), kgo.HeartbeatInterval(kafkaSession / 4), kgo.WithHooks(kgoSpy{s, cfg.Topic}),
				kgo.Dialer(func(_ context.Context, network, addr string) (net.Conn, error) { return d.Dial(network, addr) }),
			},
		})
		if err != nil {
			return consumer.Client{}, err
		}
		return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
	})
}

// kgoSpy is onSend and onConsume for franz-go.
type kgoSpy struct {
	spy   *spy
	topic string
}

// OnProduceRecordBuffered implements [kgo.HookProduceRecordBuffered].
func (k kgoSpy) OnProduceRecordBuffered(rec *kgo.Record) {
	if r, _, _ := k.read(rec); r.id != "" {
		k.spy.send(r, rec.Topic, nil)
	}
}

// OnFetchRecordUnbuffered implements [kgo.HookFetchRecordUnbuffered].
func (k kgoSpy) OnFetchRecordUnbuffered(rec *kgo.Record, polled bool) {
	if r, redeliverID, due := k.read(rec); polled && r.id != "" {
		r.attempt++ // the next attempt
		k.spy.name(redeliverID, r.id)
		k.spy.hold(r, due)
	}
}

// read returns the run of a record on a topic of redeliver's.
func (k kgoSpy) read(rec *kgo.Record) (r run, redeliverID string, due time.Time) {
	if !strings.HasPrefix(rec.Topic, k.topic+".") {
		return run{}, "", time.Time{}
	}
	for _, h := range rec.Headers {
		switch h.Key {
		case headerID:
			r.id = string(h.Value)
		case redeliver.HeaderID:
			redeliverID = string(h.Value)
		case redeliver.HeaderAttempt:
			r.attempt, _ = strconv.Atoi(string(h.Value))
		case redeliver.HeaderDue:
			due, _ = time.Parse(time.RFC3339Nano, string(h.Value))
		}
	}
	return r, redeliverID, due
}
