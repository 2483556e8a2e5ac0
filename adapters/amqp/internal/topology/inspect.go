package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver/adapters/amqp/internal/layout"
	"github.com/redeliver/redeliver/adapters/amqp/internal/management"
	"github.com/redeliver/redeliver/adapters/amqp/internal/wire"
	"github.com/redeliver/redeliver/delayqueue"
)

// deadLetterPrefetch is the broker's dead_letter_worker_consumer_prefetch.
const deadLetterPrefetch = 32

// checkMain checks the queue of the subscription: what its owner or a policy does with messages before redeliver
// gets them, and what would lose them. exists reports whether another queue exists.
func (s *Survey) checkMain(exists func(string) (bool, error), r management.QueueSettings) error {
	s.layout.Classic = r.Type == amqp091.QueueTypeClassic
	switch r.Type {
	case amqp091.QueueTypeQuorum:
	case amqp091.QueueTypeClassic:
		if !s.layout.Ordered() {
			s.notef("%s is a classic queue: it does not count deliveries, so every message that comes again continues through %s", r.Name, s.layout.Retry())
		}
	default:
		addType(&s.Problems, r.Name, r.Type)
	}
	if r.AutoDelete {
		s.Problems.Add("queue "+r.Name, "auto-delete", "must not be deleted with its last consumer: its messages would be lost with it. Declare it without auto-delete")
	}
	if !r.Durable {
		s.notef("%s is not durable: a restart of the broker deletes it and its messages", r.Name)
	}
	v, ok := r.Preferred("single-active-consumer")
	switch one := ok && fmt.Sprint(v.Value) == "true"; {
	case s.layout.Ordered() && !one:
		addNotSingleActive(&s.Problems, r.Name, s.layout.Policy)
	case one && !s.layout.Ordered():
		s.notef("%s has a single active consumer: first deliveries go to one process, retries to all", r.Name)
	}
	for _, v := range r.Settings("delayed-retry-type") {
		s.notef("%s: RabbitMQ delays returned messages (%s); redeliver's retries are not affected, because they are acked when they wait elsewhere", r.Name, v)
	}
	_, s.layout.Expires = r.Lowest("expires")
	s.checkConsumerTimeout(r)
	s.noteBounds(r)
	return s.checkLimit(exists, r)
}

// minDeliveryLimit is twice the count at which a message is rewritten.
const minDeliveryLimit = 2 * layout.MaxReturns

// checkLimit checks the broker's delivery limit, at which it removes a message.
func (s *Survey) checkLimit(exists func(string) (bool, error), r management.QueueSettings) error {
	limit, ok := r.MaxDeliveries(s.isAtLeast(4, 0))
	if !ok {
		return nil
	}
	exchange, dead := r.Preferred("dead-letter-exchange")
	key, keyed := r.Preferred("dead-letter-routing-key")
	target := fmt.Sprint(key.Value)
	if dead && keyed && exchange.Value == "" && target != s.layout.DLQ() {
		there, err := exists(target)
		if err != nil {
			return err
		}
		dead = there
	}
	n, _ := limit.Number()
	minLimit := int64(minDeliveryLimit)
	if s.layout.Ordered() {
		minLimit = layout.OwnDeliveryLimit
	}
	known := ""
	if !s.Asked {
		known = ". redeliver only knows the policies with ManagementURL"
	}
	switch {
	case !dead && n >= minLimit && s.layout.Ordered():
		s.notef("%s has %s and drops messages that come back more often, also after lost connections and shutdowns", r.Name, limit)
	case !dead && n >= minLimit:
		s.notef("%s has %s and drops messages that come back more often: redeliver rewrites a message, to %s, when it has come back %d times. If it cannot do that for hours, messages can be lost", r.Name, limit, s.layout.Retry(), layout.MaxReturns)
	case !dead && keyed && exchange.Value != nil:
		s.Problems.Add("queue "+r.Name, limit, fmt.Sprintf("drops a message that comes back more often: its dead letters go to queue %s, which does not exist. Declare that", target))
	case !dead:
		s.Problems.Add("queue "+r.Name, limit, fmt.Sprintf(
			`drops a message that comes back more often, because the queue has no dead-letter exchange. Give it one, by a policy {"dead-letter-exchange":"","dead-letter-routing-key":"%s"}, or a limit of at least %d%s`, s.layout.DLQ(), minLimit, known))
	case exchange.Value == "" && target == s.layout.DLQ() && n >= layout.OwnDeliveryLimit:
	case exchange.Value == "" && target == s.layout.DLQ():
		s.notef("%s has %s: messages that come back more often, also after lost connections and shutdowns, are moved by the broker to %s before redeliver decides, without a reason", r.Name, limit, target)
	default:
		s.notef("%s has %s: messages that come back more often, also after lost connections and shutdowns, are dead-lettered by the broker to %s, not to %s", r.Name, limit, deadLetterTarget(r), s.layout.DLQ())
	}
	return nil
}

