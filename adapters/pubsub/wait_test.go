package pubsub

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/driver"
)

// A waiting message is never early if a field of its state is damaged. Plausible fields are trusted, and a lost due
// time is replaced by its level.
func TestWaitingMessageIsNeverEarly(t *testing.T) {
	const far = "9999-01-01T00:00:00.000Z"
	without := func(names ...string) func(fields map[string]string) {
		return func(fields map[string]string) {
			for _, name := range names {
				delete(fields, redeliver.HeaderPrefix+name)
			}
		}
	}
	with := func(name, value string) func(fields map[string]string) {
		return func(fields map[string]string) { fields[redeliver.HeaderPrefix+name] = value }
	}
	for name, c := range map[string]struct {
		nth      int // levels of 1 s and 10 min; the policy has no third level
		until    time.Duration
		damage   func(fields map[string]string)
		runs     time.Duration // after the start; 0 means not within a day
		attempt  int
		reported string // the reported header, or empty
	}{
		"whole":                                     {2, 10 * time.Minute, without(), 10 * time.Minute, 3, ""},
		"the attempts are invalid":                  {2, 10 * time.Minute, with("attempt", "two"), 10 * time.Minute, 2, redeliver.HeaderAttempt},
		"the first failure is invalid":              {2, 10 * time.Minute, with("first-failed", "then"), 10 * time.Minute, 3, redeliver.HeaderFirstFailed},
		"the time to leave is missing":              {2, 0, without(), 10 * time.Minute, 3, ""},
		"the time to leave has passed":              {2, -time.Hour, without(), 10 * time.Minute, 3, ""},
		"the due time is invalid":                   {2, 10 * time.Minute, with("due", "soon"), 10 * time.Minute, 3, redeliver.HeaderDue},
		"the due time is centuries away":            {2, 10 * time.Minute, with("due", far), 0, 3, redeliver.HeaderDue},
		"on a level that the policy does not have":  {5, 5 * time.Minute, with("due", "soon"), 5 * time.Minute, 3, redeliver.HeaderDue},
		"on such a level, with an invalid due time": {5, 1000 * time.Hour, with("due", "soon"), 10 * time.Minute, 3, redeliver.HeaderDue},
		"of another group":                          {2, 10 * time.Minute, with("group", "mail"), 10 * time.Minute, 1, redeliver.HeaderGroup},
		"the state is missing":                      {2, 10 * time.Minute, func(fields map[string]string) { clear(fields) }, 10 * time.Minute, 1, redeliver.HeaderAttempt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sink := newMemoryBroker(), &recordingSink{}
				m := b.member(t, "billing")
				cfg := checkConfig(m, m)
				cfg.Sink, cfg.Policy = sink, redeliver.Policy{Levels: []time.Duration{time.Second, 10 * time.Minute}}
				begin := time.Now()
				st := redeliver.State{
					ID: "a", Group: "billing", Origin: "orders", Attempts: 2, Due: begin.Add(10 * time.Minute).UTC(),
					FirstFailed: begin.UTC(), LastFailed: begin.UTC(),
				}
				fields := make(map[string]string)
				for _, h := range driver.AppendStateHeaders(st, nil) {
					fields[h.Name] = h.Value
				}
				c.damage(fields)
				carries := &carried{}
				if c.until != 0 {
					carries.until = begin.Add(c.until)
				}
				for _, name := range slices.Sorted(maps.Keys(fields)) {
					carries.headers = append(carries.headers, driver.Header{Name: name, Value: fields[name]})
				}
				rec := newRecord(message.NewMessage("a", []byte("payload")), false)
				msg, err := rec.withState(carries)
				if err != nil {
					t.Fatal(err)
				}
				if len(fields) == 0 {
					delete(msg.Metadata, StateKey)
				}
				b.put(Names{}.delay("orders", "billing", c.nth), msg)
				var mu sync.Mutex
				var ran []time.Duration
				serve(t, cfg, func(msg *message.Message) error {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, time.Since(begin))
					if st, _ := redeliver.FromContext(msg.Context()); st.Attempt() != c.attempt || st.ID != "a" || string(msg.Payload) != "payload" {
						t.Errorf("it runs as %+v, want attempt %d", st, c.attempt)
					}
					return nil
				})
				advance(24 * time.Hour)
				mu.Lock()
				defer mu.Unlock()
				if c.runs == 0 && len(ran) > 0 {
					t.Errorf("it ran after %v", ran)
				}
				if c.runs > 0 && (len(ran) != 1 || ran[0] < c.runs || ran[0] > c.runs+2*time.Second) {
					t.Errorf("it ran after %v, want %s", ran, c.runs)
				}
				found := eventsOf[redeliver.HeadersIgnored](sink)
				if c.reported == "" && len(found) == 0 {
					return
				}
				if len(found) != 1 || found[0].ID != "a" || !slices.ContainsFunc(found[0].Findings, func(f redeliver.Finding) bool { return f.Header == c.reported }) {
					t.Errorf("reported %+v, want %q", found, c.reported)
				}
			})
		})
	}
}

