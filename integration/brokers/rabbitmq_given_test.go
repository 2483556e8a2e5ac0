//go:build prove

package brokers_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/integration/brokers"
)

// If a given broker cannot be used, the test fails with the name of the variable and without the password, and does not
// use another broker.
func TestGivenRabbitMQThatCannotBeUsedFails(t *testing.T) {
	for _, url := range []string{"amqp://user:secret@127.0.0.1:1/", "http://user:secret@127.0.0.1:5672", "127.0.0.1:5672"} {
		for version, env := range map[brokers.RabbitMQVersion]string{
			brokers.RabbitMQ3: brokers.EnvRabbitMQ, brokers.RabbitMQ4: brokers.EnvRabbitMQ4,
		} {
			t.Setenv(env, url)
			_, err := brokers.RabbitMQ(t.Context(), brokers.RabbitMQOptions{
				Version: version, StartTimeout: 300 * time.Millisecond, Logf: t.Logf,
			})
			if err == nil || !strings.Contains(err.Error(), env) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s=%s: error = %v, want one that names the variable and no password", env, url, err)
			}
		}
	}
	if _, err := brokers.RabbitMQ(t.Context(), brokers.RabbitMQOptions{Version: "2"}); err == nil {
		t.Error("a rabbitmq 2 was started")
	}
}

func TestGivenRabbitMQIsNotStopped(t *testing.T) {
	r := brokers.RequireRabbitMQ(t)
	if _, err := brokers.RabbitMQ(t.Context(), brokers.RabbitMQOptions{Config: map[string]string{"a": "b"}}); err == nil {
		t.Error("settings for a given broker were accepted without an error")
	}
	if err := r.Kill(); err == nil {
		t.Error("a given broker was killed")
	}
	if _, err := r.RunCtl(t.Context(), "status"); err == nil || !strings.Contains(err.Error(), "OwnRabbitMQ") {
		t.Errorf("rabbitmqctl = %v, want an error that names the alternative", err)
	}

	t.Setenv(brokers.EnvRabbitMQRestart, "")
	if err := r.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), brokers.EnvRabbitMQRestart) {
		t.Errorf("restart = %v, want an error that names %s", err, brokers.EnvRabbitMQRestart)
	}
	ran := filepath.Join(t.TempDir(), "ran")
	t.Setenv(brokers.EnvRabbitMQRestart, "touch "+ran)
	if err := r.Restart(t.Context()); err != nil {
		t.Errorf("restart by command: %v", err)
	}
	if _, err := os.Stat(ran); err != nil {
		t.Errorf("the restart command did not run: %v", err)
	}

	if err := r.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	conn, err := amqp091.Dial(r.URL())
	if err != nil {
		t.Fatalf("stopping a given broker ended it: %v", err)
	}
	_ = conn.Close()
}
