//go:build prove

package brokers_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// If a given broker does not answer, the test fails with the name of the variable, and does not use another broker.
func TestGivenKafkaThatDoesNotAnswerFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	t.Setenv(brokers.EnvKafka, addr)
	_, err = brokers.Kafka(t.Context(), brokers.KafkaOptions{StartTimeout: 500 * time.Millisecond, Logf: t.Logf})
	if err == nil || !strings.Contains(err.Error(), brokers.EnvKafka) || !strings.Contains(err.Error(), addr) {
		t.Errorf("error = %v, want one that names %s and %s", err, brokers.EnvKafka, addr)
	}
}

func TestGivenKafkaIsNotStopped(t *testing.T) {
	addrs := brokers.RequireKafka(t)
	t.Setenv(brokers.EnvKafka, " "+strings.Join(addrs, " , ")+" ,")
	b, err := brokers.Kafka(t.Context(), brokers.KafkaOptions{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}

	if _, err := brokers.Kafka(t.Context(), brokers.KafkaOptions{Properties: map[string]string{"a": "b"}}); err == nil {
		t.Error("properties for a given broker were accepted without an error")
	}
	if err := b.Kill(); err == nil {
		t.Error("a given broker was killed")
	}
	if err := b.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), brokers.EnvKafkaRestart) {
		t.Errorf("restart = %v, want an error that names %s", err, brokers.EnvKafkaRestart)
	}

	ran := filepath.Join(t.TempDir(), "ran")
	t.Setenv(brokers.EnvKafkaRestart, "touch "+ran)
	if err := b.Restart(t.Context()); err != nil {
		t.Errorf("restart by command: %v", err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("the restart command did not run: %v", err)
	}

	if err := b.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	if !answers(t.Context(), addrs) {
		t.Error("stopping a given broker ended it")
	}
}
