package sqs

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// queuePages answers ListQueues, two queues at a time.
type queuePages struct {
	t     *testing.T
	names []string
}

func (p *queuePages) Do(r *http.Request) (*http.Response, error) {
	var in struct {
		NextToken string `json:"NextToken"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.Header.Get("X-Amz-Target") != "AmazonSQS.ListQueues" {
		p.t.Errorf("asked for %s: %v", r.Header.Get("X-Amz-Target"), err)
	}
	from := 0
	if in.NextToken != "" {
		if _, err := fmt.Sscan(in.NextToken, &from); err != nil {
			p.t.Error(err)
		}
	}
	to := min(from+2, len(p.names))
	answer := map[string]any{}
	urls := make([]string, 0, 2)
	for _, name := range p.names[from:to] {
		urls = append(urls, "https://sqs.eu-west-1.amazonaws.com/1234/"+name)
	}
	answer["QueueUrls"] = urls
	if to < len(p.names) {
		answer["NextToken"] = fmt.Sprint(to)
	}
	body, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}, Body: io.NopCloser(strings.NewReader(string(body))),
	}, err
}

// DeadLetterQueues finds the queue in the names of redeliver's DLQs. It lists DLQs with a cut name, or without a
// subscription, without their origin.
func TestDeadLetterQueuesListsDLQs(t *testing.T) {
	long := strings.Repeat("x", 75)
	p := &queuePages{t: t, names: []string{
		"orders", "orders-dlq", "orders-suspects", "a-b.fifo", "a-b-dlq.fifo", "a-b-suspects.fifo", "payments", "payments-dlq", "gone-dlq", "gone-suspects", "-dlq", "dlq",
		long, Names{}.dlq(long), Names{}.suspects(long),
	}}
	c, err := Open(t.Context(), Config{AWS: &aws.Config{
		Region: "eu-west-1", HTTPClient: p, Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""),
	}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := c.DeadLetterQueues(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, info := range all {
		got[info.DLQ] = info.Origin + "/" + info.Group + "/" + info.ReplayTo
	}
	want := map[string]string{
		"orders-dlq": "orders/orders/orders", "a-b-dlq.fifo": "a-b.fifo/a-b.fifo/a-b.fifo", "payments-dlq": "//", "gone-dlq": "//", "-dlq": "//", Names{}.dlq(long): "//",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("they are\n%v, want\n%v", got, want)
	}
}
