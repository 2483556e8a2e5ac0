//go:build prove

package brokers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redeliver/redeliver/integration/brokers"
)

// The loss suite relies on this: a private server can be killed at any time and comes back on the same endpoint with
// every confirmed message, including the latest.
func TestOwnSQSKeepsMessagesThroughSIGKILL(t *testing.T) {
	soakOnly(t)
	s := brokers.OwnSQS(t, brokers.SQSOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	url := s.URL()
	queue := createQueue(ctx, t, url, "kept")

	sent := 0
	for _, end := range []struct {
		how   string
		again func() error
	}{
		{"kill and start", func() error {
			if err := s.Kill(); err != nil {
				return err
			}
			if _, err := ask(ctx, url, "ListQueues", nil); err == nil {
				t.Error("the server still answers after SIGKILL")
			}
			return s.Start(ctx)
		}},
		{"restart", func() error { return s.Restart(ctx) }},
	} {
		for range 50 {
			mustAsk(ctx, t, url, "SendMessage", map[string]any{"QueueUrl": queue, "MessageBody": fmt.Sprint(sent)})
			sent++
		}
		began := time.Now()
		if err := end.again(); err != nil {
			t.Fatalf("%s: %v", end.how, err)
		}
		t.Logf("report: %s: answers again after %s", end.how, time.Since(began).Round(100*time.Millisecond))
		if got := s.URL(); got != url {
			t.Errorf("%s: the server moved from %s to %s", end.how, url, got)
		}
		if got, want := countVisible(ctx, t, url, queue), fmt.Sprint(sent); got != want {
			t.Errorf("%s: the queue holds %s messages, want %s", end.how, got, want)
		}
	}
}

// If a given server cannot be used, the test fails with the name of the variable and without a password, and does not
// use another server.
func TestGivenSQSThatCannotBeUsedFails(t *testing.T) {
	for _, url := range []string{"http://127.0.0.1:1", "http://user:secret@127.0.0.1:9324", "127.0.0.1:9324"} {
		t.Setenv(brokers.EnvSQS, url)
		t.Setenv(brokers.EnvMoto, url)
		_, err := brokers.SQS(t.Context(), brokers.SQSOptions{StartTimeout: 300 * time.Millisecond, Logf: t.Logf})
		if err == nil || !strings.Contains(err.Error(), brokers.EnvSQS) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: error = %v, want one that names the variable and no password", brokers.EnvSQS, url, err)
		}
		_, err = brokers.Moto(t.Context(), brokers.MotoOptions{StartTimeout: 300 * time.Millisecond, Logf: t.Logf})
		if err == nil || !strings.Contains(err.Error(), brokers.EnvMoto) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s=%s: error = %v, want one that names the variable and no password", brokers.EnvMoto, url, err)
		}
	}
}

func TestGivenSQSIsNotStopped(t *testing.T) {
	url := brokers.RequireSQS(t)
	if _, err := brokers.SQS(t.Context(), brokers.SQSOptions{Config: map[string]string{"a": "b"}}); err == nil {
		t.Error("settings for a given server were accepted without an error")
	}
	s, err := brokers.SQS(t.Context(), brokers.SQSOptions{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err == nil {
		t.Error("a given server was killed")
	}
	t.Setenv(brokers.EnvSQSRestart, "")
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), brokers.EnvSQSRestart) {
		t.Errorf("restart = %v, want an error that names %s", err, brokers.EnvSQSRestart)
	}
	if err := s.Stop(); err != nil {
		t.Errorf("stop: %v", err)
	}
	mustAsk(t.Context(), t, url, "ListQueues", nil)
}

func createQueue(ctx context.Context, t *testing.T, endpoint, name string) string {
	t.Helper()
	return mustAsk(ctx, t, endpoint, "CreateQueue", map[string]any{"QueueName": name})["QueueUrl"].(string)
}

func countVisible(ctx context.Context, t *testing.T, endpoint, queue string) string {
	t.Helper()
	out := mustAsk(ctx, t, endpoint, "GetQueueAttributes", map[string]any{"QueueUrl": queue, "AttributeNames": []string{"All"}})
	return out["Attributes"].(map[string]any)["ApproximateNumberOfMessages"].(string)
}

func mustAsk(ctx context.Context, t *testing.T, endpoint, action string, in map[string]any) map[string]any {
	t.Helper()
	out, err := ask(ctx, endpoint, action, in)
	if err != nil {
		t.Fatalf("%s: %v", action, err)
	}
	return out
}

// ask makes one call of SQS's JSON protocol, without a client of AWS.
func ask(ctx context.Context, endpoint, action string, in map[string]any) (map[string]any, error) {
	if in == nil {
		in = map[string]any{}
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "AmazonSQS."+action)
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=x")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", resp.Status, answer)
	}
	out := map[string]any{}
	if len(answer) > 0 {
		err = json.Unmarshal(answer, &out)
	}
	return out, err
}
