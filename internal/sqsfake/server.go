package sqsfake

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// Endpoint is the base URL of every server.
	Endpoint = "http://sqs.test"
	// Region is the region of every queue.
	Region = "eu-west-1"

	account = "1"
)

// URL returns the URL of a queue.
func URL(queue string) string { return Endpoint + "/" + account + "/" + queue }

// ARN returns the ARN of a queue.
func ARN(queue string) string { return "arn:aws:sqs:" + Region + ":" + account + ":" + queue }

// Options configures a [Server]. Its zero value is an SQS whose requests take no time.
type Options struct {
	// MaxInFlight is how many messages of a queue are received and not deleted at most. A FIFO queue looks for free
	// groups only among as many messages. The default is that of AWS, 120,000.
	MaxInFlight int
	// Latency is how long each request takes. It is carried out after half of that.
	Latency time.Duration
	// PollLatency is how long a receive that waits takes to notice a new message. The default is 20 ms.
	PollLatency time.Duration
	// CreateLatency is how long a new queue cannot be used. AWS asks for a second.
	CreateLatency time.Duration
	// StrictReceipts refuses each receipt that is not the latest of its message, or whose message is visible again.
	// AWS accepts the deletion with such a receipt, and may ignore it.
	StrictReceipts bool
}

// Server is an SQS in memory. Its methods are safe for concurrent use.
type Server struct {
	options Options

	mu         sync.Mutex
	queues     map[string]*queue
	deleted    map[string]time.Time
	seq        int // of messages and receipts
	operations []*Operation
	expired    []Message
	abandoned  int
	blocked    int

	injecting sync.Mutex // held while an injected function runs
	injected  []*func(*Call) *Fault

	background sync.WaitGroup // what continues although its client has gone
}

// New returns a server without queues.
func New(o Options) *Server {
	o.MaxInFlight = cmp.Or(o.MaxInFlight, 120_000)
	o.PollLatency = cmp.Or(o.PollLatency, 20*time.Millisecond)
	return &Server{options: o, queues: make(map[string]*queue), deleted: make(map[string]time.Time)}
}

// Wait waits until everything has ended that continues without its client.
func (s *Server) Wait() { s.background.Wait() }

// Operation is one request that a server got.
type Operation struct {
	At         time.Time
	Connection string // the name of the client's connection
	Action     string // such as SendMessageBatch
	Queue      string // the queue's name
	Code       string // of the refusal; "no answer" without one; empty if the request succeeded
	Failed     int    // entries of a batch
}

// Operations returns all requests so far. Those that are under way have no code.
func (s *Server) Operations() []Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Operation, len(s.operations))
	for i, o := range s.operations {
		all[i] = *o
	}
	return all
}

// Count returns how many requests of an action there were so far.
func (s *Server) Count(action string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.operations {
		if o.Action == action {
			n++
		}
	}
	return n
}

// record adds a request to the operations.
func (s *Server) record(c *Call) *Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := &Operation{At: time.Now(), Connection: c.Connection, Action: c.Action, Queue: c.Queue}
	s.operations = append(s.operations, o)
	return o
}

// noAnswer is the code of an operation whose client got no answer.
const noAnswer = "no answer"

// answer is the result of a request: out or refusal.
type answer struct {
	out     map[string]any
	refusal *Refusal
}

// serve carries out a request with its fault. An error means that there is no answer.
func (s *Server) serve(ctx context.Context, c *Call) (a answer, err error) {
	o, f := s.record(c), s.faultOf(c)
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		failed, _ := a.out["Failed"].([]any)
		o.Failed = len(failed)
		switch {
		case err != nil:
			o.Code = noAnswer
		case a.refusal != nil:
			o.Code = a.refusal.Code
		}
	}()
	arrives := time.Now().Add(s.options.Latency/2 + f.Delay)
	if err := waitUntil(ctx, arrives); err != nil {
		if f.Carried { // it is on its way
			s.background.Go(func() {
				_ = waitUntil(context.Background(), arrives)
				_, _ = s.carryOut(context.Background(), c, f)
			})
		}
		return answer{}, err
	}
	if !f.fails() || f.Carried {
		if a, err = s.carryOut(ctx, c, f); err != nil {
			return answer{}, err
		}
	}
	if err := waitUntil(ctx, time.Now().Add(s.options.Latency/2+f.AnswerDelay)); err != nil {
		return answer{}, err
	}
	switch {
	case f.Err != nil:
		return answer{}, f.Err
	case f.fails():
		return answer{refusal: &Refusal{f.Status, f.Code, cmp.Or(f.Message, "injected by the test")}}, nil
	default:
		return a, nil
	}
}

