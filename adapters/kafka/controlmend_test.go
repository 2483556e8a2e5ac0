package kafka

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/IBM/sarama"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/deadletter"
	"github.com/redeliver/redeliver/delayqueue"
)

type sinkOf func(redeliver.Event)

func (f sinkOf) Event(e redeliver.Event) { f(e) }

// offline is a reader that has no broker.
func offline(sink redeliver.Sink) *reader {
	cfg := Config{Group: "billing"}.withDefaults()
	cfg.Sink = sink
	return newReader(context.Background(), &Client{cfg: cfg, turn: delayqueue.NewTurn()}, &layout{
		origin: "orders", group: "billing", policy: cfg.policy("orders"),
		control: ownTopic{name: "orders.billing.control", exists: true},
	}, restless{})
}

// commands has a control hold commands, each given a second after the one before it.
func commands(t *testing.T, c *control, all ...deadletter.Command) {
	t.Helper()
	for i, cmd := range all {
		cmd.Who, cmd.Why = "ann", "test"
		cmd, err := deadletter.NewCommand(cmd)
		if err != nil {
			t.Fatal(err)
		}
		cmd.Created = cmd.Created.Add(time.Duration(i-len(all)) * time.Second)
		c.book.commands = append(c.book.commands, cmd)
	}
	c.stand(time.Now())
}

var (
	cancelAll  = deadletter.Command{Kind: deadletter.CancelWaiting, Everything: true}
	release10m = deadletter.Command{Kind: deadletter.ReleaseWaiting, Filter: deadletter.WaitingFilter{Levels: []string{"10m"}}}
)

// Who does not know what is settled would copy it once more.
func TestNobodyWalksWhoDoesNotKnowWhatIsSettled(t *testing.T) {
	t.Parallel()
	r := offline(nil)
	c := r.control
	life, end := context.WithCancel(t.Context())
	end()
	c.life = life // nobody connects
	commands(t, c, cancelAll)
	for name, set := range map[string]func(*ahead){
		"nothing is known": func(*ahead) {},
		"it drains":        func(a *ahead) { a.known = true; a.leave(time.Now()) },
	} {
		a, _ := watcher(r)
		a.over = t.Context()
		set(a)
		c.aheads = map[*ahead]struct{}{a: {}}
		c.staff()
		c.mu.Lock()
		stop := a.stop
		c.mu.Unlock()
		if stop != nil {
			t.Errorf("%s: it has a walker", name)
			stop()
			a.walking.Wait()
		}
	}
}

func TestWhatIsOnItsWayIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		last, cancel := outlive(ctx, 5*time.Second)
		defer cancel()
		<-time.After(time.Hour)
		if last.Err() != nil {
			t.Fatal("given up while the partition is ours")
		}
		end()
		began := time.Now()
		<-last.Done()
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("given up after %s", took)
		}
	})
}

func TestANoteThatFailsIsTriedAgainAfterAPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := &walker{c: offline(sinkOf(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok {
				told = append(told, c.Change)
			}
		})).control}
		last, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		tries := 0
		err := w.insist(last, func(context.Context) error {
			if tries++; tries > 1000 {
				return nil
			}
			return errClosed
		})
		if !errors.Is(err, errClosed) || tries < 5 || tries > 12 {
			t.Errorf("%d tries in ten seconds: %v", tries, err)
		}
		if err := w.insist(t.Context(), func(context.Context) error { tries++; return map[bool]error{true: errClosed}[tries%2 == 0] }); err != nil {
			t.Error(err)
		}
		if len(told) == 0 || told[0] != "commands are not obeyed" {
			t.Errorf("told: %q", told)
		}
	})
}

