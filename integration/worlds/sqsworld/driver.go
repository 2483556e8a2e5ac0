// Package sqsworld runs worlds with adapters/sqs on sqsfake, in virtual time: see package worlds.
package sqsworld

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"strings"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs"
	"github.com/redeliver/redeliver/internal/sqsfake"

	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Vocabulary is what this driver can express.
var Vocabulary = plan.Vocabulary{
	Broker: "sqs",
	Ways:   []plan.Way{plan.Consume, plan.Consume, plan.ConsumeBatch, plan.Router},
	Origins: []plan.Origin{
		{Name: "orders", Orders: []string{plan.OrderNone}, Bounds: plan.Bounds{Order: plan.OrderNone, Pause: handIn}},
		{
			Name: "orders.fifo", Orders: []string{plan.OrderThroughRetries, plan.OrderFirstAttempts, plan.OrderNone, plan.OrderBlocking},
			Bounds: plan.Bounds{Order: plan.OrderThroughRetries, Pause: handIn},
		},
	},
	Words: map[string]int{
		plan.Kill: 3, plan.Restart: 2, plan.Scale: 2, plan.Cut: 2, plan.Stall: 2, plan.Refuse: 4, plan.Late: 2, plan.LostAnswers: 2,
		plan.Deploy: 2, plan.PauseGroup: 1, plan.Deny: 2, plan.Dependency: 1, plan.Twice: 1,
	},
	Keys: numbers(len(actions)), Errors: errorNames(), Denials: []string{"AccessDenied"}, Deadlines: true,
}

// handIn is how long a paused process takes to return the messages that it has.
const handIn = 5 * time.Second

// actions are the requests of faults. A plan has their numbers.
var actions = []string{
	"ReceiveMessage", "DeleteMessageBatch", "ChangeMessageVisibilityBatch", "SendMessageBatch", "SendMessage", "DeleteMessage",
	"ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl", "CreateQueue", "ListQueueTags",
}

// refusals are the errors of Refuse.
var refusals = map[string]func(pick uint32) *sqsfake.Fault{
	"Throttled":   func(uint32) *sqsfake.Fault { return sqsfake.Throttled() },
	"ServerError": func(uint32) *sqsfake.Fault { return sqsfake.ServerError() },
	"Reset":       func(uint32) *sqsfake.Fault { return sqsfake.Reset() },
	"Refused":     func(uint32) *sqsfake.Fault { return sqsfake.ConnectionRefused() },
	"Unavailable" + carriedOut: func(uint32) *sqsfake.Fault {
		return &sqsfake.Fault{Status: 503, Code: "ServiceUnavailable", Carried: true}
	},
	"Entries": func(pick uint32) *sqsfake.Fault { return sqsfake.FailedEntries("InternalError", half(pick)) },
	"Entries" + carriedOut: func(pick uint32) *sqsfake.Fault {
		f := sqsfake.FailedEntries("RequestThrottled", half(pick))
		f.Carried = true
		return f
	},
}

// A send that is carried out and refused leaves a copy, which runs and may be sent again. No SQS takes all messages for minutes and
// says that it has none.
const (
	carriedOut    = ", carried out"
	maxCarriedOut = 20
)

// half picks about half of the entries of a batch, others for each pick.
func half(pick uint32) func(map[string]any) bool {
	return func(e map[string]any) bool { return crc32.ChecksumIEEE(fmt.Append(nil, pick, e))%2 == 0 }
}

func numbers(n int) (all []int16) {
	for i := range n {
		all = append(all, int16(i))
	}
	return all
}

func errorNames() []string {
	return []string{"Throttled", "ServerError", "Reset", "Refused", "Unavailable, carried out", "Entries", "Entries, carried out"}
}

// operator is the name of connections without faults.
const operator = "operator"

// Driver implements live.Driver.
type Driver struct {
	world  plan.World
	start  time.Time
	server *sqsfake.Server

	mu        sync.Mutex
	sent      int64
	processes map[string]*line
	read      map[string]bool // dead letters, by MessageId
}

var _ live.Driver = (*Driver)(nil)

// Start starts the server of a world.
func Start(w plan.World) *Driver {
	o := sqsfake.Options{Latency: 5 * time.Millisecond, StrictReceipts: w.Seed%4 > 1}
	if w.Seed%2 == 1 {
		o.CreateLatency = time.Second
	}
	if w.Seed%5 == 0 {
		o.MaxInFlight = 12
	}
	d := &Driver{world: w, start: time.Now(), server: sqsfake.New(o), processes: make(map[string]*line), read: make(map[string]bool)}
	for _, t := range w.Topics {
		d.server.Create(t.Name)
	}
	return d
}

