package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
	"github.com/redeliver/redeliver/internal/wirename"
)

// maxUnconfirmed bounds the unconfirmed publishes of one sender. More of them, or more channels, were slower.
const maxUnconfirmed = 1024

// Sender publishes on a channel of its own. A publish succeeds if it is confirmed and not returned. It is safe for
// concurrent use.
type Sender struct {
	link      *Link
	slots     chan struct{}  // unconfirmed publishes
	writeLock chan struct{}  // held while a frame is written; a channel, so that a context can end the wait
	channel   *senderChannel // guarded by writeLock
	isolated  *Sender        // see sendAlone; nil in the isolated sender
}

// senderChannel is one channel of a sender with its unconfirmed publishes.
type senderChannel struct {
	ch      *amqp091.Channel
	closed  chan *amqp091.Error // why the channel was closed; buffered
	returns chan amqp091.Return // has room for all, so that it never blocks the reader

	mu       sync.Mutex
	open     map[identity]int  // unconfirmed publishes
	returned map[identity]bool // at least one of them was returned
	cause    error
}

// identity matches a return with its publish. If several unconfirmed publishes share one, a return counts for all of
// them. They are published again, because a duplicate is better than a loss.
type identity struct{ exchange, key, id string }

func identityOf(exchange, key string, headers amqp091.Table, messageID string) identity {
	i := identity{exchange: exchange, key: key, id: messageID}
	for _, name := range []string{redeliver.HeaderID, wirename.WatermillUUID} {
		if id, ok := headers[name].(string); ok {
			i.id = id
			break
		}
	}
	return i
}

func NewSender(l *Link) *Sender {
	return &Sender{
		link: l, slots: make(chan struct{}, maxUnconfirmed), writeLock: make(chan struct{}, 1), isolated: newIsolated(l),
	}
}

func newIsolated(l *Link) *Sender {
	return &Sender{link: l, slots: make(chan struct{}, 1), writeLock: make(chan struct{}, 1)}
}

// close closes the channel of a sender that is no longer used.
func (s *Sender) close() {
	if s.channel != nil {
		_ = s.channel.ch.Close() // the broker may have closed it
	}
}

// FrameMax returns the negotiated frame size of the connection, or 0 for no limit.
func (s *Sender) FrameMax() int { return s.link.FrameMax() }

// User returns the name with which the connection logged in, or "" if the login has none.
func (s *Sender) User() string { return s.link.user() }

// pending is a publish that waits for its confirm.
type pending struct {
	s       *Sender
	channel *senderChannel
	id      identity
	done    *amqp091.DeferredConfirmation
}

// Send publishes a message and returns when it is confirmed, refused, or ctx ends. In the last case the message may
// still arrive. If the broker refuses the message as it is, err is [driver.ErrRefused].
func (s *Sender) Send(ctx context.Context, exchange, key string, m amqp091.Publishing) error {
	return s.SendAwaiting(ctx, exchange, key, m, nil)
}

// SendAwaiting is Send, but if ctx ends before the broker's answer, it calls unanswered and waits for the answer. It
// calls it at most once.
func (s *Sender) SendAwaiting(ctx context.Context, exchange, key string, m amqp091.Publishing, unanswered func(error)) error {
	before := s.link.current()
	err := s.sendOnce(ctx, exchange, key, m, unanswered)
	return s.sendAgain(ctx, before, err, exchange, key, m, unanswered)
}

// sendAgain repeats a publish that failed with err on the connection before, if another message on its channel may be
// the cause, or if a new login may help.
func (s *Sender) sendAgain(ctx context.Context, before *amqp091.Connection, err error, exchange, key string, m amqp091.Publishing, unanswered func(error)) error {
	switch {
	case IsRefusal(err) || isOfOtherExchange(err, exchange):
		err = s.sendAlone(ctx, exchange, key, m, unanswered)
	case errors.Is(err, errNacked) && ctx.Err() == nil:
		err = s.sendOnNewChannel(ctx, err, exchange, key, m, unanswered)
	}
	return s.link.again(ctx, before, err, func(l *Link) error {
		through := s
		if l != s.link {
			through = newIsolated(l)
			defer through.close()
		}
		return through.sendOnce(ctx, exchange, key, m, unanswered)
	})
}

func (s *Sender) sendOnce(ctx context.Context, exchange, key string, m amqp091.Publishing, unanswered func(error)) error {
	if err := s.reserve(ctx); err != nil {
		return err
	}
	p, err := s.start(ctx, exchange, key, m)
	if err != nil {
		return err
	}
	return p.wait(ctx, unanswered)
}

// Outgoing is a message and where it goes.
type Outgoing struct {
	amqp091.Publishing
	Exchange, Key string
}

