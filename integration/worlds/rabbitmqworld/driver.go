// Package rabbitmqworld runs worlds with adapters/amqp on real brokers, in real time: see package worlds. Each world has a
// virtual host and a user of its own.
package rabbitmqworld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/amqp"

	"github.com/redeliver/redeliver/integration/brokers"
	"github.com/redeliver/redeliver/integration/methodproxy"
	"github.com/redeliver/redeliver/integration/worlds/live"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Vocabulary is what this driver can express.
var Vocabulary = plan.Vocabulary{
	Broker: "rabbitmq",
	Ways:   []plan.Way{plan.Consume, plan.Consume, plan.ConsumeBatch, plan.Router},
	Origins: []plan.Origin{
		{Name: quorum, Orders: []string{plan.OrderNone, plan.OrderFirstAttempts}, Bounds: bounds(plan.OrderNone)},
		{Name: classic, Orders: []string{plan.OrderNone}, Bounds: bounds(plan.OrderNone)},
		{Name: single, Orders: []string{plan.OrderThroughRetries, plan.OrderBlocking}, Bounds: bounds("")},
	},
	Words: map[string]int{
		plan.Kill: 3, plan.Restart: 2, plan.Scale: 2, plan.Cut: 2, plan.Stall: 2, plan.Refuse: 4, plan.Late: 2, plan.LostAnswers: 2,
		plan.Deploy: 2, plan.PauseGroup: 1, plan.Deny: 2, plan.Dependency: 1, plan.Block: 1, plan.Close: 2, plan.Limit: 2,
		plan.DeleteOrigin: 1, plan.DeleteLevel: 1, plan.DeleteRetry: 1, plan.DeleteDLQ: 1,
	},
	Keys: numbers(len(methods)), Errors: []string{"ACCESS_REFUSED", "NOT_FOUND", "RESOURCE_LOCKED", "INTERNAL_ERROR", "RESOURCE_ERROR", "CONNECTION_FORCED"},
	Denials: []string{"configure", "write", "read"},
	Limits:  []string{"length of the queue", "length of a level", "length of the DLQ", "TTL of levels"},
	Scale:   10,
}

// The origins. The last one has a single active consumer.
const (
	quorum  = "orders"
	classic = "orders.classic"
	single  = "orders.single"
)

func bounds(order string) plan.Bounds {
	return plan.Bounds{
		Order: order, Linger: 10 * time.Second, Settle: 3 * time.Second, Slack: 300 * time.Millisecond,
	}
}

// methods are the requests of faults. A plan has their numbers.
var methods = []string{
	"basic.publish", "basic.publish", "basic.consume", "basic.ack", "basic.nack", "basic.qos", "basic.cancel", "basic.get", "queue.declare",
	methodproxy.PassiveDeclare, "channel.open", "confirm.select",
}

// refusals are the errors of Refuse. Some end the connection.
var refusals = map[string]methodproxy.Fault{
	"ACCESS_REFUSED":    {Err: &amqp091.Error{Code: amqp091.AccessRefused, Reason: "ACCESS_REFUSED - access refused for user 'worlds'"}},
	"NOT_FOUND":         {Err: &amqp091.Error{Code: amqp091.NotFound, Reason: "NOT_FOUND - the queue is down or inaccessible"}},
	"RESOURCE_LOCKED":   {Err: &amqp091.Error{Code: amqp091.ResourceLocked, Reason: "RESOURCE_LOCKED - cannot obtain access"}},
	"INTERNAL_ERROR":    {Err: &amqp091.Error{Code: amqp091.InternalError, Reason: "INTERNAL_ERROR"}, Connection: true},
	"RESOURCE_ERROR":    {Err: &amqp091.Error{Code: amqp091.ResourceError, Reason: "RESOURCE_ERROR"}, Connection: true},
	"CONNECTION_FORCED": {Err: &amqp091.Error{Code: amqp091.ConnectionForced, Reason: "CONNECTION_FORCED - broker forced connection closure"}, Connection: true},
}

func numbers(n int) (all []int16) {
	for i := range n {
		all = append(all, int16(i))
	}
	return all
}

const keyHeader = "key"

// Driver implements live.Driver.
type Driver struct {
	world      plan.World
	admin      *admin
	url        string // without a proxy, for the operator
	serviceURL string
	conn       *amqp091.Connection // the writer's
	writer     *amqp091.Channel
	returned   chan amqp091.Return // messages that no queue takes
	letters    <-chan amqp091.Delivery
	sent       int64

	mu        sync.Mutex
	processes map[string]*methodproxy.Proxy
	faults    map[*fault]bool
	written   [][]byte    // the bodies of the messages
	deleted   []live.Copy // see Deleted
}