// carryOut carries out a request. An error means that the client has gone.
func (s *Server) carryOut(ctx context.Context, c *Call, f *Fault) (answer, error) {
	if c.Action == "ReceiveMessage" {
		return s.receive(ctx, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out, refusal := s.carryOutLocked(c, f)
	return answer{out, refusal}, context.Cause(ctx)
}

func (s *Server) carryOutLocked(c *Call, f *Fault) (map[string]any, *Refusal) {
	switch c.Action {
	case "CreateQueue":
		return s.createLocked(c)
	case "ListQueues":
		return s.listLocked(c)
	}
	q, refusal := s.queueLocked(c)
	if refusal != nil {
		return nil, refusal
	}
	if c.Batch {
		return s.batchLocked(q, c, f)
	}
	switch c.Action {
	case "GetQueueUrl":
		return map[string]any{"QueueUrl": URL(q.name)}, nil
	case "GetQueueAttributes":
		return q.readAttributes(c)
	case "SetQueueAttributes":
		return s.setLocked(q, c)
	case "DeleteQueue":
		s.deleteLocked(q)
	case "PurgeQueue":
		return q.purge()
	case "ListDeadLetterSourceQueues":
		return s.listSourcesLocked(q)
	case "ListQueueTags":
		return map[string]any{"Tags": q.tags}, nil
	case "TagQueue":
		return q.tag(c)
	case "UntagQueue":
		return q.untag(c)
	case "SendMessage", "DeleteMessage", "ChangeMessageVisibility":
		return s.entryLocked(q, c, c.In)
	default:
		return nil, refuse("UnsupportedOperation", "the fake does not know the action %s", c.Action)
	}
	return map[string]any{}, nil
}

// queueLocked returns the queue of a request.
func (s *Server) queueLocked(c *Call) (*queue, *Refusal) {
	q := s.queues[c.Queue]
	if owner := text(c.In, "QueueOwnerAWSAccountId"); q == nil || owner != "" && owner != account || time.Now().Before(q.usable) {
		return nil, refuse("QueueDoesNotExist", "The specified queue does not exist.")
	}
	s.expireLocked(q)
	return q, nil
}

// batchLocked carries out each entry of a batch.
func (s *Server) batchLocked(q *queue, c *Call, f *Fault) (map[string]any, *Refusal) {
	if refusal := c.checkBatch(); refusal != nil {
		return nil, refusal
	}
	ok, failed := []any{}, []any{}
	for _, e := range c.Entries {
		code := ""
		if f.Entry != nil {
			code = f.Entry(e)
		}
		var out map[string]any
		var refusal *Refusal
		if code == "" || f.Carried {
			out, refusal = s.entryLocked(q, c, e)
		}
		if code != "" {
			refusal = refuse(code, "injected by the test")
		}
		if refusal != nil {
			failed = append(failed, map[string]any{"Id": e["Id"], "Code": refusal.Code, "SenderFault": !refusal.isTemporary(), "Message": refusal.Message})
			continue
		}
		out["Id"] = e["Id"]
		ok = append(ok, out)
	}
	return map[string]any{"Successful": ok, "Failed": failed}, nil
}

// entryLocked carries out one entry of a batch, or a request that is no batch.
func (s *Server) entryLocked(q *queue, c *Call, e map[string]any) (map[string]any, *Refusal) {
	switch strings.TrimSuffix(c.Action, "Batch") {
	case "SendMessage":
		return s.sendLocked(q, c, e)
	case "DeleteMessage":
		return s.removeLocked(q, text(e, "ReceiptHandle"))
	case "ChangeMessageVisibility":
		return s.hideLocked(q, e)
	default:
		return nil, refuse("UnsupportedOperation", "the fake does not know the action %s", c.Action)
	}
}

// waitUntil waits until a time or the end of ctx, whose cause it returns.
func waitUntil(ctx context.Context, at time.Time) error {
	d := time.Until(at)
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Abandoned returns how many receives continued after their clients had gone.
func (s *Server) Abandoned() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.abandoned
}

// Blocked returns how many receives waited although their queue had visible messages, because the groups of all of
// them were held.
func (s *Server) Blocked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.blocked
}

// Expired returns the messages that were deleted at the end of their queues' retention.
func (s *Server) Expired() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.expired)
}

func (s *Server) nextLocked(prefix string) string {
	s.seq++
	return fmt.Sprint(prefix, s.seq)
}
