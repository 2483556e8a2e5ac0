package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/redeliver/redeliver/integration/brokers"
)

func TestExitStatusIsTheCommands(t *testing.T) {
	t.Setenv(brokers.EnvKafka, strings.Join(brokers.RequireKafka(t), ","))
	t.Setenv(brokers.EnvRabbitMQ, brokers.RequireRabbitMQ(t).URL())
	t.Setenv(brokers.EnvRabbitMQ4, brokers.RequireRabbitMQ(t).URL())
	t.Setenv(brokers.EnvSQS, brokers.RequireSQS(t))
	t.Setenv(brokers.EnvMoto, brokers.RequireSQS(t))
	t.Setenv(brokers.EnvRedis, brokers.RequireRedis(t))
	t.Setenv(brokers.EnvRocketMQ, "127.0.0.1:1") // nothing listens there
	for _, c := range []struct {
		name string
		args []string
		want int
	}{
		{"succeeds", []string{"--kafka", "--", "true"}, 0},
		{"fails", []string{"--kafka", "--", "sh", "-c", "exit 7"}, 7},
		{"is killed", []string{"--kafka", "--", "sh", "-c", "kill -9 $$"}, 137},
		{"is not there", []string{"--kafka", "--", "no-such-command-anywhere"}, 127},
		{"sees the address", []string{"--kafka", "--", "sh", "-c", `test -n "$` + brokers.EnvKafka + `"`}, 0},
		{"sees all addresses", []string{"--kafka", "--rabbitmq", "--rabbitmq4", "--sqs", "--moto", "--redis", "--", "sh", "-c",
			`test -n "$` + brokers.EnvKafka + `" -a -n "$` + brokers.EnvRabbitMQ + `" -a -n "$` + brokers.EnvRabbitMQ4 +
				`" -a -n "$` + brokers.EnvSQS + `" -a -n "$` + brokers.EnvMoto + `" -a -n "$` + brokers.EnvRedis + `"`}, 0},
		{"asks for help", []string{"--help"}, 0},
		{"names no broker", []string{"--", "true"}, 2},
		{"names no command", []string{"--kafka"}, 2},
		{"sets nonsense", []string{"--kafka", "--kafka-set", "nonsense", "--", "true"}, 2},
		{"cannot set what is given", []string{"--rabbitmq", "--rabbitmq-set", "a=b", "--", "true"}, 1},
		{"cannot set what is given", []string{"--sqs", "--sqs-set", "a=b", "--", "true"}, 1},
		{"cannot set what is given", []string{"--rocketmq", "--rocketmq-set", "a=b", "--", "true"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stderr bytes.Buffer
			if got := run(c.args, &stderr); got != c.want {
				t.Errorf("exit status %d, want %d; it said: %s", got, c.want, stderr.String())
			}
			if c.want == exitUsage && stderr.Len() == 0 {
				t.Error("a wrong call was refused without a message")
			}
		})
	}
}
