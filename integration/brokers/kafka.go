package brokers

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strings"
	"time"
)

// The environment that decides where a Kafka comes from; see the package comment.
const (
	EnvKafka        = "REDELIVER_TEST_KAFKA"         // host:port[,host:port] of a Kafka that runs already
	EnvKafkaRestart = "REDELIVER_TEST_KAFKA_RESTART" // a shell command that restarts that Kafka
)

// kafkaVersion is what the native way fetches and the compose file names.
const kafkaVersion = "4.3.0"

// KafkaOptions says what kind of Kafka is wanted. The zero value is one node with the settings of kafka_settings.go.
type KafkaOptions struct {
	// Own asks for a broker that nobody else uses, even when the environment gives one. Default false.
	Own bool
	// Properties are server.properties on top of the defaults, or in place of them. Default none.
	// A Kafka that the environment gives cannot take them: that is an error.
	Properties map[string]string
	// Users turn the authorizer on: names of letters and their passwords, with which they log in by SASL/PLAIN at
	// Broker.UserAddrs. They may do what ACLs say; who comes to Addrs, without a name, may do everything. Default none,
	// and no authorizer. Like Properties, they need a broker of one's own.
	Users map[string]string
	// Brief starts a JVM that is up soon and takes little for it, and is slower in the end: for a broker of minutes, not
	// for a benchmark. Default false.
	Brief bool
	// Session is how long a node may miss its heartbeats before its partitions are taken from it. One that was killed
	// may not come back before. Default 3 s: with Kafka's 9 s a restart takes 12.
	Session time.Duration
	// Heap is the JVM's -Xmx. Default "1g".
	Heap string
	// StartTimeout bounds every wait for readiness. Default 8 min: a machine that runs test suites beside it is slow.
	StartTimeout time.Duration
	// Logf tells what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)

	classesTo string // where it writes its classes at its end, see classesOf
}

// Kafka starts a Kafka, or takes the one that the environment gives, and returns when it answers. When ctx ends the
// broker is killed; Stop ends it in order and removes its data.
func Kafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	o.Heap = cmp.Or(o.Heap, defaultHeap)
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	if addrs := splitAddrs(os.Getenv(EnvKafka)); len(addrs) > 0 && !o.Own {
		return givenKafka(ctx, o, addrs)
	}
	began := time.Now()
	b, err := byWay(ctx, "kafka", o.Logf,
		func(command []string) (*Broker, error) { return composeKafka(ctx, o, command) },
		func() (*Broker, error) { return nativeKafka(ctx, o) })
	if err != nil {
		return nil, fmt.Errorf("starting a kafka for the tests: %w", err)
	}
	o.Logf("%s, up in %.1fs", b, time.Since(began).Seconds())
	return b, nil
}

func splitAddrs(list string) []string {
	var addrs []string
	for a := range strings.SplitSeq(list, ",") {
		if a = strings.TrimSpace(a); a != "" {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