// deadLetterTarget describes where a queue's dead letters go, or returns "".
func deadLetterTarget(r management.QueueSettings) string {
	exchange, ok := r.Preferred("dead-letter-exchange")
	key, keyed := r.Preferred("dead-letter-routing-key")
	switch {
	case !ok:
		return ""
	case exchange.Value == "" && keyed:
		return fmt.Sprintf("queue %s", key.Value)
	case exchange.Value == "":
		return "the queue of their routing key" // back into this queue
	case keyed:
		return fmt.Sprintf("exchange %q with routing key %q", exchange.Value, key.Value)
	default:
		return fmt.Sprintf("exchange %q", exchange.Value)
	}
}

// noteBounds notes other settings that remove messages before redeliver sees them.
func (s *Survey) noteBounds(r management.QueueSettings) {
	gone := "dropped"
	if to := deadLetterTarget(r); to != "" {
		gone = "dead-lettered to " + to
	}
	if v, ok := r.Lowest("message-ttl"); ok {
		d, _ := v.Duration()
		s.notef("%s has %s: messages that wait there for %s are %s by the broker, and redeliver does not see them; retries are not affected", r.Name, v, d, gone)
	}
	for _, key := range []string{"max-length", "max-length-bytes"} {
		v, ok := r.Lowest(key)
		if !ok {
			continue
		}
		overflow := "drop-head"
		if all := r.Settings("overflow"); len(all) > 0 {
			overflow = fmt.Sprint(all[0].Value)
			if r.Type == amqp091.QueueTypeQuorum { // quorum queues prefer the policy
				overflow = fmt.Sprint(all[len(all)-1].Value)
			}
		}
		if strings.HasPrefix(overflow, layout.RejectPublish) {
			s.notef("%s has %s: when it is full, publishers are refused; retries are not affected", r.Name, v)
		} else {
			s.notef("%s has %s: when it is full, its oldest messages are %s, and redeliver does not see them; retries are not affected", r.Name, v, gone)
		}
	}
	if v, ok := r.Lowest("expires"); ok {
		d, _ := v.Duration()
		s.notef("%s has %s: after %s without a consumer the broker deletes it and its messages", r.Name, v, d)
	}
}

// checkConsumerTimeout refuses a queue whose own timeout is shorter than Config.ConsumerTimeout, because messages
// would be returned too late.
func (s *Survey) checkConsumerTimeout(r management.QueueSettings) {
	v, ok := r.Lowest("consumer-timeout")
	if !ok {
		return
	}
	if d, ok := v.Duration(); ok && d < s.broker.ConsumerTimeout {
		s.Problems.Add("queue "+r.Name, v, fmt.Sprintf("must not be shorter than ConsumerTimeout, which is %s: set ConsumerTimeout to %s", s.broker.ConsumerTimeout, d))
	}
}

// checkOwn checks one of redeliver's queues.
func (s *Survey) checkOwn(q layout.Queue, r management.QueueSettings) {
	if there, ok := s.Queues[q.Name]; ok {
		s.checkArguments(q, there)
		s.noteStuck(q, there)
	}
	for _, p := range r.Policies {
		for _, key := range slices.Sorted(maps.Keys(p.Definition)) {
			v := management.Setting{Key: key, Value: p.Definition[key], By: p.String()}
			if p.IsOperator() && isLength(key) && refusesWhenFull(r) {
				s.notef("%s has %s, which the service's operator sets: a full queue refuses messages, and redeliver pauses until it takes them", q.Name, v)
				continue
			}
			if why := forbiddenReason(q, v); why != "" {
				s.Problems.Add("queue "+q.Name, v, why+". Leave redeliver's queues out of its pattern "+p.Pattern)
			}
		}
	}
	if q.Kind == layout.RetryQueue || q.Kind == layout.SuspectQueue || q.Kind == layout.PlaceQueue {
		s.checkConsumerTimeout(r)
	}
}

func isLength(key string) bool { return key == "max-length" || key == "max-length-bytes" }

// refusesWhenFull reports whether a queue refuses messages when it is full, and drops none.
func refusesWhenFull(r management.QueueSettings) bool {
	all := r.Settings("overflow")
	return len(all) > 0 && !slices.ContainsFunc(all, func(v management.Setting) bool { return v.Value != layout.RejectPublish })
}