// SendAll publishes n messages, many at once, and returns an error for each that was not confirmed, at its index. compose
// makes the ith message, perhaps twice. The errors are those of Send.
func (s *Sender) SendAll(ctx context.Context, n int, compose func(i int) (Outgoing, error)) []error {
	errs, sent := make([]error, n), make([]*pending, n)
	before := s.link.current()
	settle := func() {
		for i, p := range sent {
			if p != nil {
				errs[i], sent[i] = p.wait(ctx, nil), nil
			}
		}
	}
	for i := range n {
		m, err := compose(i)
		if err == nil {
			err = context.Cause(ctx) // the rest would be written without a confirm
		}
		if err == nil && !s.tryReserve() {
			settle() // a holder of slots must not wait for one
			err = s.reserve(ctx)
		}
		if err == nil {
			sent[i], err = s.start(ctx, m.Exchange, m.Key, m.Publishing)
		}
		errs[i] = err
	}
	settle()
	for i, err := range errs {
		if ErrorCode(err) == 0 && !errors.Is(err, errNacked) {
			continue
		}
		m, failed := compose(i)
		if errs[i] = failed; failed == nil {
			errs[i] = s.sendAgain(ctx, before, err, m.Exchange, m.Key, m.Publishing, nil)
		}
	}
	return errs
}

// sendAlone repeats a publish whose channel the broker closed, perhaps because of another message on it. Nothing else
// is on the channel now, so a refusal concerns this message.
func (s *Sender) sendAlone(ctx context.Context, exchange, key string, m amqp091.Publishing, unanswered func(error)) error {
	err := s.isolated.sendOnce(ctx, exchange, key, m, unanswered)
	if IsRefusal(err) {
		err = fmt.Errorf("%w: %w", driver.ErrRefused, err)
	}
	return err
}

// sendOnNewChannel repeats a publish that a full queue has refused with err. A channel learns that the queue takes messages
// again when some have left it, but not when its limit was raised. A new channel asks. One at a time does.
func (s *Sender) sendOnNewChannel(ctx context.Context, err error, exchange, key string, m amqp091.Publishing, unanswered func(error)) error {
	select {
	case s.isolated.slots <- struct{}{}:
		defer func() { <-s.isolated.slots }()
	case <-ctx.Done():
		return err
	}
	once := newIsolated(s.link)
	defer once.close()
	return once.sendOnce(ctx, exchange, key, m, unanswered)
}

// IsRefusal reports whether the broker closed a channel because it refuses a message as it is, such as one that is
// too large.
func IsRefusal(err error) bool {
	return ErrorCode(err) == amqp091.ContentTooLarge || ErrorCode(err) == amqp091.PreconditionFailed
}

// namedExchange matches the exchange in a refusal to publish.
var namedExchange = regexp.MustCompile(`exchange '(.*)' in vhost`)

// isOfOtherExchange reports whether the broker closed a channel because of a message to another exchange, which is
// missing or forbidden.
func isOfOtherExchange(err error, exchange string) bool {
	refused, ok := errors.AsType[*amqp091.Error](err)
	if !ok || refused.Code != amqp091.NotFound && refused.Code != amqp091.AccessRefused {
		return false
	}
	found := namedExchange.FindStringSubmatch(refused.Reason)
	return found != nil && found[1] != cmp.Or(exchange, "amq.default")
}

var maxSize = regexp.MustCompile(`larger than configured max size (\d+)`)

// MaxBodyOf returns the largest body that the broker accepts, read from its refusal. If the refusal does not say, it
// returns a size that hardly any broker refuses.
func MaxBodyOf(err error) int {
	if found := maxSize.FindStringSubmatch(fmt.Sprint(err)); found != nil {
		if n, err := strconv.Atoi(found[1]); err == nil && n > 0 {
			return n
		}
	}
	return 64 << 10
}

// reserve waits for a slot, unless ctx has ended. A holder of slots must not call it, because all slots could be held
// by such callers.
func (s *Sender) reserve(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("amqp: nothing was published: %w", context.Cause(ctx))
	}
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("amqp: %d publishes wait for a confirm: %w", cap(s.slots), ctx.Err())
	}
}

// tryReserve is reserve without waiting, for holders of slots.
func (s *Sender) tryReserve() bool {
	select {
	case s.slots <- struct{}{}:
		return true
	default:
		return false
	}
}

// start publishes a message in a reserved slot. wait returns its result.
func (s *Sender) start(ctx context.Context, exchange, key string, m amqp091.Publishing) (*pending, error) {
	p, err := s.publish(ctx, exchange, key, m)
	if err != nil {
		<-s.slots
		return nil, publishError(exchange, key, err)
	}
	return p, nil
}

