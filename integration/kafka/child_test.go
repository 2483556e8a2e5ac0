package kafka_test

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver/adapters/kafka"
	"github.com/redeliver/redeliver/integration/consumer"
)

func TestMain(m *testing.M) {
	consumer.Main(perKeyEnv, perKeyChild)
	consumer.Main(crashEnv, crashChild)
	os.Exit(m.Run())
}

// child is a consumer in its own process, which ends with its test.
type child struct{ *consumer.Process }

func startChild(t *testing.T, env string, cfg any, log string) child {
	t.Helper()
	p, err := consumer.Start(env, cfg, log)
	if err != nil {
		t.Fatal(err)
	}
	c := child{p}
	t.Cleanup(func() { c.end(syscall.SIGKILL) })
	return c
}

func (c child) end(how syscall.Signal) {
	_ = c.Signal(how) // it may have ended
	<-c.Ended()
}

// consume reads a topic from its beginning until ctx ends. Its session is short, so that the group soon notices a kill.
func consume(ctx context.Context, addrs []string, session time.Duration, cfg kafka.Config, topic string, handle func(context.Context, *sarama.ConsumerMessage) error) error {
	sc := sarama.NewConfig()
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = session, 300*time.Millisecond
	client, err := sarama.NewClient(addrs, sc)
	if err != nil {
		return err
	}
	defer client.Close()
	return kafka.Consume(ctx, client, cfg, []string{topic}, handle)
}
