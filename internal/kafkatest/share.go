package kafkatest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/internal/adaptertest"
	"github.com/redeliver/redeliver/mq"
)

// ShareFeatures are the optional features of share groups.
var ShareFeatures = adaptertest.Features{
	BinaryHeaders: true, DuplicateHeaders: true, NullBody: true, ForeignHeaders: true, ManyGroups: true, Refuse: true,
	KeepsAttempts: true, DelayedPublish: true, MessageTimes: true, GroupPause: true, NewPause: true,
}

// NewShare returns the harness of adapters/kafkashare for the Kafka at addrs. It must not outlive tb.
func NewShare(tb testing.TB, addrs []string) adaptertest.Harness {
	tb.Helper()
	h := New(tb, addrs, nil)
	k := &harness{addrs: addrs, guard: &produceGuard{}}
	k.client = k.connect(tb)
	k.admin = kadm.NewClient(k.client)
	h.Name, h.Features, h.ReadsAhead, h.Received = "Kafka share groups", ShareFeatures, false, seenShare
	h.Refuse = func(_ testing.TB, origin, group string, what adaptertest.Place) func() {
		if what == adaptertest.DLQ {
			return k.guard.refuse(origin + "." + group + ".dlq")
		}
		return k.guard.refuse(origin + "." + group + ".retry")
	}
	h.Open = func(tb testing.TB, cfg adaptertest.Config) (adaptertest.Service, error) {
		tb.Helper()
		dialer := newKillableDialer(k.guard)
		config := k.shareConfig(cfg, dialer)
		config.Marshaler = shareMarshaler{}
		c, err := kafkashare.Open(tb.Context(), config)
		if err != nil {
			return nil, err
		}
		return shareService{c, func() { k.killShare(cfg.Group, dialer) }}, nil
	}
	h.Consume = func(_ testing.TB, cfg adaptertest.Config, fn func(context.Context, adaptertest.Message) error) (run func(context.Context) error, kill func()) {
		dialer := newKillableDialer(k.guard)
		return func(ctx context.Context) error {
			return kafkashare.Consume(ctx, k.shareConfig(cfg, dialer), []string{cfg.Origin}, func(ctx context.Context, rec *kgo.Record) error {
				return fn(ctx, seenShareRecord(rec))
			})
		}, func() { k.killShare(cfg.Group, dialer) }
	}
	h.ConsumeBatch = func(_ testing.TB, cfg adaptertest.Config, bc redeliver.BatchConfig, fn adaptertest.BatchFunc) (run func(context.Context) error, kill func()) {
		dialer := newKillableDialer(k.guard)
		return func(ctx context.Context) error {
			return kafkashare.ConsumeBatch(ctx, k.shareConfig(cfg, dialer), []string{cfg.Origin}, bc, func(ctx context.Context, b *kafkashare.Batch) error {
				return fn(ctx, adaptertest.BatchOf(b))
			})
		}, func() { k.killShare(cfg.Group, dialer) }
	}
	return h
}

func (k *harness) shareConfig(cfg adaptertest.Config, dialer *killableDialer) kafkashare.Config {
	return kafkashare.Config{
		Brokers: k.addrs, Group: cfg.Group, Policy: cfg.Policy, Sink: cfg.Sink, MaxInFlight: cfg.MaxInFlight, MinInFlight: cfg.MinInFlight,
		NackDelay: cfg.NackDelay, DrainTimeout: cfg.DrainTimeout, SendTimeout: cfg.SendTimeout, Options: shareOptions(dialer),
	}
}

// shareOptions are the options of a client with the dialer's connections.
func shareOptions(dialer *killableDialer) []kgo.Opt {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.NewPtrProduceRequest().Key(), 12) // from 13 on a request names its topics by ids, and the guard cannot find them
	return []kgo.Opt{
		kgo.ClientID(dialer.name), kgo.SessionTimeout(sessionTimeout), kgo.MaxVersions(versions),
		kgo.Dialer(func(_ context.Context, network, addr string) (net.Conn, error) { return dialer.Dial(network, addr) }),
	}
}

// killShare cuts off a process and removes its members from both groups, as the broker does when their sessions end.
func (k *harness) killShare(group string, dialer *killableDialer) {
	dialer.cut()
	_ = retryUntil(context.Background(), func(ctx context.Context) (gone bool, err error) {
		describe := kmsg.NewPtrShareGroupDescribeRequest()
		describe.GroupIDs = []string{group}
		resp, err := describe.RequestWith(ctx, k.client)
		if err != nil {
			return false, err
		}
		gone = true
		for _, g := range resp.Groups {
			for _, m := range g.Members {
				if m.ClientID != dialer.name {
					continue
				}
				gone = false
				leave := kmsg.NewPtrShareGroupHeartbeatRequest()
				leave.GroupID, leave.MemberID, leave.MemberEpoch = group, m.MemberID, -1
				if _, err := leave.RequestWith(ctx, k.client); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
					return false, err
				}
			}
		}
		return gone, nil
	})
	k.killMember(group+"-retry", dialer)
}

// shareMarshaler refuses the kit's undecodable messages.
type shareMarshaler struct{ kafkashare.DefaultMarshaler }

func (m shareMarshaler) Unmarshal(rec *kgo.Record) (*message.Message, error) {
	if bytes.Equal(rec.Value, []byte(adaptertest.Undecodable)) {
		return nil, errors.New("no such schema")
	}
	return m.DefaultMarshaler.Unmarshal(rec)
}

type shareService struct {
	*mq.Client
	kill func()
}

func (s shareService) Subscriber() message.Subscriber { return s.Client.Subscriber() }
func (s shareService) Publisher() message.Publisher   { return s.Client.Publisher() }
func (s shareService) Kill()                          { s.kill() }

func seenShare(msg *message.Message) adaptertest.Message {
	return seenShareRecord(kafkashare.RecordFromContext(msg.Context()))
}

func seenShareRecord(rec *kgo.Record) adaptertest.Message {
	if rec == nil {
		return adaptertest.Message{}
	}
	m := adaptertest.Message{Key: bytes.Clone(rec.Key), Body: bytes.Clone(rec.Value)}
	for _, h := range rec.Headers {
		add(&m, h.Key, h.Value)
	}
	return m
}
