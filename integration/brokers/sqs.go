package brokers

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"
)

// The environment that decides where the SQS servers come from; see the package comment.
const (
	EnvSQS        = "REDELIVER_TEST_SQS"         // http://host:port of an ElasticMQ that runs already
	EnvSQSRestart = "REDELIVER_TEST_SQS_RESTART" // a shell command that restarts it

	EnvMoto        = "REDELIVER_TEST_MOTO" // http://host:port of a moto server that runs already
	EnvMotoRestart = "REDELIVER_TEST_MOTO_RESTART"
)

// elasticMQVersion is what the native way fetches and the compose file names.
const elasticMQVersion = "1.7.1"

// SQSOptions says what kind of ElasticMQ is wanted. The zero value is one with the settings of sqs_settings.go, which
// holds its messages in memory.
type SQSOptions struct {
	// Own asks for a server that nobody else uses, even when the environment gives one. It keeps every message on disk
	// before it confirms it, so that Kill and Start lose none, and takes a tenth of the load for it. Default false.
	Own bool
	// Config are settings of elasticmq.conf on top of the defaults, or in place of them, each a HOCON value by its
	// path, such as rest-sqs.sqs-limits. Default none. A server that the environment gives cannot take them: that is
	// an error.
	Config map[string]string
	// Brief is that of KafkaOptions. Default false.
	Brief bool
	// Heap is the JVM's -Xmx. Default "1g".
	Heap string
	// StartTimeout bounds every wait for readiness. Default 8 min: a machine that runs test suites beside it is slow.
	StartTimeout time.Duration
	// Logf tells what is started and how. Default: the standard logger, which writes to stderr.
	Logf func(format string, args ...any)

	classesTo string // where it writes its classes at its end, see classesOf
}

// SQSServer is a server that speaks SQS: ElasticMQ or moto. It takes any credentials and region. Kill, Start, Shutdown,
// Restart and Stop are those of every [Broker].
type SQSServer struct{ *Broker }

// URL is the endpoint to give to a client, http://host:port.
func (s *SQSServer) URL() string { return s.addrs[0] }

// SQS starts an ElasticMQ, or takes the one that the environment gives, and returns when it answers. When ctx ends the
// server is killed; Stop ends it in order and removes its data.
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

// newSQS opens a server of ours, which listens on this loopback port.
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