// A delayed publish that lost its mark stays in its group, because other groups would get a message that does not
// belong to them.
func TestDamagedDelayedPublishStaysInItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newMemoryBroker()
		m := b.member(t, "billing")
		begin := time.Now()
		st := redeliver.State{ID: "a", Group: "billing", Origin: "orders", Due: begin.Add(time.Second).UTC()}
		rec := newRecord(message.NewMessage("a", nil), false)
		headers := append(driver.AppendStateHeaders(st, nil), driver.Header{Name: redeliver.HeaderReplays, Value: "many"})
		msg, err := rec.withState(&carried{headers: headers, until: st.Due, publish: true})
		if err != nil {
			t.Fatal(err)
		}
		b.put("orders.billing.retry.1", msg)
		ran := 0
		cfg := checkConfig(m, m)
		serve(t, cfg, func(*message.Message) error { ran++; return nil })
		advance(time.Minute)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.topics["orders"]); n != 0 || ran != 1 {
			t.Errorf("ran %d times, %d were published", ran, n)
		}
	})
}

// A waiting message that the next topic always refuses goes to the DLQ, even if the DLQ fails at first, and does not
// block its delay topic.
func TestMessageThatTheNextPlaceRefusesGoesToDLQ(t *testing.T) {
	errSize, errAway := errors.New("larger than the broker accepts"), errors.New("the broker is unavailable")
	for name, c := range map[string]struct {
		nth     int
		until   time.Duration
		due     time.Duration
		publish bool
		refuses string
	}{
		"a delayed publish": {1, time.Second, time.Second, true, "orders"},
		"what is due":       {1, time.Second, time.Second, false, "orders.billing.retry"},
		"a hop":             {2, time.Minute, 90 * time.Second, false, "orders.billing.retry.1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, sink := newMemoryBroker(), &recordingSink{}
				m := b.member(t, "billing")
				var mu sync.Mutex
				tries := make(map[string]int)
				cfg := checkConfig(publisherFunc{m, func(topic string, msg *message.Message) error {
					mu.Lock()
					defer mu.Unlock()
					if msg.UUID == "bad" {
						tries[topic]++
						switch {
						case topic == c.refuses:
							return errSize
						case tries[topic] == 1:
							return errAway
						}
					}
					return m.Publish(topic, msg)
				}}, m)
				cfg.Sink, cfg.Refused = sink, func(err error) bool { return errors.Is(err, errSize) }
				cfg.Policy = redeliver.Policy{Levels: []time.Duration{time.Second, time.Minute}}
				begin := time.Now()
				from := Names{}.delay("orders", "billing", c.nth)
				for _, id := range []string{"bad", "good"} {
					st := redeliver.State{ID: id, Group: "billing", Origin: "orders", Due: begin.Add(c.due).UTC()}
					if !c.publish {
						st.Attempts, st.FirstFailed, st.LastFailed = 1, begin.UTC(), begin.UTC()
					}
					rec := newRecord(message.NewMessage(id, []byte("payload")), false)
					msg, err := rec.withState(&carried{headers: driver.AppendStateHeaders(st, nil), until: begin.Add(c.until), publish: c.publish})
					if err != nil {
						t.Fatal(err)
					}
					b.put(from, msg)
				}
				var ran []string
				serve(t, cfg, func(msg *message.Message) error {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, msg.UUID)
					return nil
				})
				advance(time.Hour)
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if !slices.Equal(ran, []string{"good"}) {
					t.Errorf("ran %q, want the valid message", ran)
				}
				if tries[c.refuses] != 1 || tries["orders.billing.dlq"] != 2 {
					t.Errorf("tried %v, want once at the refusing place and twice at the DLQ", tries)
				}
				dead := eventsOf[redeliver.DeadLettered](sink)
				if len(dead) != 1 || dead[0].State.ID != "bad" || dead[0].State.Reason != redeliver.ReasonUnschedulable || dead[0].Where != "orders.billing.dlq" {
					t.Errorf("reported %+v", dead)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if left := b.groups[[2]string{from, "billing"}]; len(left) > 0 {
					t.Errorf("%d still wait", len(left))
				}
				letters := b.topics["orders.billing.dlq"]
				if len(letters) != 1 || string(letters[0].Payload) != "payload" {
					t.Fatalf("in the DLQ: %+v", letters)
				}
				if has := newRecord(letters[0], true); len(has.headers) == 0 || has.publish || !has.until.IsZero() {
					t.Errorf("the dead letter has the state %+v", has)
				}
			})
		})
	}
}
