package plan

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Vocabulary is what a broker's driver can express.
type Vocabulary struct {
	Broker   string
	Ways     []Way
	Orders   []string
	Balances []string
	// Words are the words with their weights. A word that is not there does not occur.
	Words map[string]int
	// Keys and Errors are the requests and errors of Refuse.
	Keys   []int16
	Errors []string
	// Denials are the errors of Deny.
	Denials   []string
	Limits    []string // of Limit
	MaxNodes  int
	Static    bool
	Skips     bool // a service may skip existing messages
	Deadlines bool // messages may expire
	Delays    bool // messages may be published for later
	// Origins are the kinds of origins. A world has one of them, and one service reads it. Default: topics for all services.
	Origins []Origin
	// Scale divides all times. It is for brokers that run in real time. Default 1, which is virtual time.
	Scale int
}

// Origin is an origin that only one service reads.
type Origin struct {
	Name   string
	Orders []string
	Bounds Bounds
}

// Generate returns the world of a seed.
func Generate(seed uint64, v Vocabulary) World {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0x5eed)), v: v}
	w := World{Seed: seed, Broker: v.Broker, Nodes: 1 + g.IntN(max(1, v.MaxNodes)), RealTime: v.Scale > 1}
	w.Span = g.between(20*time.Second, 5*time.Minute)
	w.Topics = []Topic{{"orders", 1 + g.IntN(4)}}
	if len(v.Origins) > 0 {
		o := pick(g, v.Origins)
		w.Topics, w.Bounds, g.v.Orders = []Topic{{o.Name, 1}}, o.Bounds, o.Orders
	} else if g.oneIn(5) {
		w.Topics = append(w.Topics, Topic{"refunds", 1 + g.IntN(3)})
	}
	w.Services = []Service{g.service("billing", w.Topics)}
	if len(v.Origins) == 0 && g.oneIn(4) {
		w.Services = append(w.Services, g.service("mail", w.Topics[:1]))
	}
	w.Messages = g.messages(w)
	if heads := countLosing(w.Messages); heads > 0 { // each is one head more
		for _, s := range w.Services {
			few := heads == 1 && w.Topics[0].Partitions == 1 && len(s.Topics) == 1
			for i := range s.Versions {
				s.Versions[i].Outage = s.Versions[i].Outage && (s.Versions[i].Order != OrderBlocking || few)
			}
		}
	}
	w.Words = g.words(w)
	return w
}

