package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestARegionIsRequired(t *testing.T) {
	for _, args := range [][]string{{}, {"clean"}, {"--region", "eu-central-1", "--max-requests", "0"}, {"clean", "--region", "eu-central-1", "--prefix", "orders"}} {
		if err := run(t.Context(), args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestTheNamesOfQueuesGetAPrefix(t *testing.T) {
	g := &gateway{prefix: "p-"}
	for in, want := range map[string]string{
		`{"QueueName":"orders.fifo"}`:                             `{"QueueName":"p-orders.fifo"}`,
		`{"QueueUrl":"https://sqs/1/orders","MessageBody":"p-a"}`: `{"MessageBody":"p-a","QueueUrl":"https://sqs/1/p-orders"}`,
		`{}`:                           `{"QueueNamePrefix":"p-"}`,
		`{"QueueNamePrefix":"orders"}`: `{"QueueNamePrefix":"p-orders"}`,
		`{"QueueUrl":"https://sqs/1/orders","Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:r:1:orders-dlq\"}"}}`: `{"Attributes":{"RedrivePolicy":"{\"deadLetterTargetArn\":\"arn:aws:sqs:r:1:p-orders-dlq\"}"},"QueueUrl":"https://sqs/1/p-orders"}`,
	} {
		got, queue, err := g.withPrefix([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s becomes %s (%v), want %s", in, got, err, want)
		}
		if strings.Contains(in, "orders.fifo") && queue != "orders.fifo" {
			t.Errorf("%s is about the queue %q", in, queue)
		}
	}
	answer := `{"QueueUrls":["https://sqs/1/p-orders"],"Attributes":{"QueueArn":"arn:aws:sqs:r:1:p-orders"}}`
	var out struct {
		QueueUrls  []string          `json:"QueueUrls"`
		Attributes map[string]string `json:"Attributes"`
	}
	if err := json.Unmarshal(g.withoutPrefix([]byte(answer)), &out); err != nil || out.QueueUrls[0] != "https://sqs/1/orders" || out.Attributes["QueueArn"] != "arn:aws:sqs:r:1:orders" {
		t.Errorf("%+v, %v", out, err)
	}
}

func TestWhatIsBilled(t *testing.T) {
	g := &gateway{bound: 5, requests: map[string]int{}, queues: map[string]bool{}}
	if !g.count("SendMessage", "a.fifo", 64<<10+1) || !g.count("ReceiveMessage", "a", 10) {
		t.Fatal("requests within the bound are refused")
	}
	g.follow("ReceiveMessage", "a", 200, 10, 100<<10)
	if requests, made := g.made(); made != (billed{standard: 2, fifo: 2}) || sum(requests) != 2 {
		t.Errorf("%v, %+v", requests, made)
	}
	if g.count("SendMessage", "a", 64<<10+1) {
		t.Error("a request beyond the bound is passed on")
	}
	if g.left(); !g.count("DeleteQueue", "a", 64<<10+1) {
		t.Error("the bound prevents the clean-up")
	}
}
