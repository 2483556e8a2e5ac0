package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/integration/brokers"
)

// "waiting release" on RabbitMQ moves waiting messages itself. If it is killed with SIGKILL in the middle and run
// again, it loses no message and leaves at most two windows of duplicates for each kill.
func TestAReleaseOnRabbitMQIsKilled(t *testing.T) {
	t.Parallel()
	const n, kills, window = 10_000, 3, 500
	s := &shop{t: t, url: brokers.RequireRabbitMQ(t).VirtualHost(t).URL()}
	queue := name()
	client, err := amqp.Open(t.Context(), amqp.Config{
		URLs: []string{s.url}, Policy: redeliver.Policy{MaxRetries: 1, Backoff: redeliver.Fixed(time.Hour), Levels: []time.Duration{time.Hour}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	if err := client.Subscriber().SubscribeInitialize(queue); err != nil {
		t.Fatal(err)
	}
	ch := dialChannel(t, s.url)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	var last *amqp091.DeferredConfirmation
	for i := range n {
		st := redeliver.State{ID: fmt.Sprint(i), Group: queue, Origin: queue, Attempts: 1, Due: time.Now().Add(time.Hour), LastFailed: time.Now()}
		headers := amqp091.Table{}
		for name, value := range driver.StateHeaders(&st) {
			headers[name] = string(value)
		}
		last, err = ch.PublishWithDeferredConfirm("", queue+".retry.1h", true, false, amqp091.Publishing{
			Headers: headers, MessageId: st.ID, DeliveryMode: amqp091.Persistent, Body: []byte(st.ID),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if !last.Wait() {
		t.Fatal("the broker did not take the messages")
	}
	ready := func(queue string) int {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	release := []string{"waiting", "release", "--topic", queue, "--level", "1h", "--note", "to kill it", "--yes"}
	if dry := s.rowOf(append(slices.Clone(release), "--dry-run")...); dry["matched"] != float64(n) {
		t.Errorf("the dry run says %v", dry)
	}
	for range kills {
		before := ready(queue + ".retry")
		cmd := exec.Command(filepath.Join(built, "redeliver"), release...)
		var errs bytes.Buffer
		cmd.Env, cmd.Stderr = append(os.Environ(), "REDELIVER_BROKER="+s.url), &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for began := time.Now(); ready(queue+".retry") < before+window; {
			if time.Since(began) > maxWait {
				_ = cmd.Process.Kill()
				t.Fatalf("nothing was released within %s: %s", maxWait, errs.String())
			}
		}
		_ = cmd.Process.Kill()
		if err := cmd.Wait(); err == nil {
			t.Fatal("the release was over before it was killed: the test has too few messages")
		}
	}
	seen := make(map[string]int)
	for began := time.Now(); len(seen) < n || ready(queue+".retry.1h") > 0; { // a killed release had some in hand
		if time.Since(began) > maxWait {
			t.Fatalf("%d of %d messages came back", len(seen), n)
		}
		if done := s.rowOf(release...); done["status"] != "done" {
			t.Errorf("the command says %v", done)
		}
		for {
			d, ok, err := ch.Get(queue+".retry", true)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				break
			}
			seen[string(d.Body)]++
		}
	}
	duplicates := 0
	for _, times := range seen {
		duplicates += times - 1
	}
	if duplicates > 2*kills*window {
		t.Errorf("%d messages came back twice after %d kills, want at most %d", duplicates, kills, 2*kills*window)
	}
	t.Logf("report: %d messages, %d releases killed: none lost, %d duplicates", n, kills, duplicates)
}

// rowOf is rows for a command that prints one object.
func (s *shop) rowOf(args ...string) (row map[string]any) {
	s.t.Helper()
	out := s.command(0, append(slices.Clone(args), "--output", "json")...)
	if err := json.Unmarshal([]byte(out), &row); err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
	return row
}
