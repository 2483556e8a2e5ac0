package sidecar

import (
	"context"
	"crypto/tls"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/internal/brokerurl"
)

func (r *runner) kafkaShare(ctx context.Context) error {
	return kafkashare.Consume(ctx, kafkashare.Config{
		Brokers: r.Broker.Hosts, Group: r.Group, Policy: r.Policy, MaxInFlight: r.InFlight, MaxRetriesInFlight: r.RetriesInFlight,
		DrainTimeout: r.Drain, NoProvisioning: r.NoProvisioning, Sink: r.Sink, Options: franzOptions(r.Broker),
	}, r.Topics, func(ctx context.Context, rec *kgo.Record) error {
		state, _ := redeliver.FromContext(ctx)
		return r.handleOne(ctx, fromKafkaShare(state, rec))
	})
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
