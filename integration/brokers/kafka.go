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

// The environment variables that determine the Kafka; see the package comment.
const (
	EnvKafka        = "REDELIVER_TEST_KAFKA"         // host:port[,host:port] of a running Kafka
	EnvKafkaRestart = "REDELIVER_TEST_KAFKA_RESTART" // a shell command that restarts that Kafka
)

// kafkaVersion is the version that the native way fetches and the compose file names.
const kafkaVersion = "4.3.0"

// OlderKafkas are the other versions on which make prove runs the conformance kit, the oldest first.
var OlderKafkas = []string{"3.0.2", "3.9.1", "4.0.0", "4.1.0"}

// KafkaOptions configures a Kafka. The zero value is one node with the settings of kafka_settings.go.
type KafkaOptions struct {
	// Own requests a broker that nobody else uses, even if the environment gives one. Default false.
	Own bool
	// Version is a version of Kafka, natively one of OlderKafkas or the default. Default 4.3.0.
	Version string
	// Properties are additions to server.properties, or replace its defaults. Default none. They are an error for a
	// Kafka from the environment.
	Properties map[string]string
	// Users are names of letters with their passwords, with which they log in by SASL/PLAIN at Broker.UserAddrs.
	// Setting Users turns the authorizer on. The users may do what ACLs allow. Clients of Addrs, which have no name,
	// may do everything. Default none, and no authorizer. Like Properties, Users need a private broker.
	Users map[string]string
	// Brief starts a JVM that starts fast and uses less CPU then, but is slower later. It is for a broker that runs for
	// minutes, not for a benchmark. Default false.
	Brief bool
	// Session is how long a node may miss its heartbeats before it loses its partitions. A killed node may not come
	// back before that. Default 3 s: with Kafka's 9 s a restart takes 12 s.
	Session time.Duration
	// Heap is the JVM's -Xmx. Default "1g".
	Heap string
	// StartTimeout bounds every wait for readiness. Default 8 min, because a machine that also runs test suites is
	// slow.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)

	classesTo string // where it writes its classes when it ends, see classesOf
}

// Kafka starts a Kafka, or uses the one from the environment, and returns when it answers. When ctx ends the broker is
// killed. Stop ends it gracefully and removes its data.
func Kafka(ctx context.Context, o KafkaOptions) (*Broker, error) {
	o.Heap, o.Version = cmp.Or(o.Heap, defaultHeap), cmp.Or(o.Version, kafkaVersion)
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	if addrs := splitAddrs(os.Getenv(EnvKafka)); len(addrs) > 0 && !o.Own {
		return givenKafka(ctx, o, addrs)
	}
	began := time.Now()
	b, err := byWay(ctx, "kafka", o.Logf,
		func(command []string) (*Broker, error) {
			if o.Version != kafkaVersion {
				return nativeKafka(ctx, o)
			}
			return composeKafka(ctx, o, command)
		},
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
