package brokers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// maxGivenWait bounds the wait for a broker that should be running already.
const maxGivenWait = 30 * time.Second

// given is a broker that this program does not operate. It is used, but never stopped.
type given struct {
	name       string
	addrsEnv   string // the variable that named it
	restartEnv string // the variable that may hold a command to restart it
	own        string // the option that requests a private broker
}

func givenKafka(ctx context.Context, o KafkaOptions, addrs []string) (*Broker, error) {
	if len(o.Properties) > 0 || len(o.Users) > 0 {
		return nil, fmt.Errorf("kafka at %v comes from %s and its settings cannot be changed; "+
			"set KafkaOptions.Own for a broker with settings of its own", addrs, EnvKafka)
	}
	return open(ctx, &Broker{
		name:    "kafka given by " + EnvKafka,
		addrs:   addrs,
		sys:     &given{name: "kafka", addrsEnv: EnvKafka, restartEnv: EnvKafkaRestart, own: "KafkaOptions.Own"},
		ready:   kafkaAnswers,
		maxWait: min(o.StartTimeout, maxGivenWait),
		logf:    o.Logf,
	})
}

func (g *given) start(context.Context) error { return nil }
func (g *given) stop(bool) error             { return nil }
func (g *given) ended() error                { return nil }
func (g *given) remove(bool) (string, error) { return "", nil }
func (g *given) logTail() string             { return "(the log is where the broker runs)" }

// kill returns an error, because Kill cannot kill this broker. When a context ends, the error is ignored.
func (g *given) kill() error {
	return fmt.Errorf("%s was given by %s and is not ours to kill; set %s for a broker that is", g.name, g.addrsEnv, g.own)
}

func (g *given) restart(ctx context.Context) error {
	command := os.Getenv(g.restartEnv)
	if command == "" {
		return fmt.Errorf("%s was given by %s and is not ours to restart: "+
			"put a shell command that restarts it into %s, or set %s", g.name, g.addrsEnv, g.restartEnv, g.own)
	}
	out, err := exec.CommandContext(ctx, "sh", "-c", command).CombinedOutput()
	if err != nil {
		return errors.Join(fmt.Errorf("restarting %s with %s=%q: %w", g.name, g.restartEnv, command, err), errors.New(string(out)))
	}
	return nil
}
