package brokers

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"
)

// The environment variables that determine the SQS servers; see the package comment.
const (
	EnvSQS        = "REDELIVER_TEST_SQS"         // http://host:port of a running ElasticMQ
	EnvSQSRestart = "REDELIVER_TEST_SQS_RESTART" // a shell command that restarts it

	EnvMoto        = "REDELIVER_TEST_MOTO" // http://host:port of a running moto server
	EnvMotoRestart = "REDELIVER_TEST_MOTO_RESTART"
)

// elasticMQVersion is the version that the native way fetches and the compose file names.
const elasticMQVersion = "1.7.1"

// SQSOptions configures an ElasticMQ. The zero value is one with the settings of sqs_settings.go, which keeps its
// messages in memory.
type SQSOptions struct {
	// Own requests a server that nobody else uses, even if the environment gives one. It writes every message to disk
	// before it confirms it, so that Kill and Start lose none. It handles a tenth of the load. Default false.
	Own bool
	// Config are additional settings of elasticmq.conf, or replace its defaults. Each is a HOCON value by its path,
	// such as rest-sqs.sqs-limits. Default none. They are an error for a server from the environment.
	Config map[string]string
	// Brief is as in KafkaOptions. Default false.
	Brief bool
	// Heap is the JVM's -Xmx. Default "1g".
	Heap string
	// StartTimeout bounds every wait for readiness. Default 8 min, because a machine that also runs test suites is
	// slow.
	StartTimeout time.Duration
	// Logf logs what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)

	classesTo string // where it writes its classes when it ends, see classesOf
}

// SQSServer is a server with the SQS protocol: ElasticMQ or moto. It accepts any credentials and region. Kill, Start,
// Shutdown, Restart and Stop are those of [Broker].
type SQSServer struct{ *Broker }

// URL returns the endpoint for a client, http://host:port.
func (s *SQSServer) URL() string { return s.addrs[0] }

// SQS starts an ElasticMQ, or uses the one from the environment, and returns when it answers. When ctx ends the server
// is killed. Stop ends it gracefully and removes its data.
func SQS(ctx context.Context, o SQSOptions) (*SQSServer, error) {
	o.Heap = cmp.Or(o.Heap, defaultHeap)
	complete(&o.StartTimeout, &o.Logf, log.Printf)
	if url := os.Getenv(EnvSQS); url != "" && !o.Own {
		if len(o.Config) > 0 {
			return nil, fmt.Errorf("the elasticmq at %s comes from %s and its settings cannot be changed; "+
				"set SQSOptions.Own for a server with settings of its own", url, EnvSQS)
		}
		return givenSQS(ctx, url, EnvSQS, EnvSQSRestart, "SQSOptions.Own", o.StartTimeout, o.Logf)
	}
	began := time.Now()
	s, err := byWay(ctx, "elasticmq", o.Logf,
		func(command []string) (*SQSServer, error) { return composeSQS(ctx, o, command) },
		func() (*SQSServer, error) { return nativeSQS(ctx, o) })
	if err != nil {
		return nil, fmt.Errorf("starting an elasticmq for the tests: %w", err)
	}
	o.Logf("%s, up in %.1fs", s, time.Since(began).Seconds())
	return s, nil
}

// newSQS opens a server that listens on this loopback port.
func newSQS(
	ctx context.Context, name string, sys system, port int, maxWait time.Duration, logf func(string, ...any),
) (*SQSServer, error) {
	b, err := open(ctx, &Broker{
		name:    name,
		addrs:   []string{fmt.Sprintf("http://127.0.0.1:%d", port)},
		sys:     sys,
		ready:   sqsAnswers,
		maxWait: maxWait,
		logf:    logf,
	})
	if err != nil {
		return nil, err
	}
	return &SQSServer{b}, nil
}
