package kafkashare_test

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafkashare"
	"github.com/redeliver/redeliver/internal/kafkatest"
	"github.com/redeliver/redeliver/mq"
)

// An operator pauses a share group with its own client. The first mark creates the control topic, as adapters/kafka does.
func TestAnOperatorPausesAShareGroup(t *testing.T) {
	t.Parallel()
	d := newDenied(t)
	open := func(noProvisioning bool) *mq.Operations {
		c, err := kafkashare.Open(t.Context(), kafkashare.Config{
			Brokers: d.Cluster.ListenAddrs(), Group: d.Group, NoProvisioning: noProvisioning, Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
		return c.Operations()
	}
	stop, err := d.Begin(t, redeliver.SinkFunc(func(redeliver.Event) {}))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	ops := open(false)
	want := func(err error, reason string, newOnly bool) {
		t.Helper()
		mark, errRead := ops.Paused(t.Context(), d.Topic)
		if err != nil || errRead != nil {
			t.Fatal(err, errRead)
		}
		if reason == "" && mark != nil || reason != "" && (mark == nil || mark.Reason != reason || mark.NewOnly != newOnly) {
			t.Errorf("the mark is %+v, want the reason %q", mark, reason)
		}
	}
	want(nil, "", false)
	want(ops.Resume(t.Context(), d.Topic), "", false)
	if err := ops.Pause(t.Context(), "bills", "closed"); err == nil || !strings.Contains(err.Error(), "group billing has never subscribed to bills") {
		t.Errorf("pausing what was never subscribed to: %v", err)
	}
	if err := open(true).Pause(t.Context(), d.Topic, "closed"); err == nil || !strings.Contains(err.Error(), "cleanup.policy=compact") {
		t.Errorf("without the right to create the topic: %v", err)
	}
	want(ops.Pause(t.Context(), d.Topic, "the bank is closed"), "the bank is closed", false)
	want(ops.PauseNew(t.Context(), d.Topic, "only new ones"), "only new ones", true)
	want(ops.Resume(t.Context(), d.Topic), "", false)
}

// Another program's control topic may lose marks. A pause is refused there, but can be ended.
func TestAPauseIsRefusedWhereItsMarkWouldBeLost(t *testing.T) {
	t.Parallel()
	d := newDenied(t)
	kafkatest.MakeTopic(t, kadm.NewClient(connect(t, d)), 3, nil, d.Ours("control"))
	c, err := kafkashare.Open(t.Context(), kafkashare.Config{Brokers: d.Cluster.ListenAddrs(), Group: d.Group, Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.WithoutCancel(t.Context())) })
	err = c.Operations().Pause(t.Context(), d.Topic, "closed")
	for _, want := range []string{"partitions is 3: must be 1", "cleanup.policy", "message.timestamp.type"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := c.Operations().Resume(t.Context(), d.Topic); err != nil {
		t.Errorf("ending a pause: %v", err)
	}
}
