package sqs

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

// SQS does not see that the client of a receive has gone: the next message that
// comes within the receive's wait may be given to nobody, and is hidden for as long
// as the receive has asked for (aws/aws-sdk-js, issue 2350). So a subscriber that
// closes would have to wait for its receives, half of WaitTime on average and for
// nothing as a rule; to wait for shorter ones costs requests all day, of every idle
// process:
//
//	wait    receives an hour   close, at most
//	 2 s         1,800              2 s
//	 5 s           720              5 s
//	10 s           360             10 s
//
// Therefore receives are short while messages come, when somebody is likely to lose
// one, and are waited for. After a while without any they are long, are cut when the
// subscriber closes, and hide what they bring only briefly, until it is here. On a
// FIFO queue none is cut: a group would stand still, for nobody.
const (
	// maxAwaitedWait is the longest wait of a receive that is waited for.
	maxAwaitedWait = 2 * time.Second
	// maxShortVisibility is for how long at most a longer receive hides what it brings; a
	// heartbeat does the rest, before half of that is over.
	maxShortVisibility = 10 * time.Second
	// minAnswerTimeout is how long the answer of a receive may take beyond its wait, at
	// least: what it brings when nobody listens any more is hidden from all.
	minAnswerTimeout = 5 * time.Second
)

// waitTime is the longest wait of a receive.
func (s *source) waitTime() time.Duration {
	switch own := s.client.cfg.WaitTime; {
	case own > 0:
		return own
	case s.queue.fifo:
		return DefaultFIFOWaitTime
	default:
		return DefaultWaitTime
	}
}

// nextWait is how long a receive may wait that follows one which waited that long and
// brought so many messages.
func (s *source) nextWait(wait time.Duration, found int) time.Duration {
	if found > 0 {
		wait = maxAwaitedWait / 2
	}
	return min(2*wait, s.waitTime())
}

// isCutAtClose reports whether a receive that waits so long is cut short when the
// subscriber closes.
func (s *source) isCutAtClose(wait time.Duration) bool { return wait > maxAwaitedWait && !s.queue.fifo }

// visibilityFor is for how long a receive hides what it brings.
func (s *source) visibilityFor(wait time.Duration) time.Duration {
	visibility := s.client.cfg.VisibilityTimeout
	if s.isCutAtClose(wait) {
		return min(visibility, maxShortVisibility)
	}
	return visibility
}

// receive is one request, which waits for messages.
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
