package reader

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
	"github.com/redeliver/redeliver/adapters/kafka/internal/topology"
	"github.com/redeliver/redeliver/internal/engine"
)

type sinkOf func(redeliver.Event)

func (f sinkOf) Event(e redeliver.Event) { f(e) }

// offlineReader returns a reader without a broker.
func offlineReader(sink redeliver.Sink) *Reader {
	policy := redeliver.Policy{Timeout: time.Minute}.WithDefaults()
	return New(context.Background(), Config{
		Layout: &topology.Layout{
			Origin: "orders", Group: "billing", Policy: policy, Control: topology.Topic{Name: "orders.billing.control", Exists: true},
		},
		Sub:   &engine.Subscription{Origin: "orders", Group: "billing", Policy: policy, Sink: sink, MaxInFlight: 100, MaxRetriesInFlight: 100, Turn: engine.NewTurn()},
		Group: noPauseGroup{}, Provisioner: &topology.Provisioner{}, DrainTimeout: 10 * time.Second,
	})
}

func TestGroupErrorsAreReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reported []redeliver.SubscriptionChanged
		r := offlineReader(sinkOf(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok {
				reported = append(reported, c)
			}
		}))
		handleError := func(topic string, err error) {
			r.handleGroupError(&sarama.ConsumerError{Topic: topic, Partition: 3, Err: err})
		}
		for _, err := range []error{sarama.ErrRebalanceInProgress, sarama.ErrIllegalGeneration, sarama.ErrNotLeaderForPartition, net.ErrClosed} {
			handleError("a", err)
		}
		handleError("a", sarama.ErrTopicAuthorizationFailed)
		if len(reported) > 0 || len(r.probeSoon) != 1 { // the probe finds the request and the topic
			t.Fatalf("reported: %+v; %d probes", reported, len(r.probeSoon))
		}
		for range 3 {
			handleError("a", sarama.ErrOffsetOutOfRange)
			r.handleGroupError(sarama.ErrGroupAuthorizationFailed)
		}
		if len(reported) != 2 || !errors.Is(reported[0].Err, sarama.ErrOffsetOutOfRange) || reported[0].Change != redeliver.ChangeNotRead || !strings.Contains(reported[0].Detail, "a/3") ||
			reported[1].Change != redeliver.ChangeDisconnected || !strings.Contains(reported[1].Err.Error(), "grant Read on group billing") {
			t.Errorf("reported: %+v", reported)
		}
		reported = nil
		r.reported.forget("disconnected")
		r.handleGroupError(sarama.ErrClusterAuthorizationFailed)
		if len(reported) != 1 || reported[0].Change != redeliver.ChangeDisconnected || !errors.Is(reported[0].Err, sarama.ErrClusterAuthorizationFailed) {
			t.Errorf("of another right that the group's requests lack: %+v", reported)
		}
		reported = nil
		for _, topic := range []string{"a", "b"} {
			handleError(topic, fmt.Errorf("%w: zstd batch decompressed to more than 100 bytes", sarama.ErrDecompressedBatchTooLarge))
			handleError(topic, sarama.PacketDecodingError{Info: "invalid compression specified (7)"})
		}
		if len(reported) != 1 || reported[0].Change != redeliver.ChangeNotRead || !strings.Contains(reported[0].Detail, "a/3") || !strings.Contains(reported[0].Detail, "MaxDecompressedBatchSize") {
			t.Errorf("of batches that cannot be decoded: %+v", reported)
		}
		<-time.After(repeatInterval)
		handleError("a", sarama.ErrOffsetOutOfRange)
		if len(reported) != 2 {
			t.Errorf("reported: %+v", reported)
		}
	})
}

// A report of a lost group is repeated, or a subscription could stand still for days unnoticed.
func TestALostGroupIsReportedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		reported := 0
		r := offlineReader(sinkOf(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok && c.Change == redeliver.ChangeDisconnected {
				reported++
			}
		}))
		for range 30 {
			r.reportDisconnected(sarama.ErrOutOfBrokers)
			<-time.After(10 * time.Second)
		}
		if reported != 5 {
			t.Errorf("reported %d times in 5 minutes, want 5", reported)
		}
		r.reportJoined("")
		r.reportDisconnected(sarama.ErrOutOfBrokers)
		if reported != 6 {
			t.Error("not reported when it was lost again")
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
	var reported []redeliver.SubscriptionChanged
	r := offlineReader(sinkOf(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			reported = append(reported, c)
		}
	}))
	r.Provisioner.Admin.Client = broken{}
	s := &staticClaim{ctx: context.Background()}
	err := (&Session{reader: r}).ConsumeClaim(s, noOffsetClaim{s})
	if !errors.Is(err, sarama.ErrOutOfBrokers) || len(reported) != 1 || !errors.Is(reported[0].Err, sarama.ErrOutOfBrokers) || !strings.Contains(reported[0].Detail, "orders/0") {
		t.Errorf("reported: %+v; %v", reported, err)
	}
}