var _ live.Driver = (*Driver)(nil)

// fault is a fault of the requests of all processes.
type fault struct {
	method string
	left   int // -1 is all
	fault  methodproxy.Fault
}

// Start makes the virtual host of a world.
func Start(w plan.World, r *brokers.Rabbit) (*Driver, error) {
	d := &Driver{world: w, processes: make(map[string]*methodproxy.Proxy), faults: make(map[*fault]bool)}
	var err error
	name := fmt.Sprintf("world-%d-%s", w.Seed, strconv.FormatUint(rand.Uint64(), 36))
	if d.admin, d.url, d.serviceURL, err = newAdmin(r, name); err != nil {
		return nil, err
	}
	return d, cmp.Or(d.connect(), d.declare(d.writer))
}

func (d *Driver) connect() (err error) {
	if d.conn == nil || d.conn.IsClosed() {
		if d.conn, err = amqp091.Dial(d.url); err != nil {
			return err
		}
	}
	if d.writer, err = d.conn.Channel(); err != nil {
		return err
	}
	d.returned = d.writer.NotifyReturn(make(chan amqp091.Return, 1))
	return d.writer.Confirm(false)
}

func (d *Driver) declare(ch *amqp091.Channel) error {
	name := d.world.Topics[0].Name
	args := amqp091.Table{amqp091.QueueTypeArg: amqp091.QueueTypeQuorum, amqp091.QueueOverflowArg: amqp091.QueueOverflowRejectPublish}
	switch name {
	case classic:
		args[amqp091.QueueTypeArg] = amqp091.QueueTypeClassic
	case single:
		args[amqp091.SingleActiveConsumerArg], args["x-delivery-limit"] = true, int32(1_000_000)
	}
	_, err := ch.QueueDeclare(name, true, false, false, false, args)
	return err
}

// Close ends the world, and deletes its virtual host.
func (d *Driver) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.processes {
		p.Close()
	}
	return errors.Join(d.conn.Close(), d.admin.close())
}