// forbiddenReason returns why a policy must not set v on one of redeliver's queues, or "". Dead-letter settings are
// harmless, because the argument takes precedence.
func forbiddenReason(q layout.Queue, v management.Setting) string {
	n, _ := v.Number()
	d, _ := v.Duration()
	switch v.Key {
	case "max-length", "max-length-bytes":
		return "must not be limited: a full queue would stop everything behind it"
	case "message-ttl":
		if q.Kind == layout.DelayQueue && d >= q.Level || q.Kind == layout.DeadQueue { // the retention of dead letters is the user's choice
			return ""
		}
		return "must not have another TTL: messages would leave it before their time"
	case "expires":
		return "must not expire: the broker would delete it with its messages"
	case "delivery-limit":
		if own, ok := q.Args[layout.DeliveryLimit].(int32); !ok || n < 0 || n >= int64(own) {
			return "" // a delay queue has no limit of its own
		}
		return "must not have a lower limit than its own: deliveries count lost connections and scans, too"
	case "overflow":
		if q.Kind == layout.DeadQueue || q.Kind == layout.PlaceQueue || q.Kind == layout.PauseQueue || v.Value == layout.RejectPublish {
			return ""
		}
		return "must be " + layout.RejectPublish + ", or dead-lettering is not at least once"
	default:
		return ""
	}
}

// checkArguments refuses one of redeliver's queues that exists with other arguments. RabbitMQ itself compares only
// some of them at a declaration.
func (s *Survey) checkArguments(q layout.Queue, there management.QueueInfo) {
	field := "queue " + q.Name
	var differ []string
	for _, key := range slices.Sorted(maps.Keys(q.Args)) {
		have, ok := there.Arguments[key]
		switch {
		case key == amqp091.QueueOverflowArg && q.IsWished(key) && have != q.Args[key]:
			s.notef("%s lacks %s=%s, with which redeliver declares it now: a policy with a max-length would drop its messages. Delete it when it is empty; redeliver declares it again",
				q.Name, key, wire.ValueText(q.Args[key]))
		case !ok:
			differ = append(differ, fmt.Sprintf("%s is missing and must be %s", key, wire.ValueText(q.Args[key])))
		case fmt.Sprint(have) != fmt.Sprint(q.Args[key]):
			differ = append(differ, fmt.Sprintf("%s is %s and must be %s", key, wire.ValueText(have), wire.ValueText(q.Args[key])))
		}
	}
	for _, key := range []string{
		"x-consumer-timeout", "x-delayed-retry-type", layout.DeadLetterTo, "x-expires", "x-max-length", "x-max-length-bytes", amqp091.QueueMessageTTLArg, amqp091.SingleActiveConsumerArg,
	} {
		have, ok := there.Arguments[key]
		kept := q.Kind == layout.DeadQueue && key == amqp091.QueueMessageTTLArg // without DLQ.Retention any existing value is accepted
		if _, ours := q.Args[key]; ok && !ours && !kept {
			differ = append(differ, fmt.Sprintf("%s is %s and must not be set", key, wire.ValueText(have)))
		}
	}
	if !there.Durable {
		differ = append(differ, "it is not durable")
	}
	if len(differ) > 0 {
		s.refused[q.Name] = true
		s.Problems.Add(field, "declared otherwise", strings.Join(differ, ", ")+". Delete it when it is empty, or set other Names")
	}
}

// noteStuck notes messages whose level is over but that their target does not accept. They are not among the ready
// ones.
func (s *Survey) noteStuck(q layout.Queue, there management.QueueInfo) {
	if there.State != "" && there.State != "running" {
		s.notef("%s is %s", q.Name, there.State)
	}
	over := there.Stuck()
	if q.Kind != layout.DelayQueue || over == 0 {
		return
	}
	why := s.layout.Retry() + " does not take them, or the broker is behind with them"
	if _, ok := s.Queues[s.layout.Retry()]; !ok {
		why = s.layout.Retry() + " does not exist"
	}
	blocked := ""
	if over >= deadLetterPrefetch {
		blocked = "; all that wait on this queue wait behind them"
	}
	s.notef("%s: %d messages have waited for more than %s and are stuck: %s%s. They move within 3 minutes after it can", q.Name, over, delayqueue.LevelName(q.Level), why, blocked)
}

func (s *Survey) notef(format string, args ...any) {
	s.Notes = append(s.Notes, fmt.Sprintf(format, args...))
}