// Close waits until the server is at rest.
func (d *Driver) Close() { d.server.Wait() }

// Write implements live.Driver.
func (d *Driver) Write(m plan.Message, body []byte) (int32, int64, error) {
	message := sqsfake.Message{Body: string(body), Group: m.Key, Attributes: map[string]sqsfake.Attribute{live.UserHeader: sqsfake.String(m.ID)}}
	if m.Expires > 0 {
		message.Attributes[redeliver.HeaderExpires] = sqsfake.String(d.start.Add(m.Expires).UTC().Format(time.RFC3339Nano))
	}
	if sqsfake.IsFIFO(m.Topic) {
		message.Dedup = m.ID
	}
	d.server.Put(m.Topic, message)
	d.sent++ // one goroutine writes
	return 0, d.sent, nil
}

// DeadLetters implements live.Driver.
func (d *Driver) DeadLetters(s plan.Service) (all []live.DeadLetter, _ error) {
	for _, queue := range s.Topics {
		stem, isFIFO := strings.CutSuffix(queue, ".fifo")
		dlq := stem + "-dlq"
		if isFIFO {
			dlq += ".fifo"
		}
		for _, m := range d.server.Messages(dlq) {
			if d.read[m.ID] {
				continue
			}
			d.read[m.ID] = true
			l := live.DeadLetter{
				Body: []byte(m.Body), Key: m.Group, Header: string(m.Attributes[live.UserHeader].Value), Place: dlq + "/" + m.ID,
			}
			var state map[string]string
			if err := json.Unmarshal(m.Attributes[sqs.StateAttribute].Value, &state); err != nil {
				return all, fmt.Errorf("the state of %s: %w", l.Place, err)
			}
			field := func(header string) string { return state[strings.TrimPrefix(header, redeliver.HeaderPrefix)] }
			l.Name, l.Reason = field(redeliver.HeaderID), field(redeliver.HeaderReason)
			_, _ = fmt.Sscan(field(redeliver.HeaderAttempt), &l.Attempt)
			all = append(all, l)
		}
	}
	return all, nil
}

func (d *Driver) process(name string) *line {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.processes[name]
}

// Do implements live.Driver.
func (d *Driver) Do(o plan.Word, target string) (heal func(), err error) {
	switch o.What {
	case plan.Cut:
		d.process(target).interrupt()()
	case plan.Stall:
		return d.process(target).interrupt(), nil
	case plan.Refuse:
		pick := uint32(o.At)
		return d.fail(o, func() *sqsfake.Fault {
			pick++
			return refusals[o.Error](pick)
		}), nil
	case plan.Deny:
		return d.fail(o, sqsfake.Denied), nil
	case plan.LostAnswers:
		return d.fail(o, sqsfake.LostAnswer), nil
	case plan.Late:
		return d.fail(o, func() *sqsfake.Fault {
			if o.At%2 == 0 {
				return &sqsfake.Fault{Delay: o.For, Carried: true}
			}
			return &sqsfake.Fault{AnswerDelay: o.For}
		}), nil
	case plan.Twice:
		if sqsfake.IsFIFO(o.Topic) {
			return nil, nil // SQS does so with standard queues only
		}
		d.server.Edit(o.Topic, func(m *sqsfake.Message) {
			if m.Receives > 0 && crc32.ChecksumIEEE(fmt.Append(nil, o.At, m.ID))%4 == 0 {
				m.Visible = time.Now()
			}
		})
	case plan.PauseGroup:
		return d.pause(o)
	default:
		return nil, fmt.Errorf("sqsworld does not know the word %q", o.What)
	}
	return nil, nil
}

// fail makes requests of a word fail: the first o.Count, or all, until stop.
func (d *Driver) fail(o plan.Word, fault func() *sqsfake.Fault) (stop func()) {
	left := o.Count
	if strings.HasPrefix(actions[o.Keys[0]], "SendMessage") && strings.HasSuffix(o.Error, carriedOut) && left < 0 {
		left = maxCarriedOut
	}
	return d.server.Inject(func(c *sqsfake.Call) *sqsfake.Fault {
		if c.Action != actions[o.Keys[0]] || c.Connection == operator || left == 0 {
			return nil
		}
		left--
		return fault()
	})
}

// pause pauses the queue as an operator does.
func (d *Driver) pause(o plan.Word) (resume func(), err error) {
	c, err := sqs.Open(context.Background(), sqs.Config{
		AWS: d.server.Connect(operator).Config(), Endpoint: sqsfake.Endpoint, Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
	})
	if err != nil {
		return nil, err
	}
	return live.Pause(c, o.Topic)
}

// Stuck implements live.Driver.
func (d *Driver) Stuck(plan.Service) string { return "" }
