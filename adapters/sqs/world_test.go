package sqs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/adapters/sqs/internal/api"
	"github.com/redeliver/redeliver/internal/sqsfake"
)

// world is a queue whose requests fail at random while processes are killed. Two processes read it.
type world struct {
	*testing.T
	*sqsfake.Server
	queue string
	rng   *rand.Rand // of the generator
	began time.Time

	mu        sync.Mutex
	history   []string
	groups    map[string][]string // the messages of each, in the order in which they were sent
	attempts  map[string][]int    // of each message, in the order of their starts
	succeeded map[string]int
	running   map[string]string // the message of each group that runs in a process that lives
	faults    *rand.Rand        // of the faults, which come in another order in each run
	faulty    bool
	kills     int
}

// worldRetries are the retries of a world's policy. A message fails as often as the number in its id says.
const worldRetries = 3

func worldPolicy() redeliver.Policy {
	p := steps(worldRetries, 2*time.Second, 20*time.Second, 2*time.Minute)
	p.Timeout = time.Minute
	return p
}

// worldProcess is a service of a world.
type worldProcess struct {
	name string
	line *sqsfake.Connection
	stop context.CancelFunc
	done chan struct{}
	dead bool // under world.mu
}

func (w *world) notef(format string, args ...any) {
	w.history = append(w.history, fmt.Sprintf("%s %s", time.Since(w.began), fmt.Sprintf(format, args...)))
}

// start starts a process that reads the queue.
func (w *world) start(name string) *worldProcess {
	p := &worldProcess{name: name, line: w.Connect(name), done: make(chan struct{})}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	cfg := Config{
		AWS: p.line.Config(), Endpoint: sqsfake.Endpoint, Policy: worldPolicy(), MaxInFlight: 20,
		Sink: redeliver.SinkFunc(func(redeliver.Event) {}),
	}
	go func() {
		defer close(p.done)
		for ctx.Err() == nil { // a start that fails is repeated, as by Kubernetes
			if err := Consume(ctx, cfg, []string{w.queue}, func(ctx context.Context, m types.Message) error { return w.handle(ctx, p, m) }); err != nil {
				<-time.After(time.Second)
			}
		}
	}()
	return p
}

// handle runs a message for a while. It counts nothing of a process that was killed.
func (w *world) handle(ctx context.Context, p *worldProcess, m types.Message) error {
	st, _ := redeliver.FromContext(ctx)
	group := m.Attributes["MessageGroupId"]
	w.mu.Lock()
	alive := !p.dead
	if alive {
		w.notef("%s begins %s#%d", p.name, st.ID, st.Attempt())
		if time.Now().Before(st.Due) {
			w.Errorf("%s is early by %s", st.ID, time.Until(st.Due))
		}
		if other := w.running[group]; api.IsFIFO(w.queue) && other != "" {
			w.Errorf("%s begins while %s of its group runs", st.ID, other)
		}
		w.running[group] = st.ID
		if before := w.unended(group, st.ID); api.IsFIFO(w.queue) && before != "" {
			w.Errorf("%s begins before %s of its group has ended", st.ID, before)
		}
		w.attempts[st.ID] = append(w.attempts[st.ID], st.Attempt())
	}
	w.mu.Unlock()
	fails, takes := parseWorldID(st.ID)
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.dead || !alive {
		return errHandler
	}
	w.running[group] = ""
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if st.Attempt() <= fails {
		return errHandler
	}
	w.notef("%s ends %s", p.name, st.ID)
	w.succeeded[st.ID]++
	return nil
}

// unended returns a message of a group that was sent before another and has not ended.
func (w *world) unended(group, id string) string {
	for _, before := range w.groups[group] {
		if before == id {
			return ""
		}
		isDead := func(m sqsfake.Message) bool {
			return strings.Contains(string(m.Attributes[StateAttribute].Value), before)
		}
		if w.succeeded[before] == 0 && !slices.ContainsFunc(w.Messages(api.SiblingName(w.queue, dlqSuffix)), isDead) {
			return before
		}
	}
	return ""
}

// parseWorldID returns how often a message fails, and how long each attempt takes.
func parseWorldID(id string) (fails int, takes time.Duration) {
	parts := strings.Split(id, "-")
	fails, _ = strconv.Atoi(parts[1])
	takes, _ = time.ParseDuration(parts[2])
	return fails, takes
}

// kill kills a process, as a loss of power does.
func (w *world) kill(p *worldProcess) {
	w.mu.Lock()
	w.notef("%s is killed", p.name)
	p.dead = true
	w.kills++
	clear(w.running)
	w.mu.Unlock()
	p.line.Cut()
	p.stop()
	<-p.done
}

// inject lets one in four requests fail.
func (w *world) inject(c *sqsfake.Call) *sqsfake.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.faulty || w.faults.IntN(4) > 0 {
		return nil
	}
	pick := w.faults.IntN(2)
	half := func(e map[string]any) bool { return len(fmt.Sprint(e))%2 == pick }
	all := []func() *sqsfake.Fault{
		sqsfake.Throttled, sqsfake.ServerError, sqsfake.LostAnswer, sqsfake.Reset, sqsfake.ConnectionRefused,
		func() *sqsfake.Fault {
			return &sqsfake.Fault{Delay: time.Duration(w.faults.IntN(8000)) * time.Millisecond, Carried: true}
		},
		func() *sqsfake.Fault {
			return &sqsfake.Fault{AnswerDelay: time.Duration(w.faults.IntN(8000)) * time.Millisecond}
		},
		func() *sqsfake.Fault { return sqsfake.FailedEntries("InternalError", half) },
		func() *sqsfake.Fault { return sqsfake.FailedEntries("RequestThrottled", half) },
		func() *sqsfake.Fault {
			f := sqsfake.FailedEntries("InternalError", half)
			f.Carried = true
			return f
		},
		func() *sqsfake.Fault { return &sqsfake.Fault{Status: 503, Code: "ServiceUnavailable", Carried: true} },
	}
	i := w.faults.IntN(len(all))
	w.notef("%s on %s of %s gets fault %d", c.Action, c.Queue, c.Connection, i)
	return all[i]()
}

