package sqs_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	mathrand "math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/consumer"
)

const (
	headEnv     = "REDELIVER_TEST_HEADS" // a child's headConfig
	headRetries = 12
	headKills   = 10
)

// headConfig is what a child consumes.
type headConfig struct {
	Endpoint string `json:"endpoint"`
	Queue    string `json:"queue"`
	Journal  string `json:"journal"`
}

// runHeads is a child: a service in which every attempt of a head fails. Its journal has a line for each call.
func runHeads(raw string) {
	var cfg headConfig
	if err := json.Unmarshal([]byte(raw), &cfg); err != nil {
		log.Fatal(err)
	}
	journal, err := os.OpenFile(cfg.Journal, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err = sqs.Consume(ctx, sqs.Config{
		AWS: anyAWS(), Endpoint: cfg.Endpoint, VisibilityTimeout: 5 * time.Second, WaitTime: time.Second,
		Policy: redeliver.Policy{MaxRetries: headRetries, MaxCrashes: 100, Backoff: redeliver.Fixed(time.Second), Outage: redeliver.Outage{Off: true}},
	}, []string{cfg.Queue}, func(ctx context.Context, m types.Message) error {
		st, _ := redeliver.FromContext(ctx)
		if _, err := fmt.Fprintln(journal, *m.Body, st.Attempt()); err != nil {
			return err
		}
		if strings.HasPrefix(*m.Body, "head") {
			return fmt.Errorf("try %d", st.Attempt())
		}
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}

// Processes that share a FIFO queue are killed, or end, at random moments, while the heads of its groups fail. Each kill repeats one
// attempt of a head at most. Then the head is in the DLQ, with its first and last error, and the next message runs.
func TestHeadsOfGroupsKeepTheirAttemptsOverKills(t *testing.T) {
	t.Parallel()
	h := harnessOn(brokers.RequireSQS(t), true)
	h.key = nil // the children sign nothing
	queue, _ := h.origin(t, 1)
	cfg := headConfig{Endpoint: h.endpoint, Queue: queue, Journal: filepath.Join(t.TempDir(), "journal")}
	if err := os.WriteFile(cfg.Journal, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const groups = 3
	url := h.url(t, queue)
	for n := range groups {
		for _, body := range []string{fmt.Sprint("head", n), fmt.Sprint("next", n)} {
			if _, err := h.api.SendMessage(t.Context(), &awssqs.SendMessageInput{
				QueueUrl: &url, MessageBody: &body, MessageGroupId: aws.String(fmt.Sprint("g", n)), MessageDeduplicationId: aws.String(rand.Text()),
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	seed := mathrand.Uint64()
	random := mathrand.New(mathrand.NewPCG(seed, 1))
	all := []*consumer.Process{startHeads(t, cfg, 0), startHeads(t, cfg, 1)}
	over := time.After(5 * time.Minute)
	kills := 0
	for n := range headKills {
		select {
		case <-time.After(time.Duration(500+random.IntN(4000)) * time.Millisecond):
		case <-over:
			t.Fatal("it takes too long")
		}
		how := syscall.SIGKILL
		if n%4 == 3 {
			how = syscall.SIGTERM
		} else {
			kills++
		}
		all[n%2].End(how) // the other one continues
		all[n%2] = startHeads(t, cfg, n+2)
	}
	calls := make(map[string]int)
	read := func() (text string, ended int) {
		raw, err := os.ReadFile(cfg.Journal)
		if err != nil {
			t.Fatal(err)
		}
		clear(calls)
		for line := range strings.Lines(string(raw)) {
			body, _, _ := strings.Cut(line, " ")
			if calls[body]++; calls[body] == 1 && strings.HasPrefix(body, "next") {
				ended++
			}
		}
		return string(raw), ended
	}
	text, ended := read()
	for ended < groups {
		select {
		case <-time.After(200 * time.Millisecond):
			text, ended = read()
		case <-over:
			t.Fatalf("seed %d: after %d kills the journal is\n%s", seed, kills, text)
		}
	}
	for _, p := range all {
		p.End(syscall.SIGTERM)
	}
	text, _ = read()
	t.Logf("report: %d kills while heads of FIFO groups fail: %v", kills, calls)
	for n := range groups {
		head := fmt.Sprint("head", n)
		if c := calls[head]; c < headRetries+1 || c > headRetries+1+kills {
			t.Errorf("seed %d: %s was called %d times with %d kills, want %d to %d:\n%s", seed, head, c, kills, headRetries+1, headRetries+1+kills, text)
		}
	}
	for _, m := range h.dead(t, "", queue, groups) {
		st, _ := driver.ParseHeaders(queue, m.OwnHeaders)
		if first, last := "try 1", fmt.Sprintf("try %d", headRetries+1); st.Attempts != headRetries+1 || st.Reason != redeliver.ReasonExhausted || st.FirstError != first || st.Error != last {
			t.Errorf("seed %d: %s is dead, %s, after %d attempts, first %q, last %q", seed, m.Body, st.Reason, st.Attempts, st.FirstError, st.Error)
		}
	}
}

func startHeads(t *testing.T, cfg headConfig, number int) *consumer.Process {
	t.Helper()
	p, err := consumer.Start(headEnv, cfg, filepath.Join(filepath.Dir(cfg.Journal), fmt.Sprintf("consumer-%d.log", number)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.End(syscall.SIGKILL) })
	return p
}
