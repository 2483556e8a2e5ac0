package main

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	awssqs "github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver"
)

// ends notes what became of the orders. It is a [redeliver.Sink].
type ends struct {
	mu      sync.Mutex
	open    map[string]bool // of this run
	charged map[int]int     // by attempt
	dead    map[string]int  // by reason
	none    chan struct{}   // closed when the last of open has ended; nil as long as nobody asks
}

func newEnds() *ends {
	return &ends{open: map[string]bool{}, charged: map[int]int{}, dead: map[string]int{}}
}

func (e *ends) expect(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.open[id] = true
}

// all is closed when all that were expected have ended.
func (e *ends) all() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.none = make(chan struct{})
	e.look()
	return e.none
}

func (e *ends) look() {
	if e.none != nil && len(e.open) == 0 {
		close(e.none)
		e.none = nil
	}
}

// Event implements [redeliver.Sink].
func (e *ends) Event(event redeliver.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch event := event.(type) {
	case redeliver.Committed:
		e.charged[event.State.Attempt()]++
		delete(e.open, event.State.ID)
	case redeliver.DeadLettered:
		e.dead[string(event.State.Reason)]++
		delete(e.open, event.State.ID)
	}
	e.look()
}

// most is how many dead letters the summary shows.
const most = 8

// letter is what redeliver says of a dead letter, in its message attribute.
type letter struct {
	ID      string `json:"id"`
	Reason  string `json:"reason"`
	Attempt string `json:"attempt"`
	Error   string `json:"error"`
}

// summary counts, and shows what lies in the DLQ: any client can read it.
func (s *stage) summary(ctx context.Context, cfg *aws.Config, placed int, interrupted bool) error {
	letters, err := s.look(ctx, cfg)
	if err != nil {
		return err
	}
	s.ends.mu.Lock()
	defer s.ends.mu.Unlock()
	s.screen.Sayf("\nAfter %.1f s:", s.screen.Elapsed().Seconds())
	s.screen.Sayf("%5d  orders placed in this run", placed)
	for _, n := range slices.Sorted(maps.Keys(s.ends.charged)) {
		s.screen.Sayf("%5d  charged on attempt %d", s.ends.charged[n], n)
	}
	for _, reason := range slices.Sorted(maps.Keys(s.ends.dead)) {
		s.screen.Sayf("%5d  in the DLQ, %s", s.ends.dead[reason], reason)
	}
	s.screen.Sayf("%5d  still waiting", len(s.ends.open))
	s.screen.Sayf("\nSome of %s-dlq:", queue)
	for _, l := range letters[:min(most, len(letters))] {
		s.screen.Sayf("       %-8s  %-10s after attempt %s: %s", l.ID, l.Reason, l.Attempt, l.Error)
	}
	switch {
	case interrupted && len(s.ends.open) > 0:
		s.screen.Sayf("\nInterrupted. Start it again: what waits comes back.")
	case len(s.ends.open) == 0:
		s.screen.Sayf("\nEvery order was charged or is in the DLQ. The shop is examples/sqs/main.go.")
		s.screen.Sayf("Look at the queues: aws sqs list-queues --queue-name-prefix %s", queue)
	}
	return nil
}

// look reads the DLQ, and takes nothing: what it has read is visible again soon.
func (s *stage) look(ctx context.Context, cfg *aws.Config) (letters []letter, err error) {
	api := awssqs.NewFromConfig(*cfg, func(o *awssqs.Options) {
		if endpoint := s.url.Endpoint(); endpoint != "" {
			o.BaseEndpoint = &endpoint
		}
	})
	dlq, err := api.GetQueueUrl(ctx, &awssqs.GetQueueUrlInput{QueueName: aws.String(queue + "-dlq")})
	if err != nil {
		return nil, err
	}
	for len(letters) < most {
		out, err := api.ReceiveMessage(ctx, &awssqs.ReceiveMessageInput{
			QueueUrl: dlq.QueueUrl, MaxNumberOfMessages: 10, VisibilityTimeout: 2, MessageAttributeNames: []string{"All"},
		})
		if err != nil || len(out.Messages) == 0 {
			return letters, err
		}
		for _, m := range out.Messages {
			var l letter
			if text := m.MessageAttributes["redeliver"].StringValue; text != nil && json.Unmarshal([]byte(*text), &l) == nil {
				letters = append(letters, l)
			}
		}
	}
	return letters, nil
}
