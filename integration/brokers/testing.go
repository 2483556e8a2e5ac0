package brokers

import (
	"context"
	"io/fs"
	"os"
	"testing"
)

// Soak reports whether this is make soak, which takes hours. CONTRIBUTING.md lists the tests that do more then.
func Soak() bool { return os.Getenv("REDELIVER_SOAK") != "" }

// RequireKafka returns the addresses of the Kafka that all tests of a run share. It fails the test if there is none.
// Topics and groups of a test need unique names.
func RequireKafka(tb testing.TB) []string {
	tb.Helper()
	addrs := splitAddrs(os.Getenv(EnvKafka))
	if len(addrs) == 0 {
		tb.Fatalf("this test needs a kafka and %s is not set: use make test, or "+
			"go run ./integration/cmd/withbrokers --kafka -- go test ./integration/...", EnvKafka)
	}
	return addrs
}

// OwnKafka starts a Kafka that only this test uses, and may kill and restart. It is stopped at the end of the test. Its
// log is kept if the test has failed.
func OwnKafka(tb testing.TB, o KafkaOptions) *Broker {
	tb.Helper()
	o.Own, o.Brief = true, true
	complete(&o.StartTimeout, &o.Logf, tb.Logf)
	// Not the test's context, which ends before the cleanups: they close clients that need the broker.
	b, err := Kafka(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	stopAtEnd(tb, b)
	return b
}

// RequireRabbitMQ returns the RabbitMQ 3.10 that all tests of a run share. It fails the test if there is none. Queues
// and exchanges of a test need unique names. The node cannot be killed and does not support rabbitmqctl.
func RequireRabbitMQ(tb testing.TB) *Rabbit {
	tb.Helper()
	return requireRabbitMQVersion(tb, RabbitMQ3, "--rabbitmq")
}

// RequireRabbitMQ4 is RequireRabbitMQ with a RabbitMQ 4.
func RequireRabbitMQ4(tb testing.TB) *Rabbit {
	tb.Helper()
	return requireRabbitMQVersion(tb, RabbitMQ4, "--rabbitmq4")
}

// RequireRabbitMQs returns the RabbitMQs for a test that runs on every version, by version: 3.10, and in make prove
// 4.0.
func RequireRabbitMQs(tb testing.TB) map[string]*Rabbit {
	tb.Helper()
	all := map[string]*Rabbit{"3.10": RequireRabbitMQ(tb)}
	if Proving {
		all["4.0"] = RequireRabbitMQ4(tb)
	}
	return all
}

func requireRabbitMQVersion(tb testing.TB, version RabbitMQVersion, flag string) *Rabbit {
	tb.Helper()
	env, err := version.env()
	if err != nil {
		tb.Fatal(err)
	}
	if os.Getenv(env.url) == "" {
		tb.Fatalf("this test needs a rabbitmq %s and %s is not set: use make test, or "+
			"go run ./integration/cmd/withbrokers %s -- go test ./integration/...", version, env.url, flag)
	}
	r, err := RabbitMQ(context.Background(), RabbitMQOptions{Version: version, Logf: tb.Logf})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// OwnRabbitMQ starts a RabbitMQ that only this test uses, and may kill and restart. It is stopped at the end of the
// test. Its log is kept if the test has failed.
func OwnRabbitMQ(tb testing.TB, o RabbitMQOptions) *Rabbit {
	tb.Helper()
	return OwnRabbitMQSoon(tb, o)()
}

// OwnRabbitMQSoon is OwnRabbitMQ for a test that waits for its turn to run in parallel. The node starts in the
// meantime. The returned function waits until it is ready.
func OwnRabbitMQSoon(tb testing.TB, o RabbitMQOptions) func() *Rabbit {
	tb.Helper()
	o.Own = true
	complete(&o.StartTimeout, &o.Logf, tb.Logf)
	var r *Rabbit
	var err error
	up := make(chan struct{})
	go func() {
		defer close(up)
		r, err = RabbitMQ(context.Background(), o) // not the test's context, as with Kafka
	}()
	tb.Cleanup(func() {
		if <-up; err == nil {
			stop(tb, r.Broker)
		}
	})
	return func() *Rabbit {
		tb.Helper()
		if <-up; err != nil {
			tb.Fatal(err)
		}
		return r
	}
}

// RequireSQS returns the endpoint of the ElasticMQ that all tests of a run share, http://host:port. It fails the test
// if there is none. The server accepts any credentials and region. Queues of a test need unique names.
func RequireSQS(tb testing.TB) string {
	tb.Helper()
	return requireSQSServer(tb, "an sqs", EnvSQS, "--sqs")
}

// RequireMoto returns the endpoint of the moto server that all tests of a run share. It is for rules that ElasticMQ
// does not enforce. It is slow: no test sends it more than a few hundred messages.
func RequireMoto(tb testing.TB) string {
	tb.Helper()
	return requireSQSServer(tb, "a moto", EnvMoto, "--moto")
}

// RequireSQSServers returns the endpoints for a test that runs on every SQS server, by server: ElasticMQ, and in make
// prove moto.
func RequireSQSServers(tb testing.TB) map[string]string {
	tb.Helper()
	all := map[string]string{"ElasticMQ": RequireSQS(tb)}
	if Proving {
		all["moto"] = RequireMoto(tb)
	}
	return all
}

func requireSQSServer(tb testing.TB, what, env, flag string) string {
	tb.Helper()
	endpoint := os.Getenv(env)
	if endpoint == "" {
		tb.Fatalf("this test needs %s server and %s is not set: use make test, or "+
			"go run ./integration/cmd/withbrokers %s -- go test ./integration/...", what, env, flag)
	}
	return endpoint
}

// OwnSQS starts an ElasticMQ that only this test uses, and may kill and restart without losing confirmed messages. It
// is stopped at the end of the test. Its log is kept if the test has failed.
func OwnSQS(tb testing.TB, o SQSOptions) *SQSServer {
	tb.Helper()
	o.Own, o.Brief = true, true
	complete(&o.StartTimeout, &o.Logf, tb.Logf)
	s, err := SQS(context.Background(), o) // not the test's context, as with Kafka
	if err != nil {
		tb.Fatal(err)
	}
	stopAtEnd(tb, s.Broker)
	return s
}

// RequireRedis returns the address of the Redis that all tests of a run share, host:port. It fails the test if there is
// none. Keys of a test need unique names.
func RequireRedis(tb testing.TB) string {
	tb.Helper()
	addr := os.Getenv(EnvRedis)
	if addr == "" {
		tb.Fatalf("this test needs a redis and %s is not set: use make test, or "+
			"go run ./integration/cmd/withbrokers --redis -- go test ./integration/...", EnvRedis)
	}
	return addr
}

// OwnRedis starts a Redis that only this test uses, and may kill and restart without losing confirmed data. It is
// stopped at the end of the test. Its log is kept if the test has failed.
func OwnRedis(tb testing.TB, o RedisOptions) *Broker {
	tb.Helper()
	o.Own = true
	complete(&o.StartTimeout, &o.Logf, tb.Logf)
	b, err := Redis(context.Background(), o) // not the test's context, as with Kafka
	if err != nil {
		tb.Fatal(err)
	}
	stopAtEnd(tb, b)
	return b
}

// RequirePython returns the program that Python returns, for a test that uses SQS through boto3.
func RequirePython(tb testing.TB) string {
	tb.Helper()
	python, err := Python()
	if err != nil {
		tb.Fatal(err)
	}
	return python
}

// RequireJava builds a program in Java, as Java does. It fails the test if that fails.
func RequireJava(tb testing.TB, name string, project fs.FS) *JavaProject {
	tb.Helper()
	built, err := Java(context.Background(), name, project, tb.Logf)
	if err != nil {
		tb.Fatal(err)
	}
	return built
}

func stopAtEnd(tb testing.TB, b *Broker) {
	tb.Helper()
	tb.Cleanup(func() { stop(tb, b) })
}

func stop(tb testing.TB, b *Broker) {
	tb.Helper()
	if tb.Failed() {
		b.KeepLog()
	}
	if err := b.Stop(); err != nil {
		tb.Error(err)
	}
}
