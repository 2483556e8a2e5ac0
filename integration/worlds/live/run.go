package live

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redeliver/redeliver/integration/chaos/history"
	"github.com/redeliver/redeliver/integration/worlds/check"
	"github.com/redeliver/redeliver/integration/worlds/plan"
)

// Judgement is how a run ended.
type Judgement struct {
	Settled bool   // every message has ended
	Stuck   string // the world cannot be judged, because of this fault of the fake broker
	Virtual time.Duration
}

// maxLines is more lines than any history has. A world with more repeats something without a bound.
const maxLines = 200_000

// add adds a line to the history. A world that repeats something without a bound ends at once.
func (r *runner) add(l history.Line) {
	if r.lines.Add(1) == maxLines {
		l = history.Line{Kind: history.Said, What: TooLong}
		r.log.Add(l)
		fmt.Printf("the history has %d lines: the world repeats something without a bound\n", maxLines)
		os.Exit(4)
	}
	r.log.Add(l)
}

// TooLong is the last line of a history that became too long.
const TooLong = "the history is too long"

// Run runs a world until all its messages have ended, and all processes have stopped. The history has everything.
func Run(w plan.World, d Driver, log *history.Log) (Judgement, error) {
	text, err := json.Marshal(w)
	if err != nil {
		return Judgement{}, err
	}
	r := &runner{
		world: w, driver: d, log: log, start: time.Now(), messages: make(map[string]*message), down: make(map[int]int),
		pace: paceOf(w), ended: make(map[end]bool), deleted: make(map[string]bool), slots: make(map[slot]*Process), locks: make(map[slot]*sync.Mutex), version: make(map[int]int),
	}
	log.Add(history.Line{Kind: history.Began, Run: &history.Run{Broker: w.Broker, Seed: w.Seed, World: text}})
	r.run()
	j := Judgement{Settled: r.settled, Stuck: r.stuck, Virtual: time.Since(r.start)}
	if r.settled {
		log.Add(history.Line{Kind: history.Settled})
	}
	return j, nil
}

type runner struct {
	world  plan.World
	driver Driver
	log    *history.Log
	start  time.Time
	pace   pace

	mu        sync.Mutex
	messages  map[string]*message
	down      map[int]int // services whose dependency is down
	ended     map[end]bool
	deleted   map[string]bool // messages of which a word has deleted a copy
	reset     bool            // messages that have ended may run again: a group's offsets were deleted or set, or a DLQ was replayed
	moved     time.Time       // when the last handler began, the last event came, or a program last ended that must not end
	slots     map[slot]*Process
	locks     map[slot]*sync.Mutex
	version   map[int]int
	incarnate int
	lines     atomic.Int64
	settled   bool
	stuck     string
}

// pace is how long the runner waits.
type pace struct {
	poll  time.Duration // between looks for rest
	again time.Duration // after the last end, for what runs again
	end   time.Duration // for what processes find that start again when all has ended, beside the longest wait
	quiet time.Duration // without a handler, until messages that were perhaps deleted are gone, beside the longest wait
	limit time.Duration // for rest
}

func paceOf(w plan.World) pace {
	if w.RealTime {
		return pace{poll: time.Second / 2, again: 2 * time.Second, end: 3 * time.Second, quiet: 70 * time.Second, limit: 5 * time.Minute}
	}
	return pace{poll: 20 * time.Second, again: time.Minute, end: 2 * time.Minute, quiet: 5 * time.Minute, limit: 12 * time.Hour}
}

type message struct {
	plan.Message
	body []byte
}

// end is a message that has ended in a service.
type end struct {
	service int
	id      string
}

type slot struct{ service, process int }

func (r *runner) sleepUntil(at time.Duration) { time.Sleep(time.Until(r.start.Add(at))) }

func (r *runner) run() {
	for s, service := range r.world.Services {
		for p := range service.Processes {
			r.startProcess(slot{s, p})
		}
	}
	// Some worlds write before their services have joined, others after.
	time.Sleep(time.Duration(r.world.Seed%5) * time.Second)
	var all sync.WaitGroup
	all.Go(r.write)
	for _, o := range r.world.Words {
		all.Go(func() {
			r.sleepUntil(o.At)
			r.do(o)
		})
	}
	all.Wait()
	r.sleepUntil(r.world.Span)
	r.add(history.Line{Kind: history.Said, What: "healed"})
	r.awaitRest()
	if r.stuck == "" && r.settled {
		// Nothing is left behind: processes that start again find nothing to do.
		r.stopAll()
		r.add(history.Line{Kind: history.Said, What: "at rest"})
		for s := range r.world.Services {
			r.startProcess(slot{s, 0})
		}
		time.Sleep(r.pace.end + r.longestWait())
		r.readDeadLetters()
	}
	r.stopAll()
}

func (r *runner) longestWait() (d time.Duration) {
	for _, s := range r.world.Services {
		for _, v := range s.Versions {
			d = max(d, v.Longest())
		}
	}
	return d
}

