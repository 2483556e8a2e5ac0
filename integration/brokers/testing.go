package brokers

import (
	"context"
	"os"
	"testing"
)

// RequireKafka returns the addresses of the Kafka that all tests of a run share, and fails the test when there is
// none. Topics and groups of a test need names of their own there.
func RequireKafka(tb testing.TB) []string {
	tb.Helper()
	addrs := splitAddrs(os.Getenv(EnvKafka))
	if len(addrs) == 0 {
		tb.Fatalf("this test needs a kafka and %s is not set: use make test, or "+
			"go run ./integration/cmd/withbrokers --kafka -- go test ./integration/...", EnvKafka)
	}
	return addrs
}

// OwnKafka starts a Kafka that only this test uses, and may kill and restart. It is stopped at the test's end, and its
// log is kept when the test has failed.
func OwnKafka(tb testing.TB, o KafkaOptions) *Broker {
	tb.Helper()
	o.Own = true
	if o.Logf == nil {
		o.Logf = tb.Logf
	}
	// Not the test's context: that ends before the cleanups, and the clients that are closed there want their broker.
	b, err := Kafka(context.Background(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			b.KeepLog()
		}
		if err := b.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return b
}
