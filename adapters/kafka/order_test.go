package kafka_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

func TestABlockingPolicyHoldsUpOnlyItsPartition(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	var mu sync.Mutex
	var ran []string
	others := make(chan struct{})
	ev, _ := consume(t, p, kafka.Config{
		MaxInFlight: 10, Policy: redeliver.Policy{Order: redeliver.OrderBlocking, Backoff: redeliver.Fixed(50 * time.Millisecond)},
	}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		mu.Lock()
		ran = append(ran, string(rec.Key))
		if strings.HasPrefix(string(rec.Key), "other") && len(slices.DeleteFunc(slices.Clone(ran), func(id string) bool { return !strings.HasPrefix(id, "other") })) == 5 {
			close(others)
		}
		mu.Unlock()
		if string(rec.Key) == "first" {
			if st.Attempts < 2 {
				return errDeclined
			}
			select { // it may go on only when the other partition is done
			case <-others:
			case <-time.After(waitTimeout):
				t.Error("the other partition waited too")
			}
		}
		return nil
	})
	var ids []string
	for i, id := range []string{"first", "behind-1", "behind-2", "behind-3", "other-1", "other-2", "other-3", "other-4", "other-5"} {
		rec := order(p.topic, id)
		rec.Partition = int32(min(i/4, 1))
		put(t, p.addrs, rec)
		ids = append(ids, id)
	}
	ev.awaitEnds(t, ids...)
	mu.Lock()
	defer mu.Unlock()
	partition := func(others bool) []string {
		return slices.DeleteFunc(slices.Clone(ran), func(id string) bool { return strings.HasPrefix(id, "other") != others })
	}
	if got := partition(false); !slices.Equal(got, []string{"first", "first", "first", "behind-1", "behind-2", "behind-3"}) {
		t.Errorf("ran %q", got)
	}
	if got := fmt.Sprint(partition(true)); got != "[other-1 other-2 other-3 other-4 other-5]" {
		t.Errorf("the other partition ran %s", got)
	}
}

func TestUnorderedMessagesOfOneKeyRunSideBySide(t *testing.T) {
	t.Parallel()
	p := onKafka(t)
	all := make(chan struct{})
	var mu sync.Mutex
	running := 0
	ev, _ := consume(t, p, kafka.Config{MaxInFlight: 10, Policy: redeliver.Policy{Order: redeliver.OrderNone}}, func(context.Context, *sarama.ConsumerMessage) error {
		mu.Lock()
		if running++; running == 3 {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-time.After(waitTimeout):
			t.Error("three of one key never ran at once")
		}
		return nil
	})
	recs, ids := orders(p.topic, 3)
	for _, r := range recs {
		r.Key = []byte("one")
	}
	put(t, p.addrs, recs...)
	ev.awaitEnds(t, ids...)
}