// write writes the messages, one after another, until each is confirmed.
func (r *runner) write() {
	for _, m := range r.world.Messages {
		r.sleepUntil(m.At)
		msg := &message{m, []byte(m.ID + " " + strings.Repeat("x", int(crc32.ChecksumIEEE([]byte(m.ID))%200)))}
		r.mu.Lock()
		r.messages[m.ID] = msg
		r.mu.Unlock()
		for {
			r.add(history.Line{Kind: history.Write, ID: m.ID, Load: m.Topic, Key: m.Key, Sum: sum(msg.body, m.Key, m.ID)})
			partition, offset, err := r.driver.Write(m, msg.body)
			if err == nil {
				r.add(history.Line{Kind: history.Written, ID: m.ID, Load: m.Topic, Key: m.Key, Partition: partition, Offset: offset})
				break
			}
			r.add(history.Line{Kind: history.Said, What: fmt.Sprintf("writing %s: %v", m.ID, err)})
			time.Sleep(500 * time.Millisecond)
		}
	}
}

func sum(body []byte, key, header string) uint32 {
	return crc32.ChecksumIEEE([]byte(string(body) + "\x00" + key + "\x00" + header))
}

// lock locks a slot: one word at a time concerns it.
func (r *runner) lock(at slot) (unlock func()) {
	r.mu.Lock()
	l := r.locks[at]
	if l == nil {
		l = &sync.Mutex{}
		r.locks[at] = l
	}
	r.mu.Unlock()
	// A goroutine that waits for a mutex stops a bubble's time.
	for !l.TryLock() {
		time.Sleep(100 * time.Millisecond)
	}
	return l.Unlock
}

func (r *runner) startProcess(at slot) {
	r.mu.Lock()
	r.incarnate++
	s := r.world.Services[at.service]
	version := r.version[at.service]
	p := &Process{
		Name: fmt.Sprintf("%s-%d.%d", s.Group, at.process, r.incarnate), Slot: at.process, Service: s, Version: s.Versions[version],
		done: make(chan struct{}),
	}
	r.slots[at] = p
	r.mu.Unlock()
	p.Handle = func(ctx context.Context, rec Record) error { return r.handle(ctx, p, at.service, rec) }
	p.Sink = r.sink(p)
	run, kill := r.driver.Process(p)
	p.kill = kill
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	r.add(history.Line{Kind: history.Started, Process: p.Name, Load: s.Group, What: strconv.Itoa(version)})
	go func() {
		defer close(p.done)
		for wait := time.Second; ; wait = min(2*wait, 20*time.Second) {
			err := run(ctx)
			if ctx.Err() != nil || p.Killed() {
				return
			}
			// A supervisor starts a program again that has ended.
			r.add(history.Line{Kind: history.Event, Process: p.Name, Load: s.Group, What: "ended", Reason: fmt.Sprint(err)})
			r.setMoved()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	}()
}

func (r *runner) process(at slot) *Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slots[at]
}

func (r *runner) stop(at slot) {
	p := r.process(at)
	r.add(history.Line{Kind: history.Event, Process: p.Name, Load: p.Service.Group, What: check.Stopping})
	p.cancel()
	<-p.done
	r.add(history.Line{Kind: history.Stopped, Process: p.Name, Load: p.Service.Group})
}

func (r *runner) kill(at slot) {
	p := r.process(at)
	r.add(history.Line{Kind: history.Fault, What: plan.Kill, Target: p.Name})
	p.killed.Store(true)
	p.kill()
	p.cancel()
	r.add(history.Line{Kind: history.Healed, What: plan.Kill, Target: p.Name})
}

func (r *runner) stopAll() {
	r.mu.Lock()
	var all []slot
	for at := range r.slots {
		all = append(all, at)
	}
	r.mu.Unlock()
	var wg sync.WaitGroup
	for _, at := range all {
		wg.Go(func() {
			defer r.lock(at)()
			r.stop(at)
		})
	}
	wg.Wait()
}

// do carries out a word, and returns when it is over.
func (r *runner) do(o plan.Word) {
	at := slot{o.Service, o.Process}
	s := r.world.Services[o.Service]
	switch o.What {
	case plan.Kill, plan.Restart:
		defer r.lock(at)()
		if o.What == plan.Kill {
			r.kill(at)
		} else {
			r.stop(at)
		}
		time.Sleep(o.For)
		r.startProcess(at)
	case plan.Scale:
		at.process = s.Processes
		defer r.lock(at)()
		r.startProcess(at)
		time.Sleep(o.For)
		r.stop(at)
	case plan.Deploy:
		r.mu.Lock()
		r.version[o.Service] = min(r.version[o.Service]+1, len(s.Versions)-1)
		r.mu.Unlock()
		for p := range s.Processes {
			func() {
				at := slot{o.Service, p}
				defer r.lock(at)()
				r.stop(at)
				r.startProcess(at)
			}()
			time.Sleep(time.Second)
		}
	case plan.ExpireOffsets, plan.ResetOffsets:
		for p := range s.Processes + 1 { // one more for Scale
			defer r.lock(slot{o.Service, p})()
			if p < s.Processes {
				r.stop(slot{o.Service, p})
			}
		}
		r.inject(o, s.Group)
		for p := range s.Processes {
			r.startProcess(slot{o.Service, p})
		}
	case plan.Dependency:
		r.setDown(o.Service, 1)
		r.add(history.Line{Kind: history.Fault, What: o.What, Target: s.Group})
		time.Sleep(o.For)
		r.add(history.Line{Kind: history.Healed, What: o.What, Target: s.Group})
		r.setDown(o.Service, -1)
	case plan.Cut, plan.Stall:
		r.inject(o, r.process(at).Name)
	default:
		r.inject(o, s.Group)
	}
}

