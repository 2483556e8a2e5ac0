package loss

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/integration/consumer"
)

// state is what a consumer is doing when it dies.
type state string

const (
	running    state = "running"
	publishing state = "publishing"
	waiting    state = "waiting"
	committing state = "committing"
	ending     state = "ending"   // not killed: it gets SIGTERM, and its handlers outlast the drain timeout
	anywhere   state = "anywhere" // killed from outside, in an unknown state
)

// states are the states that every run must cover.
var states = []state{running, publishing, waiting, committing, ending}

// order tells a consumer to die when it is in the state for the nth time from now. delay is for publishing: how long the
// consumer delays the write. With 0 it writes, and dies before it reads the answer.
type order struct {
	state state
	nth   int
	delay time.Duration
}

func (o order) String() string { return fmt.Sprintf("%s %d %s", o.state, o.nth, o.delay) }

func parseOrder(text string) (order, error) {
	f := strings.Fields(text)
	if len(f) != 3 {
		return order{}, fmt.Errorf("%q is not an order", text)
	}
	nth, err := strconv.Atoi(f[1])
	if err != nil {
		return order{}, err
	}
	delay, err := time.ParseDuration(f[2])
	return order{state(f[0]), nth, delay}, err
}

// run is one attempt of one message.
type run struct {
	id      string
	attempt int
}

// watcher watches its process and kills it in the ordered state. The handler, a sink and the broker's client report to it.
type watcher struct {
	journal *journal

	mu        sync.Mutex
	order     order
	left      int               // how often the state still has to occur; the order is valid while it is above 0
	stopping  chan struct{}     // closed shortly before SIGTERM: from then on, no message is taken and no handler answers
	ids       map[string]string // by redeliver's id
	running   map[run]struct{}
	sending   map[run]struct{}  // writes handed to the client and not confirmed, by the failed attempt
	acked     []run             // since the last commit left
	waiting   map[run]time.Time // waiting messages that were read and have not run, by due time
	protected map[run]struct{}  // suspects in hand; see protect
}

// orderCanceled is the text in the journal for an order whose state did not occur. Nobody dies of it.
const orderCanceled = "order canceled"

func newWatcher(j *journal) *watcher {
	return &watcher{
		journal: j, stopping: make(chan struct{}), ids: make(map[string]string), running: make(map[run]struct{}),
		sending: make(map[run]struct{}), waiting: make(map[run]time.Time), protected: make(map[run]struct{}),
	}
}

// setOrder sets an order. An order with an nth of 0 cancels the previous one.
func (s *watcher) setOrder(o order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order, s.left = o, o.nth
	if o.nth == 0 {
		s.journal.write(line{kind: changed, at: time.Now(), text: orderCanceled})
	}
}

// readOrder sets an order that the parent sent.
func (s *watcher) readOrder(text string) error {
	o, err := parseOrder(text)
	if err == nil {
		s.setOrder(o)
	}
	return err
}

// reachedLocked counts an occurrence of the state, and reports whether it is time to die.
func (s *watcher) reachedLocked(st state) bool {
	if s.left == 0 || s.order.state != st || len(s.protected) > 0 {
		return false
	}
	s.left--
	return s.left == 0
}

// die kills the process. interrupted is a run that must happen again because of it.
func (s *watcher) die(interrupted run, detail string) {
	s.journal.write(line{kind: killed, id: interrupted.id, attempt: interrupted.attempt, at: time.Now(), text: string(s.order.state) + " " + detail})
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // SIGKILL
	}
	select {} // death takes a moment
}

// setID records the message that redeliver's id identifies.
func (s *watcher) setID(redeliverID, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids[redeliverID] = id
}

// The handler calls enter before its work, mayContinue during it, and leave after it.
func (s *watcher) enter(r run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[r] = struct{}{}
	delete(s.waiting, r)
}

// mayContinue returns false if the handler must give up, because its context has ended.
func (s *watcher) mayContinue(ctx context.Context, r run) bool {
	s.mu.Lock()
	_, ours := s.running[r] // see lost
	ours = ours && ctx.Err() == nil
	if ours && s.reachedLocked(running) {
		s.die(r, fmt.Sprintf("with %d handlers", len(s.running)))
	}
	if ours && s.reachedLocked(ending) {
		s.end(r)
	}
	s.mu.Unlock()
	select {
	case <-s.stopping:
		<-ctx.Done()
		return false
	default:
		return true
	}
}

// end ends the process gracefully. This handler, and those that come to the same point, work longer than they may.
// Nobody takes the messages that the adapter has ready (see leavingSubscriber). Another process must run all of them, including r.
func (s *watcher) end(r run) {
	const delay = 400 * time.Millisecond // by then some messages are ready
	close(s.stopping)
	s.journal.write(line{kind: killed, id: r.id, attempt: r.attempt, at: time.Now(), text: fmt.Sprintf("%s with %d handlers", ending, len(s.running))})
	time.AfterFunc(delay, func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
			consumer.Logf("SIGTERM: %v", err)
		}
	})
}

func (s *watcher) leave(r run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, r)
}