// Write implements live.Driver.
func (d *Driver) Write(m plan.Message, body []byte) (int32, int64, error) {
	if d.writer.IsClosed() {
		if err := d.connect(); err != nil {
			return 0, 0, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	p := amqp091.Publishing{Body: body, DeliveryMode: amqp091.Persistent, Timestamp: time.Now(), Headers: amqp091.Table{live.UserHeader: m.ID, keyHeader: m.Key}}
	if d.world.Seed%2 == 0 {
		p.MessageId = "id-" + m.ID
	}
	d.mu.Lock()
	d.written = append(d.written, body)
	d.mu.Unlock()
	confirm, err := d.writer.PublishWithDeferredConfirm("", m.Topic, true, false, p)
	if err != nil {
		return 0, 0, err
	}
	acked, err := confirm.WaitContext(ctx)
	select {
	case <-d.returned: // before its confirm
		return 0, 0, errors.New("there is no queue")
	default:
	}
	if err == nil && !acked {
		// A channel does not learn that a limit was raised: only a new one asks.
		err = errors.Join(errors.New("the queue is full"), d.writer.Close())
	}
	d.sent++ // one goroutine writes
	return 0, d.sent, err
}

// DeadLetters implements live.Driver. The letters stay in the DLQ: they are never acked.
func (d *Driver) DeadLetters(s plan.Service) (all []live.DeadLetter, _ error) {
	if d.letters == nil {
		ch, err := d.conn.Channel()
		if err != nil {
			return nil, err
		}
		letters, err := ch.Consume(s.Topics[0]+".dlq", "", false, false, false, false, nil)
		if err != nil {
			var e *amqp091.Error
			if errors.As(err, &e) && e.Code == amqp091.NotFound {
				return nil, nil // no service has declared it yet
			}
			return nil, err
		}
		d.letters = letters
	}
	for {
		select {
		case m, ok := <-d.letters:
			if !ok {
				d.letters = nil
				return all, errors.New("the consumer of the DLQ has ended")
			}
			l := live.DeadLetter{
				Body: m.Body, Key: text(m.Headers, keyHeader), Header: text(m.Headers, live.UserHeader), Name: text(m.Headers, redeliver.HeaderID),
				Reason: text(m.Headers, redeliver.HeaderReason), Place: fmt.Sprintf("%s/%d", m.RoutingKey, m.DeliveryTag),
			}
			_, _ = fmt.Sscan(text(m.Headers, redeliver.HeaderAttempt), &l.Attempt)
			all = append(all, l)
		case <-time.After(50 * time.Millisecond): // the client passes them on one by one
			return all, nil
		}
	}
}

func text(t amqp091.Table, name string) string {
	if v, ok := t[name]; ok {
		return fmt.Sprint(v)
	}
	return ""
}

func (d *Driver) process(name string) *methodproxy.Proxy {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.processes[name]
}

// Do implements live.Driver.
func (d *Driver) Do(o plan.Word, target string) (heal func(), err error) {
	switch o.What {
	case plan.Cut:
		d.process(target).Cut()
	case plan.Stall:
		return d.process(target).Stall(), nil
	case plan.Block:
		return d.each((*methodproxy.Proxy).Block), nil
	case plan.Late:
		return d.each((*methodproxy.Proxy).Delay), nil
	case plan.Refuse:
		f := refusals[o.Error]
		f.Connection = f.Connection || methods[o.Keys[0]] == "channel.open" // the broker does not have the channel
		return d.fail(o, f), nil
	case plan.LostAnswers:
		return d.fail(o, methodproxy.Fault{Lost: true}), nil
	case plan.Deny:
		return d.deny(o)
	case plan.Close:
		return nil, d.admin.closeConnections()
	case plan.Limit:
		return d.limit(o)
	case plan.PauseGroup:
		return d.pause(o)
	case plan.DeleteOrigin, plan.DeleteLevel, plan.DeleteRetry, plan.DeleteDLQ:
		return d.remove(o)
	default:
		return nil, fmt.Errorf("rabbitmqworld does not know the word %q", o.What)
	}
	return nil, nil
}

// each does something with the proxies of all processes.
func (d *Driver) each(begin func(*methodproxy.Proxy) (end func())) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var ends []func()
	for _, p := range d.processes {
		ends = append(ends, begin(p))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// fail makes requests of a word fail: the first o.Count, or all, until stop.
func (d *Driver) fail(o plan.Word, with methodproxy.Fault) (stop func()) {
	f := &fault{methods[o.Keys[0]], o.Count, with}
	if f.method == "basic.ack" { // each one that is refused leaves copies of what runs: no broker refuses all acks and takes all writes
		f.left = 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults[f] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.faults, f)
	}
}

// fault returns the fault of a request.
func (d *Driver) fault(o methodproxy.Operation, _ []byte) *methodproxy.Fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	for f := range d.faults {
		if f.method == o.Method && f.left != 0 {
			f.left--
			return &f.fault
		}
	}
	return nil
}

// deny takes a right of the services' user away. A busy channel keeps the rights that it had.
func (d *Driver) deny(o plan.Word) (allow func(), err error) {
	if err := d.admin.deny(o.Error); err != nil {
		return nil, err
	}
	if o.At%2 == 0 {
		err = d.admin.closeConnections()
	}
	return func() {
		for d.admin.deny("") != nil {
			time.Sleep(time.Second)
		}
	}, err
}

// limit sets a limit as an administrator does. None of them may lose a message: redeliver's queues refuse what is too much,
// and a shorter TTL of a level only brings messages back too soon for it.
func (d *Driver) limit(o plan.Word) (end func(), err error) {
	queue := strings.ReplaceAll(o.Topic, ".", `\.`)
	policy := map[string]any{"max-length": o.Count}
	pattern := map[string]string{
		"length of the queue": "^" + queue + "$", "length of the DLQ": "^" + queue + `\.dlq$`,
		"length of a level": "^" + queue + `\.retry\.[0-9]`, "TTL of levels": "^" + queue + `\.retry\.[0-9]`,
	}[o.Error]
	if o.Error == "TTL of levels" {
		policy = map[string]any{"message-ttl": 10 + 100*o.Count}
	}
	name := fmt.Sprintf("limit-%d", o.At)
	if err := d.admin.setPolicy(name, pattern, policy); err != nil {
		return nil, err
	}
	return func() {
		for d.admin.deletePolicy(name) != nil {
			time.Sleep(time.Second)
		}
	}, nil
}

// pause pauses the queue as an operator does.
func (d *Driver) pause(o plan.Word) (resume func(), err error) {
	c, err := amqp.Open(context.Background(), amqp.Config{URLs: []string{d.url}, Topology: amqp.ExistingQueue(), Sink: redeliver.SinkFunc(func(redeliver.Event) {})})
	if err != nil {
		return nil, err
	}
	return live.Pause(c, o.Topic)
}

// Stuck implements live.Driver.
func (d *Driver) Stuck(plan.Service) string { return "" }