// inject lets the driver carry out a word.
func (r *runner) inject(o plan.Word, target string) {
	if slices.Contains([]string{plan.ExpireOffsets, plan.ResetOffsets, plan.Replay}, o.What) {
		r.mu.Lock()
		r.reset = true
		r.mu.Unlock()
	}
	r.add(history.Line{Kind: history.Fault, What: o.What, Target: target, Reason: fmt.Sprintf("%s %v %s x%d for %s", o.Topic, o.Keys, o.Error, o.Count, o.For)})
	heal, err := r.driver.Do(o, target)
	if err != nil {
		r.add(history.Line{Kind: history.Said, What: fmt.Sprintf("%s: %v", o.What, err)})
	} else {
		r.add(history.Line{Kind: history.Event, Load: target, What: "done: " + o.What, Target: o.Topic})
	}
	time.Sleep(o.For)
	r.noteDeleted()
	if heal != nil {
		heal()
	}
	if d, ok := r.driver.(Denier); ok {
		for _, n := range d.Denials() {
			r.add(history.Line{Kind: history.Event, What: check.Denied, Process: n.Process, Load: target, Name: n.Request, Offset: int64(n.Count), Due: n.First.UnixNano()})
		}
	}
	r.add(history.Line{Kind: history.Healed, What: o.What, Target: target})
}

// noteDeleted records which messages the driver's words have deleted.
func (r *runner) noteDeleted() {
	d, ok := r.driver.(Deleter)
	if !ok {
		return
	}
	for _, c := range d.Deleted() {
		id := idOf(c.Body)
		r.mu.Lock()
		r.deleted[id] = true
		r.mu.Unlock()
		what := check.Deleted
		if c.Skipped {
			what = check.Skipped
		}
		r.add(history.Line{
			At: c.At.UnixNano(), Kind: history.Event, What: what, ID: id, Load: c.Group, Attempt: c.Attempt, Target: c.Place, Name: c.Topic,
		})
	}
}

func (r *runner) setDown(service, by int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down[service] += by
}

// awaitRest waits until every message has ended in every service.
func (r *runner) awaitRest() {
	// After that, a world hangs. It is not the checker's bound, which is narrower.
	limit := time.Now().Add(r.pace.limit)
	r.setMoved()
	for time.Now().Before(limit) {
		r.readDeadLetters()
		if left, quiet := r.left(); left == 0 && (quiet == 0 || quiet > r.longestWait()+r.pace.quiet) {
			r.settled = true
			time.Sleep(r.pace.again)
			return
		}
		for _, s := range r.world.Services {
			if r.stuck = r.driver.Stuck(s); r.stuck != "" {
				r.add(history.Line{Kind: history.Said, What: "not judged: " + r.stuck})
				return
			}
		}
		time.Sleep(r.pace.poll)
	}
}

func (r *runner) setMoved() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.moved = time.Now()
}

// left returns how many messages have not ended. If some were perhaps deleted, it does not count them, and quiet is how long no
// handler has begun, and no event came.
func (r *runner) left() (n int, quiet time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reset {
		quiet = max(1, time.Since(r.moved))
	}
	for s, service := range r.world.Services {
		for id, m := range r.messages {
			switch {
			case !slices.Contains(service.Topics, m.Topic) || r.ended[end{s, id}]:
			case r.deleted[id], service.SkipExisting:
				quiet = max(1, time.Since(r.moved))
			default:
				n++
			}
		}
	}
	return n, quiet
}

func (r *runner) setEnded(service int, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended[end{service, id}] = true
}

func (r *runner) readDeadLetters() {
	for s, service := range r.world.Services {
		letters, err := r.driver.DeadLetters(service)
		if err != nil {
			r.add(history.Line{Kind: history.Said, What: "reading the DLQ: " + err.Error()})
		}
		for _, l := range letters {
			id := idOf(l.Body)
			r.setEnded(s, id)
			r.add(history.Line{
				Kind: history.Dead, Process: service.Group, Load: service.Group, ID: id, Name: l.Name, Attempt: l.Attempt, Reason: l.Reason,
				Sum: sum(l.Body, l.Key, l.Header), What: l.Place,
			})
		}
	}
}

func idOf(body []byte) string {
	id, _, _ := strings.Cut(string(body), " ")
	return id
}
