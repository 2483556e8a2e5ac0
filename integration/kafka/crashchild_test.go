package kafka_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// crashEnv is the environment variable with the configuration of a child process: a consumer that a message or its
// parent kills.
const crashEnv = "REDELIVER_TEST_KAFKA_CRASH"

// crashConfig is the configuration in crashEnv.
type crashConfig struct {
	Addrs         []string        `json:"addrs"`
	Topic         string          `json:"topic"`
	Group         string          `json:"group"`
	Journal       string          `json:"journal"`
	Order         redeliver.Order `json:"order"`
	MaxInFlight   int             `json:"in_flight"`
	Takes         time.Duration   `json:"takes"`          // duration of each handler
	Killer        string          `json:"killer"`         // the message that kills the process
	KillsAt       int             `json:"kills_at"`       // the attempt that kills; earlier ones fail
	Exit          bool            `json:"exit"`           // the killer calls os.Exit instead of sending SIGKILL
	Retries       int             `json:"retries"`        // 3 if 0
	Fails         string          `json:"fails"`          // the message that fails in each attempt
	DynamicMember bool            `json:"dynamic_member"` // no static member, so the group notices a kill after the session
}

// crashChild consumes until it gets SIGTERM or dies. All processes append to one journal. Each line is one write, so it
// survives a kill.
func crashChild(ctx context.Context, cfg crashConfig) error {
	journal, err := os.OpenFile(cfg.Journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	appendJournal := func(what, id string, n int) {
		if _, err := fmt.Fprintf(journal, "%s %s %d\n", what, id, n); err != nil {
			panic(err)
		}
	}
	level := 200 * time.Millisecond
	config := kafka.Config{
		Group: cfg.Group, MaxInFlight: cfg.MaxInFlight, InstanceID: "one",
		Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, Order: cfg.Order, MaxRetries: cmp.Or(cfg.Retries, 3), Backoff: redeliver.Fixed(level), Levels: []time.Duration{level}},
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.Committed:
				appendJournal("commit", e.State.ID, e.State.Attempts)
			case redeliver.DeadLettered:
				appendJournal("dead-"+string(e.State.Reason), e.State.ID, e.State.Attempts)
			case redeliver.SubscriptionChanged:
				if e.Change == redeliver.ChangeAttemptsInMemory {
					appendJournal("in-memory", cfg.Topic, 0)
				}
			default:
			}
		}),
	}
	if cfg.DynamicMember {
		config.InstanceID = ""
	}
	return consume(ctx, cfg.Addrs, 3*time.Second, config, cfg.Topic, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		id := string(rec.Value)
		appendJournal("run", id, st.Attempt())
		if id == cfg.Fails || id == cfg.Killer && st.Attempt() < cfg.KillsAt {
			return errors.New("card declined")
		}
		if id == cfg.Killer {
			if cfg.Exit {
				os.Exit(3)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		time.Sleep(cfg.Takes) //nolint:forbidigo // This is the handler's work.
		return nil
	})
}