// send handles a write before it leaves, and may delay it. gone is closed when its connection has ended, on a broker
// that then gives the messages of that connection to others (see lost). The process then dies at the next delayed
// write.
func (s *watcher) send(r run, where string, gone <-chan struct{}) {
	s.mu.Lock()
	s.sending[r] = struct{}{}
	delete(s.waiting, run{r.id, r.attempt + 1}) // a hop
	if s.order.delay == 0 || !s.reachedLocked(publishing) {
		s.mu.Unlock()
		return
	}
	o := s.order
	s.mu.Unlock()
	select {
	case <-time.After(o.delay): // the broker seems slow here
	case <-gone:
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ours := s.sending[r]
	select {
	case <-gone: // perhaps at the same time
		ours = false
	default:
	}
	switch {
	case s.order != o: // it was canceled meanwhile
		return
	case !ours, len(s.protected) > 0:
		s.left = 1
		return
	}
	s.die(r, fmt.Sprintf("to %s, unwritten for %s", where, o.delay))
}

// answer handles the broker's answer to writes, before the client reads it.
func (s *watcher) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.order.delay > 0 {
		return
	}
	for r := range s.sending {
		if s.reachedLocked(publishing) {
			s.die(r, "written, the answer unread")
		}
		return
	}
}

// commit handles acked messages before the client commits them.
func (s *watcher) commit() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.acked); n > 0 && s.reachedLocked(committing) {
		s.die(s.acked[n-1], fmt.Sprintf("with %d acked", n))
	}
	s.acked = s.acked[:0]
}

// protect handles a suspect that has already come back once, most likely because the suite killed the process in which
// it ran alone. A second crash would send it to the DLQ. So the process does not kill itself until the suspect is
// settled. Kills from outside ignore this.
func (s *watcher) protect(r run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.protected[r] = struct{}{}
}

// lost handles the end of a connection that delivered messages, on a broker that then gives its messages to others.
// Then the death of this process repeats no run of them.
func (s *watcher) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.running)
	clear(s.sending)
	clear(s.waiting)
	clear(s.protected)
}

// acking is commit for a client that knows which runs the next request settles.
func (s *watcher) acking(runs []run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(runs) > 0 && s.reachedLocked(committing) {
		s.die(runs[0], fmt.Sprintf("with %d acked", len(runs)))
	}
	for _, r := range runs {
		delete(s.protected, r)
	}
	s.acked = s.acked[:0]
}

// addWaiting handles a message that came from where messages wait.
func (s *watcher) addWaiting(r run, due time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[r] = due
}

// watch looks for the state without an event: a message waits, and nothing else happens.
func (s *watcher) watch() {
	for now := range time.Tick(2 * time.Millisecond) {
		s.mu.Lock()
		for r, due := range s.waiting {
			if !due.After(now) {
				delete(s.waiting, r) // due, or no longer in hand
				continue
			}
			if len(s.running) == 0 && len(s.sending) == 0 && due.Sub(now) > 50*time.Millisecond && s.reachedLocked(waiting) {
				s.die(r, fmt.Sprintf("for another %s with %d others", due.Sub(now).Round(time.Millisecond), len(s.waiting)-1))
			}
		}
		s.mu.Unlock()
	}
}

// Event implements [redeliver.Sink].
func (s *watcher) Event(e redeliver.Event) {
	switch e := e.(type) {
	case redeliver.Committed:
		s.mu.Lock()
		s.acked = append(s.acked, run{s.ids[e.State.ID], e.State.Attempt()})
		s.mu.Unlock()
	case redeliver.RetryScheduled:
		s.confirmed(e.State)
	case redeliver.DeadLettered:
		s.confirmed(e.State)
	case redeliver.Hopped:
		s.confirmed(e.State)
	case redeliver.Abandoned: // before or after the decision
		s.confirmed(e.State)
		e.State.Attempts++
		s.confirmed(e.State)
		s.journal.write(line{kind: changed, id: s.idOf(e.State.ID), attempt: e.State.Attempts, at: time.Now(), text: abandoned})
		consumer.Logf("abandoned %s after %d attempts: %v", s.ids[e.State.ID], e.State.Attempts, e.Err)
	case redeliver.HeadersIgnored:
		s.journal.write(line{kind: ignored, id: e.ID, at: time.Now(), text: fmt.Sprint(e.Topic, e.Findings)})
	case redeliver.PublishFailed:
		s.journal.write(line{kind: refused, id: s.idOf(e.State.ID), attempt: e.State.Attempts, at: time.Now(), text: fmt.Sprint(e.Where, " ", e.Err)})
		consumer.Logf("publish to %s failed, try %d: %v", e.Where, e.Try, e.Err)
	case redeliver.SubscriptionChanged:
		s.journal.write(line{kind: changed, at: time.Now(), text: string(e.Change)})
		consumer.Logf("%s: %s %v", e.Change, e.Detail, e.Err)
		if e.Change == disconnected {
			s.journal.write(line{kind: lostConnection, at: time.Now(), text: e.Detail})
		}
		if e.Change == redeliver.ChangeAssigned || e.Change == redeliver.ChangeConsuming {
			s.mu.Lock()
			clear(s.waiting)
			clear(s.sending) // messages that were given up without a report
			s.mu.Unlock()
			s.journal.write(line{kind: joined, at: time.Now(), text: e.Detail})
		}
	}
}

func (s *watcher) confirmed(st redeliver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sending, run{s.ids[st.ID], st.Attempts})
}

// abandoned is the text in the journal for a message that its process gave up.
const abandoned = "abandoned"

// idOf returns the message that redeliver's id identifies.
func (s *watcher) idOf(redeliverID string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids[redeliverID]
}
