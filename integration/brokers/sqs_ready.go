package brokers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// sqsAnswers requests the list of queues. It uses neither the code under test nor AWS's client.
func sqsAnswers(ctx context.Context, addrs []string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, addrs[0]+"/", strings.NewReader("{}"))
	if err != nil {
		return fmt.Errorf("asking %s for its queues: %w", addrs[0], err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "AmazonSQS.ListQueues")
	// The servers ignore the signature. moto reads the service from the scope.
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request, "+
		"SignedHeaders=host, Signature=x")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("asking %s for its queues: %w", addrs[0], err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return fmt.Errorf("asking %s for its queues: %w", addrs[0], err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking %s for its queues: %s: %s", addrs[0], resp.Status, lastLines(string(body), 5))
	}
	return nil
}

func givenSQS(
	ctx context.Context, rawURL, env, restart, own string, maxWait time.Duration, logf func(string, ...any),
) (*SQSServer, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || !strings.HasPrefix(u.Scheme, "http") || u.User != nil {
		return nil, errors.New(env + " must be like http://127.0.0.1:9324") // the value may contain a password
	}
	b, err := open(ctx, &Broker{
		name:    "server given by " + env,
		addrs:   []string{strings.TrimRight(rawURL, "/")},
		sys:     &given{name: "the server", addrsEnv: env, restartEnv: restart, own: own},
		ready:   sqsAnswers,
		maxWait: min(maxWait, maxGivenWait),
		logf:    logf,
	})
	if err != nil {
		return nil, err
	}
	return &SQSServer{b}, nil
}
