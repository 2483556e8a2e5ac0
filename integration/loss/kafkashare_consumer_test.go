package loss

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/integration/consumer"
)

// connectKafkaShare opens the adapter with clients whose records and requests the watcher sees.
func connectKafkaShare(ctx context.Context, cfg consumerConfig, s *watcher) (consumer.Client, error) {
	d := dialer{s, cfg.Load}
	return consumer.Open(ctx, func() (consumer.Client, error) {
		client, err := kafkashare.Open(ctx, kafkashare.Config{
			Brokers: cfg.Addrs, Group: cfg.Group, Policy: cfg.policy(), Sink: s, MaxInFlight: cmp.Or(cfg.Load.InFlight, 20),
			DrainTimeout: 2 * time.Second, SendTimeout: cfg.Load.SendTimeout,
			Options: []kgo.Opt{
				kgo.SessionTimeout(kafkaSession), kgo.HeartbeatInterval(kafkaSession / 4), kgo.WithHooks(kgoWatcher{s, cfg.Topic}),
				kgo.Dialer(func(_ context.Context, network, addr string) (net.Conn, error) { return d.Dial(network, addr) }),
			},
		})
		if err != nil {
			return consumer.Client{}, err
		}
		return consumer.Client{Subscriber: client.Subscriber(), End: client.Close}, nil
	})
}

// kgoWatcher is onSend and onConsume for franz-go.
type kgoWatcher struct {
	watcher *watcher
	topic   string
}

// OnProduceRecordBuffered implements [kgo.HookProduceRecordBuffered].
func (k kgoWatcher) OnProduceRecordBuffered(rec *kgo.Record) {
	if r, _, _ := k.read(rec); r.id != "" {
		k.watcher.send(r, rec.Topic, nil)
	}
}

// OnFetchRecordUnbuffered implements [kgo.HookFetchRecordUnbuffered].
func (k kgoWatcher) OnFetchRecordUnbuffered(rec *kgo.Record, polled bool) {
	if r, redeliverID, due := k.read(rec); polled && r.id != "" {
		r.attempt++ // the next attempt
		k.watcher.setID(redeliverID, r.id)
		k.watcher.addWaiting(r, due)
	}
}

// read returns the run of a record on a topic of redeliver's.
func (k kgoWatcher) read(rec *kgo.Record) (r run, redeliverID string, due time.Time) {
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
