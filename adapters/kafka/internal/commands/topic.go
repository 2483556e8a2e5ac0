package commands

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/kafka/internal/cluster"
	"github.com/redeliver/redeliver/adapters/kafka/internal/produce"
	"github.com/redeliver/redeliver/adapters/kafka/internal/topiclog"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/internal/check"
	"github.com/redeliver/redeliver/internal/kafkaname"
	"github.com/redeliver/redeliver/internal/wait"
	"github.com/redeliver/redeliver/internal/wirename"
)

// TopicConfig says where the commands to a group are.
type TopicConfig struct {
	Name        string
	Exists      bool
	Create      func() error // creates the topic if it does not exist
	Client      sarama.Client
	Admin       cluster.Admin
	Producer    *produce.Producer
	SendTimeout time.Duration
}

// Topic is a control topic for the operators of a group, who read and write it. It is safe for concurrent use.
type Topic struct {
	TopicConfig

	asking wait.Mutex // of who reads, writes or creates the topic
	log    log
}

// NewTopic returns the topic of cfg. It sends no request.
func NewTopic(cfg TopicConfig) *Topic { return &Topic{TopicConfig: cfg, asking: wait.NewMutex()} }

// Send writes a command, and deletes those that have expired. The first command creates the topic.
func (t *Topic) Send(ctx context.Context, cmd *deadletter.Command) error {
	if err := t.asking.Lock(ctx); err != nil {
		return err
	}
	defer t.asking.Unlock()
	if err := t.prepareLocked(true); err != nil {
		return err
	}
	if err := t.refreshLocked(ctx); err != nil {
		return err
	}
	e, err := produce.JSONEntry(keyPrefix+cmd.ID, cmd)
	if err != nil {
		return err
	}
	entries := []produce.Entry{e}
	for i := range t.log.commands {
		if old := &t.log.commands[i]; time.Since(old.Expires) > 0 {
			entries = append(entries, produce.Tombstone(keyPrefix+old.ID))
		}
	}
	return t.writeLocked(ctx, entries...)
}

// Commands returns the commands, oldest first, with those that have expired.
func (t *Topic) Commands(ctx context.Context) ([]deadletter.Command, error) {
	if err := t.asking.Lock(ctx); err != nil {
		return nil, err
	}
	defer t.asking.Unlock()
	if err := t.refreshLocked(ctx); err != nil {
		return nil, err
	}
	return slices.Clone(t.log.commands), nil
}

// SetPaused pauses the group, or ends its pause if mark is nil. It creates the topic if it does not exist.
func (t *Topic) SetPaused(ctx context.Context, mark *redeliver.PauseMark) error {
	if err := t.asking.Lock(ctx); err != nil {
		return err
	}
	defer t.asking.Unlock()
	if err := t.prepareLocked(false); err != nil && (mark != nil || !t.Exists) { // a pause can always be ended
		return err
	}
	e := produce.Tombstone(wirename.PauseKey)
	if mark != nil {
		e.Value = []byte(mark.String())
	}
	return t.writeLocked(ctx, e)
}

// Paused returns the mark in a control topic that exists, or nil for none.
func Paused(ctx context.Context, client sarama.Client, topic string) (*redeliver.PauseMark, error) {
	var l log
	err := l.refresh(ctx, &topiclog.Reader{Client: client, Topic: topic})
	return l.paused, err
}

// writeLocked writes records and returns when all are confirmed.
func (t *Topic) writeLocked(ctx context.Context, entries ...produce.Entry) error {
	return t.Producer.WriteEntries(ctx, t.SendTimeout, t.Name, entries...)
}

// refreshLocked reads the topic, if it exists.
func (t *Topic) refreshLocked(ctx context.Context) error {
	if !t.Exists {
		return nil
	}
	return t.log.refresh(ctx, &topiclog.Reader{Client: t.Client, Topic: t.Name})
}

// prepareLocked makes sure that the topic exists. It refuses one that would lose commands, or whose commands would be
// ignored. timed says that the broker's clock must time what is written.
func (t *Topic) prepareLocked(timed bool) error {
	if !t.Exists {
		if err := t.Create(); err != nil {
			return err
		}
		t.Exists = true
	}
	partitions, err := t.Client.Partitions(t.Name)
	if err != nil {
		return fmt.Errorf("kafka: asking for the partitions of %s: %w", t.Name, err)
	}
	settings, err := t.Admin.Settings(t.Name)
	if err != nil {
		return err
	}
	var ps check.Problems
	kafkaname.CheckPartition(&ps, t.Name, len(partitions))
	kafkaname.CheckCompacted(&ps, t.Name, timed, settings[t.Name])
	if err := ps.Err(); err != nil {
		return fmt.Errorf("kafka: %w", err)
	}
	return nil
}
