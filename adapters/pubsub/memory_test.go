package pubsub

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
)

// memoryBroker is a minimal Watermill Pub/Sub: topics, competing groups, one message at a time for each Subscribe,
// and only Ack and Nack.
type memoryBroker struct {
	mu      sync.Mutex
	topics  map[string][]*message.Message
	groups  map[[2]string][]*pending // unacked messages by topic and group
	changed chan struct{}
	refused map[string]bool // topics that refuse every message
	bounded map[string]bool // topics that refuse payloads above maxPayload
}

const maxPayload = 1 << 20

// pending is a message that a group has not acked.
type pending struct {
	msg   *message.Message
	taken bool
}

var (
	errRefused  = errors.New("the test made the broker refuse this write")
	errTooLarge = errors.New("the payload is too large")
)

func newMemoryBroker() *memoryBroker {
	return &memoryBroker{
		topics: make(map[string][]*message.Message), groups: make(map[[2]string][]*pending),
		changed: make(chan struct{}), refused: make(map[string]bool), bounded: make(map[string]bool),
	}
}

// update changes the state and wakes all waiting goroutines.
func (m *memoryBroker) update(what func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	what()
	close(m.changed)
	m.changed = make(chan struct{})
}

func clone(msg *message.Message) *message.Message {
	c := message.NewMessage(msg.UUID, bytes.Clone(msg.Payload))
	maps.Copy(c.Metadata, msg.Metadata)
	return c
}

func (m *memoryBroker) put(topic string, msg *message.Message) {
	m.update(func() {
		msg = clone(msg)
		m.topics[topic] = append(m.topics[topic], msg)
		for at := range m.groups {
			if at[0] == topic {
				m.groups[at] = append(m.groups[at], &pending{msg: msg})
			}
		}
	})
}

// member is a process of a group, as publisher and as subscriber.
type member struct {
	m     *memoryBroker
	group string
	dead  context.Context
	kill  context.CancelFunc
}

func (m *memoryBroker) member(tb testing.TB, group string) *member {
	tb.Helper()
	ctx, kill := context.WithCancel(context.Background())
	tb.Cleanup(kill)
	return &member{m, group, ctx, kill}
}

func (p *member) Publish(topic string, msgs ...*message.Message) error {
	p.m.mu.Lock()
	refused, bounded := p.m.refused[topic], p.m.bounded[topic]
	p.m.mu.Unlock()
	if refused {
		return errRefused
	}
	if err := p.dead.Err(); err != nil {
		return err
	}
	for _, msg := range msgs {
		if bounded && len(msg.Payload) > maxPayload {
			return errTooLarge
		}
		p.m.put(topic, msg)
	}
	return nil
}

func (p *member) Close() error { return nil }

func (p *member) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := p.dead.Err(); err != nil {
		return nil, err
	}
	at := [2]string{topic, p.group}
	p.m.update(func() {
		if _, ok := p.m.groups[at]; ok {
			return
		}
		p.m.groups[at] = []*pending{}
		for _, msg := range p.m.topics[topic] {
			p.m.groups[at] = append(p.m.groups[at], &pending{msg: msg})
		}
	})
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(p.dead, cancel)
	out := make(chan *message.Message)
	go func() {
		defer close(out)
		defer stop()
		defer cancel()
		for p.deliverOne(ctx, at, out) {
		}
	}()
	return out, nil
}

// deliverOne delivers a message until it is acked.
func (p *member) deliverOne(ctx context.Context, at [2]string, out chan<- *message.Message) bool {
	item := p.m.waitForMessage(ctx, at)
	if item == nil {
		return false
	}
	settled := false
	defer func() {
		p.m.update(func() {
			item.taken = false
			if settled {
				p.m.groups[at] = slices.DeleteFunc(p.m.groups[at], func(i *pending) bool { return i == item })
			}
		})
	}()
	for {
		msgCtx, cancel := context.WithCancel(ctx)
		msg := clone(item.msg)
		msg.SetContext(msgCtx)
		defer cancel()
		select {
		case out <- msg:
		case <-ctx.Done():
			return false
		}
		select {
		case <-msg.Acked():
			settled = p.dead.Err() == nil && ctx.Err() == nil // a killed process acks nothing
			return true
		case <-msg.Nacked():
		case <-ctx.Done():
			return false
		}
	}
}

// waitForMessage waits for a message that no member has.
func (m *memoryBroker) waitForMessage(ctx context.Context, at [2]string) *pending {
	for {
		m.mu.Lock()
		for _, item := range m.groups[at] {
			if !item.taken && ctx.Err() == nil {
				item.taken = true
				m.mu.Unlock()
				return item
			}
		}
		changed := m.changed
		m.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
