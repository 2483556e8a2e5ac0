package amqp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/middleware"
)

// A consumer runs in its own process, which a message may kill: this binary, started again with childEnv set.
const childEnv = "REDELIVER_TEST_AMQP_CHILD"

// childConfig is the configuration of a child, in childEnv.
type childConfig struct {
	URL         string          `json:"url"`
	Queue       string          `json:"queue"`
	Prefetch    int             `json:"prefetch"`
	MaxInFlight int             `json:"in_flight"`
	Takes       time.Duration   `json:"takes"`  // of each handler
	Killer      string          `json:"killer"` // the id of the message that kills the process
	Exit        bool            `json:"exit"`   // by os.Exit, not SIGKILL
	Order       redeliver.Order `json:"order"`
	KillsAt     int             `json:"kills_at"` // at which attempt; before that it fails
}

// childEvent is a line of a child's output.
type childEvent struct {
	What     string           `json:"what"` // run, commit, dead, suspect
	ID       string           `json:"id"`
	Attempts int              `json:"attempts"`
	Reason   redeliver.Reason `json:"reason"`
}

func TestMain(m *testing.M) {
	if raw := os.Getenv(childEnv); raw != "" {
		if err := child(raw); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if raw := os.Getenv(orderEnv); raw != "" {
		if err := orderChild(raw); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	sideBySide()
	os.Exit(m.Run())
}

// atOnce is how many tests run in parallel by default, because they mostly wait.
const atOnce = 8

func sideBySide() {
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(atOnce)) // an int is always valid
	}
}

// child consumes until it gets SIGTERM, or is killed.
func child(raw string) error {
	var cfg childConfig
	if err := json.Unmarshal([]byte(raw), &cfg); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	say := func(s childEvent) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(s) // the parent may have ended
	}
	policy := steps(3, 200*time.Millisecond)
	policy.Order = cfg.Order
	client, err := amqp.Open(context.Background(), amqp.Config{
		URLs: []string{cfg.URL}, Policy: policy, Key: lastDigit,
		Prefetch: cfg.Prefetch, MaxInFlight: cfg.MaxInFlight,
		Sink: redeliver.SinkFunc(func(e redeliver.Event) {
			switch e := e.(type) {
			case redeliver.Committed:
				say(childEvent{What: "commit", ID: e.State.ID, Attempts: e.State.Attempts})
			case redeliver.DeadLettered:
				say(childEvent{What: "dead", ID: e.State.ID, Attempts: e.State.Attempts, Reason: e.State.Reason})
			case redeliver.Hopped:
				if strings.HasSuffix(e.To, ".suspects") {
					say(childEvent{What: "suspect", ID: e.State.ID})
				}
			default:
			}
		}),
	})
	if err != nil {
		return err
	}
	messages, err := client.Subscriber().Subscribe(context.Background(), cfg.Queue)
	if err != nil {
		return err
	}
	handle := middleware.Retry()(func(msg *message.Message) ([]*message.Message, error) {
		say(childEvent{What: "run", ID: msg.UUID})
		if st, _ := redeliver.FromContext(msg.Context()); msg.UUID == cfg.Killer && st.Attempt() < cfg.KillsAt {
			return nil, errHandler
		}
		if msg.UUID == cfg.Killer {
			if cfg.Exit {
				os.Exit(3)
			}
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
		waitFor(cfg.Takes)
		return nil, nil
	})
	go func() {
		for msg := range messages {
			go func() {
				if _, err := handle(msg); err != nil {
					msg.Nack()
				} else {
					msg.Ack()
				}
			}()
		}
	}()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	return client.Close(context.Background())
}

// process is a running child.
type process struct {
	cmd  *exec.Cmd
	over chan struct{} // closed when it has ended and its output is read
}

// start starts a child and calls handle with each line of its output.
func start(t *testing.T, cfg childConfig, handle func(childEvent)) *process {
	t.Helper()
	raw, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(raw))
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: cmd, over: make(chan struct{})}
	go func() {
		defer close(p.over)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var s childEvent
			if json.Unmarshal(lines.Bytes(), &s) == nil { // a kill may cut the last line
				handle(s)
			}
		}
		_ = cmd.Wait() // its kill is expected
		if complaints.Len() > 0 {
			t.Logf("a child wrote: %s", complaints.String())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-p.over
	})
	return p
}

// stop asks a child to end and waits for it.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.over:
	case <-time.After(maxWait):
		t.Fatal("a child does not end")
	}
}

// lastDigit uses the last character of a message's id as its key.
func lastDigit(d amqp091.Delivery) string { return d.MessageId[len(d.MessageId)-1:] }
