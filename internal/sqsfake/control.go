package sqsfake

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// The methods in this file are for tests. They carry out what the owner of a queue or another program does, at once, and
// check only what they say. Requests that they make are no operations and get no faults.

// Create creates a queue, or replaces the one of that name. attributes are names and values, one after another.
func (s *Server) Create(name string, attributes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.queues[name]; old != nil {
		old.wake()
	}
	q := newQueue(name)
	q.set(toMap(attributes))
	s.queues[name] = q
	delete(s.deleted, name)
}

func toMap(attributes []string) map[string]string {
	all := make(map[string]string)
	for pair := range slices.Chunk(attributes, 2) {
		all[pair[0]] = pair[1]
	}
	return all
}

// Delete deletes a queue with its messages. As with DeleteQueue, its name cannot be used for a minute.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[name]; q != nil {
		s.deleteLocked(q)
	}
}

// Set sets attributes of a queue, names and values one after another. An empty value removes the attribute.
func (s *Server) Set(queue string, attributes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.mustLocked(queue)
	q.set(toMap(attributes))
	s.expireLocked(q)
	q.wake()
}

// mustLocked returns a queue that exists. It panics if there is none, because the test is wrong.
func (s *Server) mustLocked(name string) *queue {
	q := s.queues[name]
	if q == nil {
		panic("sqsfake: there is no queue " + name)
	}
	return q
}

// Queues returns the names of all queues, sorted.
func (s *Server) Queues() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.queues))
}

// Attributes returns the attributes of a queue that can be set, and nil if there is no such queue.
func (s *Server) Attributes(queue string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[queue]; q != nil {
		return maps.Clone(q.attributes)
	}
	return nil
}

// Put writes a message as another program does, and returns its id. It uses the message's Body, Attributes, Group, Dedup
// and Trace, and its Sent and Visible unless they are zero. It panics if SQS would refuse the message.
func (s *Server) Put(queue string, m Message) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q, now := s.mustLocked(queue), time.Now()
	attributes := map[string]any{}
	for name, a := range m.Attributes {
		encoded := map[string]any{}
		for k, v := range a.encode() {
			encoded[k] = v
		}
		attributes[name] = encoded
	}
	e := map[string]any{"MessageBody": m.Body, "MessageGroupId": m.Group, "MessageDeduplicationId": m.Dedup, "MessageAttributes": attributes}
	_, refusal := (&Call{Queue: queue}).checkMessage(e, q.number("MaximumMessageSize"))
	own := Message{Body: m.Body, Attributes: maps.Clone(m.Attributes), Group: m.Group, Dedup: m.Dedup, Trace: m.Trace, Sent: m.Sent, Visible: m.Visible}
	if own.Sent.IsZero() {
		own.Sent = now
	}
	if own.Visible.IsZero() {
		own.Visible = now.Add(time.Duration(q.number("DelaySeconds")) * time.Second)
	}
	if refusal == nil {
		refusal = s.addLocked(q, &own)
	}
	if refusal != nil {
		panic("sqsfake: a message for " + queue + " is refused: " + strconv.Quote(refusal.Message))
	}
	return own.ID
}

// Messages returns the messages of a queue in the order in which they were sent, those that are hidden, too.
func (s *Server) Messages(queue string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[queue]
	if q == nil {
		return nil
	}
	s.expireLocked(q)
	all := make([]Message, len(q.messages))
	for i, m := range q.messages {
		all[i] = *m
	}
	return all
}

// Edit calls edit for each message of a queue, which may change all of it but its Receipt. A message that it makes visible
// comes again, as SQS may deliver any message twice.
func (s *Server) Edit(queue string, edit func(*Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.mustLocked(queue)
	for _, m := range q.messages {
		edit(m)
	}
	q.wake()
}

// Remove deletes all messages of a queue, as PurgeQueue does.
func (s *Server) Remove(queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.mustLocked(queue)
	q.messages = nil
	clear(q.received)
}