func (s *Sender) publish(ctx context.Context, exchange, key string, m amqp091.Publishing) (*pending, error) {
	if s.link.Blocked.Closed() {
		select {
		case <-s.link.Blocked.Opened():
		case <-ctx.Done():
			return nil, fmt.Errorf("the broker is in alarm (memory or disk) and takes no messages: %w", ctx.Err())
		}
	}
	select {
	case s.writeLock <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.writeLock }()
	if s.channel == nil || s.channel.ch.IsClosed() {
		gen, err := s.openChannel(ctx)
		if err != nil {
			return nil, err
		}
		s.channel = gen
	}
	p := &pending{s: s, channel: s.channel, id: identityOf(exchange, key, m.Headers, m.MessageId)}
	p.channel.add(p.id)
	done, err := p.channel.ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		p.channel.remove(p.id)
		return nil, p.channel.closeReason(err)
	}
	p.done = done
	return p, nil
}

func (s *Sender) openChannel(ctx context.Context) (*senderChannel, error) {
	ch, err := s.link.Channel(ctx)
	if err != nil {
		return nil, err
	}
	g := &senderChannel{
		ch: ch, closed: ch.NotifyClose(make(chan *amqp091.Error, 1)), returns: ch.NotifyReturn(make(chan amqp091.Return, maxUnconfirmed)),
		open: make(map[identity]int), returned: make(map[identity]bool),
	}
	if err := ch.Confirm(false); err != nil {
		return nil, fmt.Errorf("asking for confirms: %w", err)
	}
	return g, nil
}

// wait returns nil when a queue has the message. If ctx ends before the answer, it calls unanswered and waits on, or
// returns an error if unanswered is nil.
func (p *pending) wait(ctx context.Context, unanswered func(error)) error {
	select {
	case <-p.done.Done():
		return p.outcome()
	case <-ctx.Done():
	}
	err := fmt.Errorf("amqp: no confirm for a message to %s, it may or may not be there: %w", PlaceText(p.id.exchange, p.id.key), ctx.Err())
	if unanswered == nil {
		go func() { // the slot is free when the broker answers or the channel ends
			<-p.done.Done()
			_ = p.outcome()
		}()
		return err
	}
	unanswered(err)
	<-p.done.Done()
	return p.outcome()
}

// outcome returns the result of an answered publish.
func (p *pending) outcome() error {
	returned := p.complete()
	switch {
	case returned:
		return fmt.Errorf("amqp: %w of %s: declare or bind it", ErrNoQueue, PlaceText(p.id.exchange, p.id.key))
	case !p.done.Acked():
		return publishError(p.id.exchange, p.id.key, p.channel.closeReason(errNacked))
	default:
		return nil
	}
}

var (
	errNacked  = errors.New("the broker refused the message (the queue is full, or has no leader)")
	ErrNoQueue = errors.New("no queue takes messages")
)

// complete removes the publish from the channel's unconfirmed ones. A return comes before its confirm, so it is in
// the channel by now.
func (p *pending) complete() (returned bool) {
	g := p.channel
	g.mu.Lock()
	for more := true; more; {
		select {
		case r, ok := <-g.returns:
			if !ok {
				more = false
				break
			}
			g.returned[identityOf(r.Exchange, r.RoutingKey, r.Headers, r.MessageId)] = true
		default:
			more = false
		}
	}
	returned = g.returned[p.id]
	g.removeLocked(p.id)
	g.mu.Unlock()
	<-p.s.slots
	return returned
}

func (g *senderChannel) add(id identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[id]++
}

func (g *senderChannel) remove(id identity) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeLocked(id)
}

// removeLocked removes one publish.
func (g *senderChannel) removeLocked(id identity) {
	if g.open[id]--; g.open[id] <= 0 {
		delete(g.open, id)
		delete(g.returned, id)
	}
}

// closeReason returns err, or the reason why the channel was closed meanwhile.
func (g *senderChannel) closeReason(err error) error {
	if !g.ch.IsClosed() {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause == nil {
		// The channel counts as closed shortly before the reason arrives.
		select {
		case e, ok := <-g.closed:
			g.cause = errors.New("the connection is gone")
			if ok && e != nil {
				g.cause = e
			}
		case <-time.After(time.Second):
			return err
		}
	}
	return g.cause
}

func publishError(exchange, key string, err error) error {
	return fmt.Errorf("amqp: publishing to %s: %w", PlaceText(exchange, key), DescribeDenial(MethodPublish, ExchangeText(exchange, key), err))
}

// ExchangeText describes what the right to publish is about. On the default exchange that is the same for all queues.
func ExchangeText(exchange, key string) string {
	if exchange == "" {
		return "exchange amq.default"
	}
	return PlaceText(exchange, key)
}

// PlaceText describes where a message is published.
func PlaceText(exchange, key string) string {
	if exchange == "" {
		return "queue " + key
	}
	return fmt.Sprintf("exchange %s with routing key %q", exchange, key)
}
