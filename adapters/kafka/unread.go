package kafka

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// unreadAgain is after how long it is told again that partitions of a topic are not read.
const unreadAgain = time.Minute

// unread tells of partitions that the group gives to this member and that it cannot
// read: its session goes on with the others, so nothing else says so, and what is there
// waits for ever.
type unread struct {
	mu   sync.Mutex
	told map[string]time.Time // by topic and error
}

// heard takes what the group says beside its sessions. What ends a session, Consume
// says; connections, leaders and generations come and go, and are tried again.
func (r *reader) heard(err error) {
	var where *sarama.ConsumerError
	if !errors.As(err, &where) {
		return
	}
	switch {
	case errors.Is(err, sarama.ErrTopicAuthorizationFailed), errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		r.tellUnread(where.Topic, where.Partition, "; grant Read", where.Err)
	case errors.Is(err, sarama.ErrOffsetOutOfRange):
		r.tellUnread(where.Topic, where.Partition, "", where.Err)
	}
}

// tellUnread tells, once for a topic and an error and again after a while.
func (r *reader) tellUnread(topic string, partition int32, what string, err error) {
	u, now := &r.unread, time.Now()
	key := topic + " " + err.Error()
	u.mu.Lock()
	last, was := u.told[key]
	tells := !was || now.Sub(last) >= unreadAgain
	if tells {
		if u.told == nil {
			u.told = make(map[string]time.Time)
		}
		u.told[key] = now
	}
	u.mu.Unlock()
	if tells {
		r.tell("a partition is not read", fmt.Sprintf("%s/%d: what is there waits, trying again%s", topic, partition, what), err)
	}
}
