package sqs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// SQS does not notice that the client of a receive has gone. It may deliver a message that comes during the wait to
// nobody, and hides it for the receive's visibility timeout (aws/aws-sdk-js, issue 2350). A subscriber that closes
// therefore has to wait for its receives, or lose messages for that time. Short receives make that fast, but cost
// requests in every idle process:
//
//	wait    receives an hour   close, at most
//	 2 s         1,800              2 s
//	 5 s           720              5 s
//	10 s           360             10 s
//
// So receives are short while messages come, and Close waits for them. After a while
// without messages they are long, Close cuts them, and they hide messages only briefly at
// first. On a FIFO queue none is cut, because a lost message would block its group.
const (
	// maxAwaitedWait is the longest wait of a receive that Close waits for.
	maxAwaitedWait = 2 * time.Second
	// maxShortVisibility bounds how long a longer receive hides its messages. A heartbeat extends it before half of
	// it is over.
	maxShortVisibility = 10 * time.Second
	// minAnswerTimeout is the least time that the answer of a receive may take beyond its wait. Messages in an answer
	// that is not read stay hidden from all.
	minAnswerTimeout = 5 * time.Second
)

// waitTime returns the longest wait of a receive.
func (s *source) waitTime() time.Duration {
	switch own := s.client.cfg.WaitTime; {
	case own > 0:
		return own
	case s.queue.fifo:
		return defaultFIFOWaitTime
	default:
		return defaultWaitTime
	}
}

// nextWait returns the wait of the receive that follows one with the given wait and result.
func (s *source) nextWait(wait time.Duration, found int) time.Duration {
	if found > 0 {
		wait = maxAwaitedWait / 2
	}
	return min(2*wait, s.waitTime())
}

// isCutAtClose reports whether a receive with this wait is cut short when the subscriber closes.
func (s *source) isCutAtClose(wait time.Duration) bool { return wait > maxAwaitedWait && !s.queue.fifo }

// visibilityFor returns how long a receive with this wait hides its messages.
func (s *source) visibilityFor(wait time.Duration) time.Duration {
	visibility := s.client.cfg.VisibilityTimeout
	if s.isCutAtClose(wait) {
		return min(visibility, maxShortVisibility)
	}
	return visibility
}

// receive sends one receive request, which waits for messages.
func (s *source) receive(maxMessages int, wait time.Duration) ([]types.Message, error) {
	cfg, parent := &s.client.cfg, s.receiveCtx
	if s.isCutAtClose(wait) {
		parent = s.longReceiveCtx
	}
	ctx, cancel := context.WithTimeout(parent, wait+max(cfg.SendTimeout, minAnswerTimeout))
	defer cancel()
	out, err := s.client.api.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &s.queue.url, MaxNumberOfMessages: int32(maxMessages), WaitTimeSeconds: int32(wait / time.Second),
		VisibilityTimeout:           int32(s.visibilityFor(wait) / time.Second),
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
	})
	if err != nil {
		return nil, errorOf("receiving from", s.queue.name, err)
	}
	return out.Messages, nil
}