// On the way back nobody knows from which level a message came.
func TestALaterReleaseOfALevelCountsOnTheWayBack(t *testing.T) {
	t.Parallel()
	e := &entry{state: &redeliver.State{ID: "7", Attempts: 1, LastFailed: time.Now().Add(-time.Hour)}, written: time.Now().UnixMilli()}
	e.rec.ConsumerMessage = &sarama.ConsumerMessage{}
	others := release10m
	others.Filter.Filter.IDs = []string{"8"}
	for name, at := range map[string]struct {
		given     []deadletter.Command
		level     time.Duration
		cancelled bool
	}{
		"released after it was cancelled":            {[]deadletter.Command{cancelAll, release10m}, 0, false},
		"the same, on the level":                     {[]deadletter.Command{cancelAll, release10m}, 10 * time.Minute, false},
		"the same, on another level":                 {[]deadletter.Command{cancelAll, release10m}, time.Minute, true},
		"cancelled after it was released":            {[]deadletter.Command{release10m, cancelAll}, 0, true},
		"others were released after it was":          {[]deadletter.Command{cancelAll, others}, 0, true},
		"cancelled, released, and cancelled at last": {[]deadletter.Command{cancelAll, release10m, cancelAll}, 0, true},
	} {
		c := offline(nil).control
		commands(t, c, at.given...)
		if got := c.cancelled(e, at.level) != nil; got != at.cancelled {
			t.Errorf("%s: cancelled %v", name, got)
		}
	}
}

func TestNobodyIsToldUnderTheLock(t *testing.T) {
	t.Parallel()
	var r *reader
	told := 0
	r = offline(sinkOf(func(redeliver.Event) {
		if told++; !r.control.mu.TryLock() {
			t.Error("the lock is held")
			return
		}
		r.control.mu.Unlock()
	}))
	commands(t, r.control, cancelAll)
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// A broker that takes connections and never answers must not hold up the lanes, and all
// walkers wait for one try.
func TestWalkersConnectBesideTheLock(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 100)
	go func() {
		for {
			conn, err := deaf.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	r := offline(nil)
	r.client.cfg.Brokers = []string{deaf.Addr().String()}
	sc := sarama.NewConfig()
	sc.Net.DialTimeout, sc.Net.ReadTimeout = time.Hour, time.Hour
	r.client.cfg.Sarama = sc
	c := r.control
	life, end := context.WithCancel(context.Background())
	c.life = life
	answers := make(chan error, 2)
	go func() { _, err := c.connection(t.Context()); answers <- err }()
	first := <-accepted
	c.mu.Lock()
	try := c.dials
	c.mu.Unlock()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	go func() { _, err := c.connection(ended); answers <- err }()
	select {
	case err := <-answers:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("the second walker: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the second walker waits although it has ended")
	}
	c.mu.Lock()
	if try == nil || c.dials != try {
		t.Error("the second walker tries by itself")
	}
	c.mu.Unlock()
	end()
	if err := <-answers; err == nil {
		t.Error("the first walker is connected")
	}
	c.work.Wait()
	_ = deaf.Close()
	_ = first.Close()
	for conn := range accepted {
		_ = conn.Close()
	}
}

// What is committed may be from another life of the topic, and a lane that has ended
// knows nothing.
func TestNothingIsForgottenAboveTheMarkOfItsLane(t *testing.T) {
	t.Parallel()
	r := offline(nil)
	a, _ := watcher(r)
	r.levels = map[string]waitLevel{a.topic: {level: time.Hour}}
	if _, ok := a.below(9); ok {
		t.Error("no lane reads it")
	}
	r.owned.begin(a.topic, 0, 5)
	for committed, want := range map[int64]int64{9: 5, 5: 5, 3: 3, -1: -1} {
		if got, ok := a.below(committed); got != want || !ok {
			t.Errorf("committed %d: below %d, %v", committed, got, ok)
		}
	}
	r.own(a.topic, 0)()
	if _, ok := a.below(9); ok {
		t.Error("its lane has ended")
	}
}

// The walker ends while its lane drains, not after that.
func TestTheWalkerStopsWhenItsLaneDrains(t *testing.T) {
	t.Parallel()
	r := offline(nil)
	a, _ := watcher(r)
	stopped := make(chan struct{})
	a.stop = func() { close(stopped) }
	s := &still{messages: make(chan *sarama.ConsumerMessage), ctx: context.Background(), all: make(chan struct{}, 1)}
	close(s.messages) // it is revoked
	l := newLane(r, s, s)
	l.watch(a)
	before := time.Now()
	l.run()
	select {
	case <-stopped:
	default:
		t.Fatal("the walker goes on")
	}
	if most := time.Now().Add(r.client.cfg.DrainTimeout); a.until.Before(before) || a.until.After(most) {
		t.Errorf("its deadline is %s", a.until)
	}
}

// silent takes no record.
type silent struct{ sarama.AsyncProducer }

func (silent) Input() chan<- *sarama.ProducerMessage { return nil }

// What is left to note has the time that the drain has left.
func TestADrainAndWhatIsNotedAfterItShareADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := offline(nil)
		r.client.producer = &producer{async: silent{}, most: 1 << 20}
		c := r.control
		commands(t, c, cancelAll)
		a, _ := watcher(r)
		c.tally(c.book.commands[0].ID, a.at, func(p *progress) { p.Cancelled++ })
		began := time.Now()
		a.leave(began.Add(2 * time.Second))
		c.end(a)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
		if len(c.dirty) != 1 {
			t.Error("what could not be noted is forgotten")
		}
	})
}

func TestWhatTheGroupSaysBesideItsSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []redeliver.SubscriptionChanged
		r := offline(sinkOf(func(e redeliver.Event) {
			if c, ok := e.(redeliver.SubscriptionChanged); ok {
				told = append(told, c)
			}
		}))
		say := func(topic string, err error) {
			r.heard(&sarama.ConsumerError{Topic: topic, Partition: 3, Err: err})
		}
		for _, err := range []error{sarama.ErrRebalanceInProgress, sarama.ErrIllegalGeneration, sarama.ErrNotLeaderForPartition, net.ErrClosed} {
			say("a", err)
		}
		r.heard(sarama.ErrTopicAuthorizationFailed) // of nothing
		if len(told) > 0 {
			t.Fatalf("told: %+v", told)
		}
		for range 3 {
			say("a", sarama.ErrTopicAuthorizationFailed)
			say("b", sarama.ErrTopicAuthorizationFailed)
			say("a", sarama.ErrOffsetOutOfRange)
			say("a", sarama.ErrGroupAuthorizationFailed)
		}
		if len(told) != 4 || !errors.Is(told[0].Err, sarama.ErrTopicAuthorizationFailed) || told[0].Change != "a partition is not read" ||
			!strings.Contains(told[0].Detail, "a/3") || !strings.Contains(told[0].Detail, "grant Read") || strings.Contains(told[2].Detail, "grant") {
			t.Errorf("told: %+v", told)
		}
		<-time.After(unreadAgain)
		say("a", sarama.ErrTopicAuthorizationFailed)
		if len(told) != 5 {
			t.Errorf("told: %+v", told)
		}
	})
}

// broken is a cluster that does not say where a partition begins.
type broken struct{ sarama.Client }

func (broken) GetOffset(string, int32, int64) (int64, error) { return 0, sarama.ErrOutOfBrokers }

// unplaced is a partition for which nothing was committed.
type unplaced struct{ *still }

func (unplaced) InitialOffset() int64 { return sarama.OffsetOldest }

func TestWhyAPartitionIsNotReadIsTold(t *testing.T) {
	t.Parallel()
	var told []redeliver.SubscriptionChanged
	r := offline(sinkOf(func(e redeliver.Event) {
		if c, ok := e.(redeliver.SubscriptionChanged); ok {
			told = append(told, c)
		}
	}))
	r.client.admin.client = broken{}
	s := &still{ctx: context.Background()}
	err := (&session{reader: r}).ConsumeClaim(s, unplaced{s})
	if !errors.Is(err, sarama.ErrOutOfBrokers) || len(told) != 1 || !errors.Is(told[0].Err, sarama.ErrOutOfBrokers) || !strings.Contains(told[0].Detail, "orders/0") {
		t.Errorf("told: %+v; %v", told, err)
	}
}
