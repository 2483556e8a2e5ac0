package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// perKeyEnv is the environment variable with the configuration of a child process: a consumer that is killed.
const perKeyEnv = "REDELIVER_TEST_KAFKA_PERKEY"

// perKeyConfig is the configuration in perKeyEnv.
type perKeyConfig struct {
	Addrs   []string `json:"addrs"`
	Topic   string   `json:"topic"`
	Group   string   `json:"group"`
	Journal string   `json:"journal"`
	Seed    uint64   `json:"seed"`
}

const (
	perKeyKeys    = 60
	perKeyEach    = 60 // messages of each key
	perKeyRetries = 3
)

// fails reports whether an attempt fails, which is the same in every process. Some messages fail at every attempt, some
// only at the first ones.
func (c perKeyConfig) fails(rec *sarama.ConsumerMessage, attempt int) bool {
	r := mathrand.New(mathrand.NewPCG(c.Seed, uint64(rec.Partition)<<32|uint64(rec.Offset)))
	switch n := r.IntN(100); {
	case n < 3:
		return true
	case n < 15:
		return attempt <= 1+r.IntN(perKeyRetries)
	default:
		return false
	}
}

// perKeyChild consumes until it gets SIGTERM or is killed. All processes append to one journal. Each line is one write,
// so the lines are in the order of the events.
func perKeyChild(ctx context.Context, cfg perKeyConfig) error {
	journal, err := os.OpenFile(cfg.Journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	appendJournal := func(what string, rec *sarama.ConsumerMessage, attempt int) {
		if _, err := fmt.Fprintf(journal, "%s %s %d %d\n", what, rec.Key, binary.BigEndian.Uint32(rec.Value), attempt); err != nil {
			panic(err)
		}
	}
	levels := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}
	return consume(ctx, cfg.Addrs, 2*time.Second, kafka.Config{
		Group: cfg.Group, MaxInFlight: 20, DrainTimeout: 2 * time.Second,
		Policy: redeliver.Policy{Outage: redeliver.Outage{Off: true}, Order: redeliver.OrderThroughRetries, MaxRetries: perKeyRetries, Backoff: redeliver.Steps(levels...), Levels: levels},
	}, cfg.Topic, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		appendJournal("begin", rec, st.Attempt())
		time.Sleep(time.Duration(mathrand.IntN(4)) * time.Millisecond) //nolint:forbidigo // This is the handler's work.
		if cfg.fails(rec, st.Attempt()) {
			if st.Attempt() > perKeyRetries {
				appendJournal("settled", rec, st.Attempt()) // it goes to the DLQ
			}
			return errors.New("card declined")
		}
		appendJournal("settled", rec, st.Attempt())
		return nil
	})
}

// startPerKey starts the child process with a number, which names its log.
func startPerKey(t *testing.T, cfg perKeyConfig, number int) child {
	t.Helper()
	return startChild(t, perKeyEnv, cfg, filepath.Join(filepath.Dir(cfg.Journal), fmt.Sprintf("consumer-%d.log", number)))
}
