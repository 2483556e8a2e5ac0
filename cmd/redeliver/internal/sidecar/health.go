package sidecar

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/brokerurl"
	"github.com/redeliver/redeliver/observe"
)

// Health is the state of a subscription, for the orchestrator that restarts it or sends it traffic. It is safe for
// concurrent use.
type Health struct {
	name      string                         // of its subscription
	unreached atomic.Pointer[UnreachedError] // nil if the handler is reached, as far as is known
	sqs       bool                           // queues may be given as URLs and ARNs

	mu      sync.Mutex
	waiting map[string]bool                        // topics that are not consumed yet
	trouble map[string]map[redeliver.Change]string // by origin, and the change that ends the trouble: what it is
	ending  bool
}

// NewHealth returns the health of a subscription that has not started to consume its topics.
func NewHealth(name string, broker brokerurl.Broker, topics []string) *Health {
	h := &Health{name: name, sqs: broker == brokerurl.SQS, waiting: make(map[string]bool), trouble: make(map[string]map[redeliver.Change]string)}
	for _, t := range topics {
		h.waiting[t] = true
	}
	return h
}

// HealthPages serves /healthz and /readyz of subscriptions. /healthz always succeeds. /readyz succeeds while all topics
// are consumed and each handler is reached. With more than one subscription it names each.
func HealthPages(all ...*Health) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		var lines []string
		ready := true
		for _, h := range all {
			why := h.Why()
			if len(why) == 0 {
				why = []string{"ok"}
			} else {
				ready = false
			}
			for _, line := range why {
				if len(all) > 1 {
					line = h.name + ": " + line
				}
				lines = append(lines, line)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintln(w, strings.Join(lines, "\n"))
	})
	return mux
}

// Why returns why the subscription is not ready. It is empty if it is ready.
func (h *Health) Why() (why []string) {
	h.mu.Lock()
	for topic := range h.waiting {
		why = append(why, topic+": not consumed yet")
	}
	for origin, all := range h.trouble {
		for _, text := range all {
			why = append(why, origin+": "+text)
		}
	}
	slices.Sort(why)
	if h.ending {
		why = append(why, "the process is ending")
	}
	h.mu.Unlock()
	if u := h.unreached.Load(); u != nil {
		why = append(why, redeliver.Redact(u.Error()))
	}
	return why
}

func (h *Health) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = true
}

// reached records whether the handler was reached: err is nil if it was. It reports whether that is news.
func (h *Health) reached(err *UnreachedError) (changed bool) {
	if err == nil && h.unreached.Load() == nil { // a load is cheaper than a swap
		return false
	}
	return (h.unreached.Swap(err) == nil) != (err == nil)
}

// record records an adapter's event about a topic.
func (h *Health) record(e redeliver.SubscriptionChanged) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch e.Change {
	// A paused group reads nothing, on purpose: a deploy must not wait for the end of the pause.
	case redeliver.ChangeAssigned, redeliver.ChangeConsuming, redeliver.ChangeGroupPaused:
		maps.DeleteFunc(h.waiting, func(topic string, _ bool) bool {
			return topic == e.Origin || h.sqs && queueName(topic) == e.Origin
		})
		delete(h.trouble[e.Origin], redeliver.ChangeConsuming)
	case redeliver.ChangeDisconnected:
		h.setTrouble(e.Origin, redeliver.ChangeConsuming, string(e.Change))
	case redeliver.ChangeIntakePaused:
		h.setTrouble(e.Origin, redeliver.ChangeIntakeResumed, string(e.Change))
	case redeliver.ChangeOperationFails:
		h.setTrouble(e.Origin, redeliver.ChangeOperationWorks, string(e.Change)+": "+e.Detail)
	case redeliver.ChangeOutage:
		h.setTrouble(e.Origin, redeliver.ChangeOutageOver, redeliver.Redact(fmt.Sprintf("%s: %v", e.Change, e.Err)))
	case redeliver.ChangeOutageOver, redeliver.ChangeIntakeResumed, redeliver.ChangeOperationWorks:
		delete(h.trouble[e.Origin], e.Change)
	default: // the change does not affect consumption
	}
}

func (h *Health) setTrouble(origin string, until redeliver.Change, text string) {
	if h.trouble[origin] == nil {
		h.trouble[origin] = make(map[redeliver.Change]string)
	}
	h.trouble[origin][until] = text
}

// queueName returns the name of an SQS queue, as events have it, for a name, a URL or an ARN.
func queueName(topic string) string {
	if strings.Contains(topic, "://") || strings.HasPrefix(topic, "arn:") {
		return topic[strings.LastIndexAny(topic, "/:")+1:]
	}
	return topic
}

// sink returns a Sink that records the adapters' events and passes them to next.
func (h *Health) sink(next redeliver.Sink) redeliver.Sink { return &healthSink{next, h} }

type healthSink struct {
	redeliver.Sink

	health *Health
}

func (s *healthSink) Event(e redeliver.Event) {
	if e, ok := e.(redeliver.SubscriptionChanged); ok {
		s.health.record(e)
	}
	s.Sink.Event(e)
}

// Counter passes the call to next, because Health does not need messages that succeed.
func (s *healthSink) Counter(_ redeliver.Sink, origin, group string) (observe.Counter, redeliver.Sink) {
	if next, ok := s.Sink.(observe.CountingSink); ok {
		return next.Counter(s.Sink, origin, group)
	}
	return nil, s.Sink
}

// Watch passes the call to next.
func (s *healthSink) Watch(origin, group string, load func() observe.Load) (end func()) {
	if next, ok := s.Sink.(observe.LoadSink); ok {
		return next.Watch(origin, group, load)
	}
	return func() {}
}

// Wants passes the call to next, because Health needs no events of messages.
func (s *healthSink) Wants(e redeliver.Event) bool {
	if next, ok := s.Sink.(interface{ Wants(e redeliver.Event) bool }); ok {
		return next.Wants(e)
	}
	return true
}
