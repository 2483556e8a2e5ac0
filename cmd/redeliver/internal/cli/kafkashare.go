package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wirename"
)

// openKafkaShare opens a cluster for share groups. Their DLQs are as with openKafka. Their consumers read no commands
// and report no policy, so some functions are not supported: see abilityTable.
func openKafkaShare(ctx context.Context, u brokerurl.URL, s setup) (*broker, error) {
	b, err := openKafka(ctx, u, s)
	if err != nil {
		return nil, err
	}
	// The topics on which messages wait contain the share group's name, not that of the consumer group that reads them.
	retries, err := kafka.Open(ctx, kafka.Config{
		Brokers: u.Hosts, Group: nobody, Sink: silence, Sarama: kafkaClient(u),
		Names: kafka.Names{Retry: func(topic, group string) string {
			return kafkaname.Base(topic, strings.TrimSuffix(group, wirename.ShareRetryGroup)) + wirename.RetrySuffix
		}},
	})
	if err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	closeDLQs := b.close
	b.old, b.plan, b.doctor, b.pauser = nil, nil, nil, nil
	b.waiting = func(ctx context.Context, s subject) (*waiting, error) {
		w, err := retries.Waiting(ctx, kafka.WaitingConfig{Topic: s.topic, Group: s.group + wirename.ShareRetryGroup})
		if err != nil {
			return nil, err
		}
		return &waiting{levels: w.Levels, notes: []string{"FIRST DUE is when the first message leaves its level"}, close: w.Close}, nil
	}
	b.close = func(ctx context.Context) error { return errors.Join(retries.Close(ctx), closeDLQs(ctx)) }
	return b, nil
}