type generator struct {
	*rand.Rand
	v Vocabulary
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

func (g *generator) between(a, b time.Duration) time.Duration {
	return g.scale(a + time.Duration(g.Int64N(int64(b-a)))).Round(time.Millisecond)
}

func (g *generator) scale(d time.Duration) time.Duration { return d / time.Duration(max(1, g.v.Scale)) }

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

func (g *generator) service(group string, topics []Topic) Service {
	s := Service{Group: group, Way: pick(g, g.v.Ways), Processes: 1 + g.IntN(3), Drain: g.between(time.Second, 10*time.Second)}
	if len(g.v.Balances) > 0 {
		s.Balance = pick(g, g.v.Balances)
	}
	for _, t := range topics {
		s.Topics = append(s.Topics, t.Name)
	}
	s.Static = g.v.Static && s.Way != Wrap && g.oneIn(5)
	s.SkipExisting = g.v.Skips && g.oneIn(6)
	order := pick(g, g.v.Orders)
	for (s.Way == Wrap && (order == OrderThroughRetries || order == OrderBlocking)) || (s.Way == ConsumeBatch && order == OrderBlocking) {
		order = pick(g, g.v.Orders)
	}
	for range 1 + g.IntN(3) {
		s.Versions = append(s.Versions, g.version(order, s.Way))
		if g.oneIn(3) && s.Way == Consume && order != OrderThroughRetries {
			order = pick(g, []string{OrderFirstAttempts, OrderNone, OrderBlocking})
			if !slices.Contains(g.v.Orders, order) {
				order = OrderNone
			}
		}
	}
	// Three bad messages at the heads of partitions or message groups cannot be told from an outage, and wait for 24 h.
	// So do the messages that a deploy to OrderBlocking leaves on levels.
	manyHeads := g.v.Broker == "sqs" || g.v.Scale > 1 || slices.ContainsFunc(topics, func(t Topic) bool { return t.Partitions > 2 }) ||
		slices.ContainsFunc(s.Versions, func(v Version) bool { return v.Order != s.Versions[0].Order })
	for i := range s.Versions {
		if v := &s.Versions[i]; v.Order == OrderBlocking && manyHeads {
			v.Outage = false
		}
	}
	return s
}

// countLosing counts the messages that may lose their places with OrderBlocking, and wait on a level.
func countLosing(messages []Message) (n int) {
	for _, m := range messages {
		if slices.ContainsFunc(m.Script, func(s Step) bool { return s.Answer == Hang || s.Answer == Postpone || s.Answer == Pause }) {
			n++
		}
	}
	return n
}

// detectsOutagesOfHeads reports whether a service looks for outages with OrderBlocking. Its topics must not grow, and no dead letters
// are replayed: a replayed message has no place in the order, so each would be one head more.
func detectsOutagesOfHeads(s Service) bool {
	return slices.ContainsFunc(s.Versions, func(v Version) bool { return v.Order == OrderBlocking && v.Outage })
}

func (g *generator) version(order string, way Way) Version {
	v := Version{
		Order: order, MaxRetries: g.IntN(5), Timeout: g.between(5*time.Second, 30*time.Second),
		MaxInFlight: 1 + g.IntN(20), MaxRetriesInFlight: 1 + g.IntN(20), Outage: g.oneIn(2),
	}
	d := max(10*time.Millisecond, g.between(10*time.Millisecond, 5*time.Second))
	for range 1 + g.IntN(4) {
		v.Steps = append(v.Steps, d.Round(time.Millisecond))
		longest := 10 * time.Minute
		if g.v.Scale > 1 {
			longest = 5 * time.Second
		}
		if order == OrderThroughRetries {
			longest = g.scale(30 * time.Second) // all messages of a key wait behind each that fails
		}
		d = min(d*time.Duration(1+g.IntN(5)), longest)
	}
	if order == OrderBlocking {
		v.Steps = v.Steps[:1]
	} else if g.oneIn(4) {
		v.Immediate = g.IntN(v.MaxRetries + 1)
	}
	if g.oneIn(4) {
		v.MinInFlight = 1
	}
	if order == OrderThroughRetries && g.oneIn(2) {
		v.MaxWaiting = 5 + g.IntN(50)
	}
	if g.oneIn(8) {
		v.Rate = float64((1 + g.IntN(20)) * max(1, g.v.Scale))
	}
	if g.v.Deadlines && g.oneIn(6) {
		v.MaxAge = g.between(5*time.Second, 10*time.Minute)
	}
	if way == ConsumeBatch {
		v.BatchSize, v.BatchTimeout = 1+g.IntN(v.MaxInFlight), g.between(10*time.Millisecond, 2*time.Second)
	}
	return v
}

func (g *generator) messages(w World) []Message {
	n, keys := 20+g.IntN(150), 1+g.IntN(12)
	if g.oneIn(6) && !w.RealTime {
		n *= 3
	}
	bad := g.IntN(3) // how many messages fail: few, some, many
	var all []Message
	for i := range n {
		m := Message{
			ID: fmt.Sprintf("m%d", i), Topic: pick(g, w.Topics).Name, Key: fmt.Sprintf("k%d", g.IntN(keys)),
			At: time.Duration(g.Int64N(int64(w.Span))).Round(time.Millisecond),
		}
		m.Script = g.script(m, bad)
		all = append(all, m)
	}
	if g.oneIn(3) { // a burst
		at := g.between(0, w.Span)
		for i := range all {
			if g.oneIn(2) {
				all[i].At = at + time.Duration(g.IntN(1000))*time.Millisecond
			}
		}
	}
	if g.v.Deadlines && g.oneIn(4) || g.v.Delays && g.oneIn(4) {
		for i := range all {
			m := &all[i]
			if g.v.Deadlines && g.oneIn(6) {
				m.Expires = m.At + g.between(time.Second, 3*time.Minute)
			} else if g.v.Delays && g.oneIn(6) {
				m.Delay = g.between(time.Second, 2*time.Minute)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Message) int { return cmp.Compare(a.At, b.At) })
	return all
}

func (g *generator) takes() time.Duration {
	if g.oneIn(3) {
		return g.between(time.Millisecond, 3*time.Second)
	}
	return 0
}

func (g *generator) script(m Message, bad int) []Step {
	ok := Step{Answer: OK, Takes: g.takes()}
	if g.IntN(10) >= 2+2*bad {
		return []Step{ok}
	}
	var s []Step
	for range 1 + g.IntN(4) {
		s = append(s, Step{Answer: Fail, Takes: g.takes()})
	}
	switch g.IntN(16) {
	case 0, 1: // always fails
		return s
	case 2:
		return append(s[1:], Step{Answer: Permanent, Takes: g.takes()})
	case 3:
		return append(s[1:], Step{Answer: Reject, Takes: g.takes()})
	case 4:
		s[len(s)-1] = Step{Answer: Panic, Takes: g.takes()}
		if g.oneIn(2) {
			return s
		}
	case 5:
		s[0] = Step{Answer: Hang, Takes: g.between(time.Second, 20*time.Second)}
	case 6:
		s[0] = Step{Answer: Slow}
	case 7:
		s[0] = Step{Answer: RetryAfter, Takes: g.takes(), Wait: g.between(0, 2*time.Minute)}
	case 8:
		s = []Step{{Answer: Postpone, Until: m.At + g.between(0, 2*time.Minute)}}
		return s
	case 9:
		if g.oneIn(3) {
			return []Step{{Answer: Pause, Until: m.At + g.between(0, 10*time.Second), Wait: g.between(100*time.Millisecond, 20*time.Second)}}
		}
	case 10:
		ok.Takes, ok.Extend = g.between(time.Second, 40*time.Second), time.Minute
	case 11:
		ok.Takes = g.between(time.Second, 20*time.Second)
	}
	return append(s, ok)
}

func (g *generator) words(w World) []Word {
	if g.oneIn(5) {
		return nil
	}
	var names []string
	for name, weight := range g.v.Words {
		for range weight {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	// A world has few kinds of words, so that some worlds have many of one kind.
	kinds := make([]string, 1+g.IntN(6))
	for i := range kinds {
		kinds[i] = pick(g, names)
	}
	var all []Word
	for at := g.pause(); at < w.Span; at += g.pause() {
		o := g.word(w, pick(g, kinds), at)
		if (o.What == Grow || o.What == Replay) && slices.ContainsFunc(w.Services, detectsOutagesOfHeads) {
			continue
		}
		// After each, all settled records that are still on levels run again, so their number would double again and again.
		if o.What == ExpireOffsets && slices.ContainsFunc(all, func(o Word) bool { return o.What == ExpireOffsets }) {
			continue
		}
		all = append(all, o)
	}
	return all
}

func (g *generator) pause() time.Duration {
	if g.oneIn(4) {
		return g.between(10*time.Millisecond, 2*time.Second)
	}
	return g.between(500*time.Millisecond, 40*time.Second)
}

func (g *generator) word(w World, what string, at time.Duration) Word {
	o := Word{At: at, What: what, Service: g.IntN(len(w.Services))}
	s := w.Services[o.Service]
	o.Process = g.IntN(s.Processes)
	o.Topic = pick(g, s.Topics)
	switch what {
	case Kill, Restart:
		o.For = g.between(0, 20*time.Second)
		if g.oneIn(4) {
			o.For = g.between(20*time.Second, 2*time.Minute)
		}
	case Stall:
		o.For = g.between(time.Second, 90*time.Second)
	case Refuse:
		o.Keys, o.Error, o.Count, o.Top = []int16{pick(g, g.v.Keys)}, pick(g, g.v.Errors), 1+g.IntN(8), g.oneIn(2)
		if o.For = g.scale(2 * time.Duration(o.Count) * time.Second); g.oneIn(4) {
			o.Count, o.For = -1, g.between(time.Second, 90*time.Second)
		}
	case Late, LostAnswers:
		o.Keys, o.Count, o.For = []int16{pick(g, g.v.Keys)}, 1+g.IntN(5), g.between(100*time.Millisecond, 20*time.Second)
	case Deny:
		o.Keys, o.Error, o.Count, o.For = []int16{pick(g, g.v.Keys)}, pick(g, g.v.Denials), -1, g.between(time.Second, 90*time.Second)
		if g.oneIn(3) {
			o.For = g.between(90*time.Second, 3*time.Minute)
		}
	case SmallCommits:
		o.Count, o.For = g.IntN(200), g.between(time.Second, 2*time.Minute)
	case Scale, PauseGroup, Dependency, Block:
		o.For = g.between(time.Second, 90*time.Second)
	case Limit:
		o.Error, o.Count, o.For = pick(g, g.v.Limits), g.IntN(6), g.between(time.Second, 90*time.Second)
	case Grow:
		o.Count = 1 + g.IntN(3)
	case DeleteOrigin, DeleteLevel, DeleteRetry, DeleteDLQ:
		o.Again = what == DeleteOrigin || g.oneIn(2)
		o.Count, o.For = g.IntN(8), g.between(0, 40*time.Second)
	case ExpireOrigin, ExpireLevel:
		o.Count = g.IntN(8)
	case Replay, Purge:
		o.Count = g.IntN(4)
	case ExpireOffsets, ResetOffsets:
		o.Count, o.For = g.IntN(9), g.between(0, 20*time.Second)
	}
	return o
}
