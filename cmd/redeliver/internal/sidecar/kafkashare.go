package sidecar

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/middleware"
)

func (r *runner) kafkaShare(ctx context.Context) error {
	client, err := kafkashare.Open(ctx, kafkashare.Config{
		Brokers: r.Broker.Hosts, Group: r.Group, Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight,
		DrainTimeout: r.Drain, NoProvisioning: r.NoProvisioning, Sink: r.Sink, Options: franzOptions(r.Broker),
	})
	if err != nil {
		return err
	}
	return errors.Join(r.subscribe(ctx, client.Subscriber()), client.Close(ctx))
}

// subscribe handles the messages of all topics until ctx ends. It subscribes to all topics, or to none.
func (r *runner) subscribe(ctx context.Context, sub *kafkashare.Subscriber) error {
	var errs []error
	for _, topic := range r.Topics {
		errs = append(errs, sub.SubscribeInitialize(topic))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		ctx := msg.Context()
		state, _ := redeliver.FromContext(ctx)
		return nil, r.one(ctx, fromKafkaShare(state, kafkashare.RecordFromContext(ctx)))
	})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	for _, topic := range r.Topics {
		messages, err := sub.Subscribe(ctx, topic)
		if err != nil {
			errs = append(errs, err)
			cancel()
			break
		}
		all.Go(func() {
			for msg := range messages { // at most Config.MaxInFlight and MaxRetriesInFlight at once
				all.Go(func() {
					if _, err := handle(msg); err != nil {
						msg.Nack()
						return
					}
					msg.Ack()
				})
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// franzOptions returns the options of a client of franz-go for the URL's TLS and SASL settings.
func franzOptions(u brokerurl.URL) []kgo.Opt {
	opts := []kgo.Opt{kgo.ClientID("redeliver-run"), kgo.MaxDecompressBatchBytes(brokerurl.MaxDecompressedBatch)}
	if u.TLS {
		opts = append(opts, kgo.DialTLSConfig(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	login := scram.Auth{User: u.User, Pass: u.Password}
	switch u.SASL {
	case brokerurl.Plain:
		opts = append(opts, kgo.SASL(plain.Auth{User: u.User, Pass: u.Password}.AsMechanism()))
	case brokerurl.ScramSHA256:
		opts = append(opts, kgo.SASL(login.AsSha256Mechanism()))
	case brokerurl.ScramSHA512:
		opts = append(opts, kgo.SASL(login.AsSha512Mechanism()))
	}
	return opts
}

func fromKafkaShare(state redeliver.State, rec *kgo.Record) *Message {
	m := &Message{
		State: state, Key: rec.Key, Body: rec.Value, Null: rec.Value == nil, Timestamp: rec.Timestamp, Properties: coordinates(rec.Partition, rec.Offset),
	}
	for _, h := range rec.Headers {
		m.Headers = append(m.Headers, Header{h.Key, string(h.Value)})
	}
	return m
}