// run lets the world live for ten minutes with faults, heals it, and checks what has become of the messages.
func (w *world) run() {
	w.Create(w.queue)
	defer w.Inject(w.inject)()
	processes := []*worldProcess{w.start("p0"), w.start("p1")}
	const minutes = 10
	var ids []string
	for n := range 6 * minutes {
		for range w.rng.IntN(4) {
			id := fmt.Sprintf("m%d-%d-%s", len(ids), w.rng.IntN(worldRetries+2), time.Duration(w.rng.IntN(12_000))*time.Millisecond)
			m := sqsfake.Message{Body: id, Attributes: map[string]sqsfake.Attribute{UUIDAttribute: sqsfake.String(id)}}
			if api.IsFIFO(w.queue) {
				m.Group, m.Dedup = fmt.Sprint("g", w.rng.IntN(12)), id
			}
			w.mu.Lock()
			w.groups[m.Group] = append(w.groups[m.Group], id)
			w.mu.Unlock()
			w.Put(w.queue, m)
			ids = append(ids, id)
		}
		w.mu.Lock()
		w.faulty = n > 1 && n%12 < 10 // quiet for 20 s in every two minutes
		w.mu.Unlock()
		if n%5 == 4 && !api.IsFIFO(w.queue) { // a standard queue may deliver a message twice
			w.Edit(w.queue, func(m *sqsfake.Message) {
				if m.Receives > 0 && w.rng.IntN(10) == 0 {
					m.Visible = time.Now()
				}
			})
		}
		if i := w.rng.IntN(len(processes)); n%8 == 7 {
			w.kill(processes[i])
			processes[i] = w.start(fmt.Sprint("p", n))
		}
		<-time.After(10 * time.Second)
	}
	w.mu.Lock()
	w.faulty = false
	w.notef("healed")
	w.mu.Unlock()
	atRest := func() bool {
		return len(w.Messages(w.queue))+len(w.Messages(api.SiblingName(w.queue, suspectsSuffix))) == 0
	}
	for healed := time.Now(); !atRest() && time.Since(healed) < 2*time.Hour; { // the groups of a FIFO queue wait for their heads
		<-time.After(time.Minute)
	}
	for _, p := range processes {
		p.stop()
		<-p.done
	}
	w.check(ids)
}

func (w *world) check(ids []string) {
	w.Helper()
	dead, copies := map[string]redeliver.State{}, map[string]int{}
	for _, m := range w.Messages(api.SiblingName(w.queue, dlqSuffix)) {
		st := stateOf(w.T, m, w.queue)
		dead[st.ID] = st
		if copies[st.ID]++; api.IsFIFO(w.queue) && copies[st.ID] > 1+w.kills {
			w.Errorf("%s is in the DLQ %d times after %d kills", st.ID, copies[st.ID], w.kills)
		}
	}
	for _, id := range ids {
		fails, _ := parseWorldID(id)
		seen := w.attempts[id]
		most := min(fails+1, worldRetries+1)
		for attempt := 1; attempt <= most; attempt++ {
			if !slices.Contains(seen, attempt) {
				w.Errorf("%s has no attempt %d: %v", id, attempt, seen)
			}
		}
		if slices.Max(append(seen, 0)) > most {
			w.Errorf("%s ran as %v, want at most %d", id, seen, most)
		}
		switch st, isDead := dead[id], dead[id].ID != ""; {
		case fails <= worldRetries && (w.succeeded[id] == 0 || isDead):
			w.Errorf("%s ran as %v, succeeded %d times, dead after %d attempts: %q", id, seen, w.succeeded[id], st.Attempts, st.Reason)
		case fails > worldRetries && (!isDead || w.succeeded[id] > 0 || st.Reason != redeliver.ReasonExhausted || st.Attempts != worldRetries+1):
			w.Errorf("%s ran as %v, succeeded %d times, dead after %d attempts: %q", id, seen, w.succeeded[id], st.Attempts, st.Reason)
		}
	}
	for _, queue := range []string{w.queue, api.SiblingName(w.queue, suspectsSuffix)} {
		if n := len(w.Messages(queue)); n > 0 {
			w.Errorf("%d messages are left in %s", n, queue)
		}
	}
	if w.Failed() {
		w.Log(strings.Join(w.history, "\n"))
	}
}

// Processes are killed while every fourth request fails. Nothing is lost, attempts come in order and never early, and
// every message has its one end.
func TestAFaultyWorldLosesNothing(t *testing.T) {
	for _, queue := range []string{"orders", "orders.fifo"} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprint(queue, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := &world{
						T: t, Server: sqsfake.New(optionsOf(seed)), queue: queue, began: time.Now(),
						rng: rand.New(rand.NewPCG(seed, 1)), faults: rand.New(rand.NewPCG(seed, 2)),
						groups: map[string][]string{}, attempts: map[string][]int{}, succeeded: map[string]int{}, running: map[string]string{},
					}
					defer w.Wait()
					w.run()
				})
			})
		}
	}
}

// optionsOf returns the server of a world: one with small limits, one that is strict about receipts.
func optionsOf(seed uint64) sqsfake.Options {
	o := sqsfake.Options{Latency: 5 * time.Millisecond}
	if seed%2 == 1 {
		o.MaxInFlight, o.CreateLatency = 12, time.Second
	}
	o.StrictReceipts = seed%4 > 1
	return o
}
