package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/engine"
)

type sinkOf func(redeliver.Event)

func (f sinkOf) Event(e redeliver.Event) { f(e) }

// offlineReader returns a reader without a broker.
func offlineReader(sink redeliver.Sink) *reader {
	cfg := Config{Group: "billing"}.withDefaults()
	cfg.Sink = sink
	return newReader(context.Background(), &Client{cfg: cfg, turn: engine.NewTurn()}, &layout{
		origin: "orders", group: "billing", policy: cfg.policy("orders"),
		control: ownTopic{name: "orders.billing.control", exists: true},
	}, noPauseGroup{})
}

func TestGroupErrorsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []redeliver.SubscriptionChanged
		r := offlineReader(sinkOf(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok {
				told = append(told, c)
			}
		}))
		say := func(topic string, err error) {
			r.handleGroupError(&sarama.ConsumerError{Topic: topic, Partition: 3, Err: err})
		}
		for _, err := range []error{sarama.ErrRebalanceInProgress, sarama.ErrIllegalGeneration, sarama.ErrNotLeaderForPartition, net.ErrClosed} {
			say("a", err)
		}
		r.handleGroupError(sarama.ErrTopicAuthorizationFailed) // it has no topic
		if len(told) > 0 {
			t.Fatalf("told: %+v", told)
		}
		for range 3 {
			say("a", sarama.ErrTopicAuthorizationFailed)
			say("b", sarama.ErrTopicAuthorizationFailed)
			say("a", sarama.ErrOffsetOutOfRange)
			say("a", sarama.ErrGroupAuthorizationFailed)
		}
		if len(told) != 4 || !errors.Is(told[0].Err, sarama.ErrTopicAuthorizationFailed) || told[0].Change != redeliver.ChangeNotRead ||
			!strings.Contains(told[0].Detail, "a/3") || !strings.Contains(told[0].Detail, "grant Read") || strings.Contains(told[2].Detail, "grant") {
			t.Errorf("told: %+v", told)
		}
		told = nil
		for _, topic := range []string{"a", "b"} {
			say(topic, fmt.Errorf("%w: zstd batch decompressed to more than 100 bytes", sarama.ErrDecompressedBatchTooLarge))
			say(topic, sarama.PacketDecodingError{Info: "invalid compression specified (7)"})
		}
		if len(told) != 1 || told[0].Change != redeliver.ChangeNotRead || !strings.Contains(told[0].Detail, "a/3") || !strings.Contains(told[0].Detail, "MaxDecompressedBatchSize") {
			t.Errorf("of batches that cannot be decoded: %+v", told)
		}
		<-time.After(repeatInterval)
		say("a", sarama.ErrTopicAuthorizationFailed)
		if len(told) != 2 {
			t.Errorf("told: %+v", told)
		}
	})
}

// A lost group used to be reported once, and the subscription then stopped for days in silence.
func TestALostGroupIsReportedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		told := 0
		r := offlineReader(sinkOf(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeDisconnected {
				told++
			}
		}))
		for range 30 {
			r.reportDisconnected(sarama.ErrOutOfBrokers)
			<-time.After(10 * time.Second)
		}
		if told != 5 {
			t.Errorf("told %d times in 5 minutes, want 5", told)
		}
		r.reportJoined("")
		r.reportDisconnected(sarama.ErrOutOfBrokers)
		if told != 6 {
			t.Error("not told when it was lost once more")
		}
	})
}

// broken is a cluster that cannot say where a partition begins.
type broken struct{ sarama.Client }

func (broken) GetOffset(string, int32, int64) (int64, error) { return 0, sarama.ErrOutOfBrokers }

// noOffsetClaim is a partition without a committed offset.
type noOffsetClaim struct{ *staticClaim }

func (noOffsetClaim) InitialOffset() int64 { return sarama.OffsetOldest }

func TestAnUnreadPartitionIsReported(t *testing.T) {
	t.Parallel()
	var told []redeliver.SubscriptionChanged
	r := offlineReader(sinkOf(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			told = append(told, c)
		}
	}))
	r.client.admin.client = broken{}
	s := &staticClaim{ctx: context.Background()}
	err := (&session{reader: r}).ConsumeClaim(s, noOffsetClaim{s})
	if !errors.Is(err, sarama.ErrOutOfBrokers) || len(told) != 1 || !errors.Is(told[0].Err, sarama.ErrOutOfBrokers) || !strings.Contains(told[0].Detail, "orders/0") {
		t.Errorf("told: %+v; %v", told, err)
	}
}
