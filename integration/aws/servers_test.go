//go:build prove

package main

import (
	"strings"
	"testing"

	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/brokerstate"
)

// fewTests matches a few tests of the kit, because moto is slow.
const fewTests = "^(TestConformance|TestConformanceFIFO)$/^(AGroupIsPausedAndResumed|ARetryThatSucceedsIsCommitted|ADeadLetterThatIsSentBackRunsAgain)$"

func TestOnServers(t *testing.T) {
	endpoints := brokers.RequireSQSServers(t)
	for name, endpoint := range endpoints {
		t.Run(name, func(t *testing.T) {
			server := []string{"--region", "eu-central-1", "--endpoint", endpoint}
			wantRun(t, "", append(server, "--run", fewTests)...)
			wantQueues(t, endpoint, 0)
			// A run ends when it reaches the bound.
			wantRun(t, "the bound of 8 requests is reached", append(server, "--run", fewTests, "--max-requests", "8")...)
			wantQueues(t, endpoint, 0)

			// clean removes the queue of a killed run, and no other.
			left, others := prefix+"left-orders", "orders-of-another"
			api := client(endpoint)
			for _, queue := range []string{left, others} {
				if _, err := api.CreateQueue(t.Context(), &awssqs.CreateQueueInput{QueueName: &queue}); err != nil {
					t.Fatal(err)
				}
			}
			wantQueues(t, endpoint, 1)
			wantRun(t, "", append([]string{"clean"}, server...)...)
			wantQueues(t, endpoint, 0)
			found, err := api.GetQueueUrl(t.Context(), &awssqs.GetQueueUrlInput{QueueName: &others})
			if err != nil {
				t.Fatalf("a queue that is not of the tests is gone: %v", err)
			}
			if _, err := api.DeleteQueue(t.Context(), &awssqs.DeleteQueueInput{QueueUrl: found.QueueUrl}); err != nil {
				t.Error(err)
			}
		})
	}
}

// The loss suite runs through the gateway, too.
func TestLossThroughTheGateway(t *testing.T) {
	endpoint := brokers.RequireSQS(t)
	wantRun(t, "", "--region", "eu-central-1", "--endpoint", endpoint, "--run", "^TestLossSQS$")
	wantQueues(t, endpoint, 0)
}

// wantRun runs the program. failure is a part of the expected error, or empty for none.
func wantRun(t *testing.T, failure string, args ...string) {
	t.Helper()
	var out strings.Builder
	err := run(t.Context(), args, &out)
	if failure == "" && err != nil || failure != "" && (err == nil || !strings.Contains(err.Error(), failure)) {
		t.Fatalf("%q: %v, want %q\n%s", args, err, failure, out.String())
	}
	t.Logf("%s", out.String())
	if args[0] == "clean" {
		return
	}
	for _, part := range []string{"which cost at most $", priceSource, "requests were made"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the output lacks %q:\n%s", part, out.String())
		}
	}
}

func client(endpoint string) *awssqs.Client {
	return awssqs.NewFromConfig(brokerstate.AWS(), func(o *awssqs.Options) { o.BaseEndpoint = &endpoint })
}

func wantQueues(t *testing.T, endpoint string, want int) {
	t.Helper()
	name := prefix
	out, err := client(endpoint).ListQueues(t.Context(), &awssqs.ListQueuesInput{QueueNamePrefix: &name})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.QueueUrls) != want {
		t.Errorf("the server has %q, want %d queues of the tests", out.QueueUrls, want)
	}
}
