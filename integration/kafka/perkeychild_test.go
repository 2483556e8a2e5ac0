package kafka_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka"
)

// A consumer in a process of its own, which is killed: this binary, started again
// with perKeyEnv set.
const perKeyEnv = "REDELIVER_TEST_KAFKA_PERKEY"

func TestMain(m *testing.M) {
	if raw := os.Getenv(perKeyEnv); raw != "" {
		if err := perKeyChild(raw); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if raw := os.Getenv(copyEnv); raw != "" {
		if err := copyChild(raw); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if raw := os.Getenv(crashEnv); raw != "" {
		if err := crashChild(raw); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// perKeyConfig is what the parent tells its children, by that variable.
type perKeyConfig struct {
	Addrs   []string `json:"addrs"`
	Topic   string   `json:"topic"`
	Group   string   `json:"group"`
	Journal string   `json:"journal"`
	Seed    uint64   `json:"seed"`
}

// What the keys do: some of their messages fail for good, some once or twice.
const (
	perKeyKeys    = 60
	perKeyEach    = 60
	perKeyRetries = 3
)

// fails tells whether an attempt fails: in every process the same.
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

// perKeyChild consumes until it gets SIGTERM, or is killed. All processes append to
// one journal, each line with one write, so its order is that of what happened.
func perKeyChild(raw string) error {
	var cfg perKeyConfig
	if err := json.Unmarshal([]byte(raw), &cfg); err != nil {
		return err
	}
	journal, err := os.OpenFile(cfg.Journal, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	note := func(what string, rec *sarama.ConsumerMessage, attempt int) {
		if _, err := fmt.Fprintf(journal, "%s %s %d %d\n", what, rec.Key, binary.BigEndian.Uint32(rec.Value), attempt); err != nil {
			panic(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	sc := sarama.NewConfig()
	sc.Version = sarama.V2_8_0_0
	sc.Consumer.Offsets.Initial = sarama.OffsetOldest
	sc.Consumer.Group.Session.Timeout, sc.Consumer.Group.Heartbeat.Interval = 2*time.Second, 300*time.Millisecond
	client, err := sarama.NewClient(cfg.Addrs, sc)
	if err != nil {
		return err
	}
	defer client.Close()
	levels := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, time.Second}
	return kafka.Consume(ctx, client, kafka.Config{
		Group: cfg.Group, MaxInFlight: 20, DrainTimeout: 2 * time.Second,
		Policy: redeliver.Policy{Order: redeliver.PerKey, MaxRetries: perKeyRetries, Backoff: redeliver.Steps(levels...), Levels: levels},
	}, []string{cfg.Topic}, func(ctx context.Context, rec *sarama.ConsumerMessage) error {
		st, _ := redeliver.FromContext(ctx)
		note("begin", rec, st.Attempt())
		time.Sleep(time.Duration(mathrand.IntN(4)) * time.Millisecond) //nolint:forbidigo // This is the handler's work.
		if cfg.fails(rec, st.Attempt()) {
			if st.Attempt() > perKeyRetries {
				note("settled", rec, st.Attempt()) // it goes to the DLQ
			}
			return errors.New("card declined")
		}
		note("settled", rec, st.Attempt())
		return nil
	})
}

type childProcess struct {
	cmd   *exec.Cmd
	log   *os.File
	ended chan struct{}
}

func startPerKey(t *testing.T, cfg perKeyConfig, number int) *childProcess {
	t.Helper()
	return startChild(t, perKeyEnv, cfg, filepath.Join(filepath.Dir(cfg.Journal), fmt.Sprintf("consumer-%d.log", number)))
}

// startChild starts this binary again, which is told cfg by the variable env.
func startChild(t *testing.T, env string, cfg any, logged string) *childProcess {
	t.Helper()
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(logged)
	if err != nil {
		t.Fatal(err)
	}
	p := &childProcess{cmd: exec.Command(self), log: log, ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env+"="+string(raw))
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		defer log.Close()
		_ = p.cmd.Wait() // how is the parent's doing
	}()
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	return p
}

func (p *childProcess) end(how syscall.Signal) {
	_ = p.cmd.Process.Signal(how) // it may have ended
	<-p.ended
}
