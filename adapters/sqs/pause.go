package sqs

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/engine"
)

// PauseTag is the tag of a queue that pauses its subscription. Its value is a redeliver.PauseMark, in which characters
// that a tag cannot have are replaced by "_".
const PauseTag = "redeliver-paused"

// Pause pauses the queue of a topic for all processes that read it, until [mq.Operations.Resume]. Nothing new begins, neither
// first attempts nor retries; running attempts continue. Each process stops receiving within 10 s, and returns its
// messages in hand some seconds later. A process that starts later receives nothing. The reason is shown to others. A
// second Pause replaces it. The queue must exist.
func (c *client) Pause(ctx context.Context, topic, reason string) error {
	q, err := c.existingQueue(ctx, topic)
	if err != nil {
		return err
	}
	mark := strings.Map(tagRune, engine.NewPauseMark(ctx, reason, false).String())
	if _, err := c.api.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: &q.URL, Tags: map[string]string{PauseTag: mark}}); err != nil {
		return api.ErrorOf("tagging queue", q.Name, err)
	}
	return nil
}

// Resume ends a pause. It does nothing if there is none.
func (c *client) Resume(ctx context.Context, topic string) error {
	q, err := c.existingQueue(ctx, topic)
	if err != nil {
		return err
	}
	if _, err := c.api.UntagQueue(ctx, &sqs.UntagQueueInput{QueueUrl: &q.URL, TagKeys: []string{PauseTag}}); err != nil {
		return api.ErrorOf("untagging queue", q.Name, err)
	}
	return nil
}

// Paused returns by whom, when and why the queue of a topic was paused, or nil.
func (c *client) Paused(ctx context.Context, topic string) (*redeliver.PauseMark, error) {
	q, err := c.existingQueue(ctx, topic)
	if err != nil {
		return nil, err
	}
	return pauseMark(ctx, q)
}

func (c *client) existingQueue(ctx context.Context, topic string) (*api.Queue, error) {
	var ps check.Problems
	a := checkTopic(&ps, topic)
	if err := ps.Err(); err != nil {
		return nil, fmt.Errorf("sqs: %w", err)
	}
	q, err := c.findQueue(ctx, a)
	if err == nil && !q.Exists {
		err = fmt.Errorf("sqs: queue %s does not exist: it has never been subscribed to, or the topic is wrong", a.name)
	}
	return q, err
}

// pauseMark returns the mark of a queue, or nil.
func pauseMark(ctx context.Context, q *api.Queue) (*redeliver.PauseMark, error) {
	tags, err := q.Tags(ctx)
	if err != nil {
		return nil, err
	}
	text, paused := tags[PauseTag]
	if !paused {
		return nil, nil //nolint:nilnil // there is no mark
	}
	mark := redeliver.ParsePauseMark(text)
	return &mark, nil
}

// readPause returns the mark of the subscription's queue, or nil. A queue of another account has none: AWS lets only
// the owner read tags.
func (r *reader) readPause(ctx context.Context) (*redeliver.PauseMark, error) {
	mark, err := pauseMark(ctx, r.layout.main)
	if mark != nil {
		mark.NewOnly = false // retries wait in the queue itself
	}
	if r.layout.hidesTags(err) {
		return nil, nil //nolint:nilnil // there is no mark
	}
	return mark, err
}

// tagRune replaces a character that the value of a tag cannot have.
func tagRune(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" _.:/=+-@", r) {
		return r
	}
	return '_'
}
