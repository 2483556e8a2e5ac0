package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"github.com/redeliver/redeliver/internal/sqsfake"
)

// Fault replaces the answer to a request.
type Fault int

const (
	// ServerError is status 500; nothing is done.
	ServerError Fault = iota
	// Throttled is RequestThrottled; nothing is done.
	Throttled
	// ExpiredCredentials is ExpiredTokenException; nothing is done.
	ExpiredCredentials
	// Refused is AccessDeniedException, nothing done: an error that no client tries again.
	Refused
	// Cut cuts the connection; nothing is done.
	Cut
	// Unread carries the request out and cuts the connection without an answer.
	Unread
	// Silent carries the request out and never answers, so that the client has to give up.
	Silent
	// Partial carries out some entries of a batch and answers, with status 200, that the others failed.
	Partial
	// FalseFailure carries out all entries of a batch and answers, with status 200, that some failed.
	FalseFailure
)

func (f Fault) String() string {
	return [...]string{"500", "throttled", "expired credentials", "refused", "cut", "unread", "silent", "partial", "false failure"}[f]
}

// Rule selects the requests that get a fault. If several rules match, the oldest counts.
type Rule struct {
	Fault  Fault
	Action string // "" matches any
	Queue  string // the queue's name; "" matches any
	// Match is an additional condition. Nil matches all calls. It must not keep the call.
	Match func(*Call) bool
	// Times is the number of requests that get the fault; 0 means all.
	Times int
	// Chance is the fraction of those requests that get it; 0 means all.
	Chance float64
	// Entries selects the failing entries of a batch for Partial and FalseFailure. Nil selects every second, starting
	// with the first.
	Entries func(i int, entry map[string]any) bool
}

// Active is a rule that is in force.
type Active struct {
	proxy *Proxy
	rule  Rule
	fault Fault

	mu      sync.Mutex
	begun   int
	met     int
	changed chan struct{} // closed and replaced at every fault
}

// Add activates a rule.
func (p *Proxy) Add(r Rule) *Active {
	a := &Active{proxy: p, rule: r, fault: r.Fault, changed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, a)
	return a
}

// Remove deactivates the rule. Silent requests stay without an answer.
func (a *Active) Remove() {
	a.proxy.mu.Lock()
	defer a.proxy.mu.Unlock()
	a.proxy.rules = slices.DeleteFunc(a.proxy.rules, func(b *Active) bool { return a == b })
}

// Met returns how many requests got the fault.
func (a *Active) Met() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.met
}

// Await waits until n requests got the fault.
func (a *Active) Await(ctx context.Context, n int) error {
	for {
		a.mu.Lock()
		met, changed := a.met, a.changed
		a.mu.Unlock()
		if met >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d requests met the fault %q: %w", met, n, a.fault, context.Cause(ctx))
		}
	}
}

// matchLocked reports whether a call matches the rule, and counts it.
func (a *Active) matchLocked(c *Call, rng *rand.Rand) bool {
	r := &a.rule
	if r.Action != "" && r.Action != c.Action || r.Queue != "" && r.Queue != c.Queue ||
		(r.Fault == Partial || r.Fault == FalseFailure) && !c.Batch || r.Match != nil && !r.Match(c) {
		return false
	}
	if r.Times > 0 && a.begun >= r.Times || r.Chance > 0 && rng.Float64() >= r.Chance {
		return false
	}
	a.begun++
	return true
}

func (a *Active) addMet() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.met++
	close(a.changed)
	a.changed = make(chan struct{})
}

// answerFault answers a request with the fault.
func (a *Active) answerFault(w http.ResponseWriter, r *http.Request, c *Call, body []byte) {
	defer a.addMet()
	switch a.fault {
	case ServerError:
		refuse(w, http.StatusInternalServerError, "InternalFailure", "injected by the test")
	case Throttled:
		refuse(w, http.StatusBadRequest, "RequestThrottled", "injected by the test")
	case ExpiredCredentials:
		refuse(w, http.StatusForbidden, "ExpiredTokenException", "The security token included in the request is expired")
	case Refused:
		refuse(w, http.StatusBadRequest, "AccessDeniedException", "injected by the test")
	case Cut:
		cutConnection(w)
	case Unread:
		_, _ = a.proxy.forward(r, body) // the answer is not read
		cutConnection(w)
	case Silent:
		_, _ = a.proxy.forward(r, body) // the answer is not read
		<-r.Context().Done()
	case Partial, FalseFailure:
		a.failEntries(w, r, c)
	}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	(&sqsfake.Refusal{Status: status, Code: code, Message: message}).Write(w)
}

func idOf(entry map[string]any) string {
	id, _ := entry["Id"].(string)
	return id
}

// marshal encodes a decoded JSON value.
func marshal(v map[string]any) []byte {
	body, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return body
}

// failEntries answers that the selected entries of a batch failed. For a FalseFailure they were carried out.
func (a *Active) failEntries(w http.ResponseWriter, r *http.Request, c *Call) {
	pick := a.rule.Entries
	if pick == nil {
		pick = func(i int, _ map[string]any) bool { return i%2 == 0 }
	}
	var failed, asked []any
	fails := make(map[string]bool)
	for i, e := range c.Entries {
		if pick(i, e) {
			fails[idOf(e)] = true
			failed = append(failed, map[string]any{"Id": e["Id"], "Code": "InternalError", "Message": "injected by the test", "SenderFault": false})
		}
		if a.fault == FalseFailure || !fails[idOf(e)] {
			asked = append(asked, e)
		}
	}
	out := map[string]any{}
	if len(asked) > 0 { // an empty batch would be refused
		in := maps.Clone(c.In)
		in["Entries"] = asked
		ans, err := a.proxy.forward(r, marshal(in))
		if err != nil {
			cutConnection(w)
			return
		}
		if ans.status != http.StatusOK {
			ans.write(w)
			return
		}
		if json.Unmarshal(ans.body, &out) != nil {
			cutConnection(w)
			return
		}
	}
	done, _ := out["Successful"].([]any)
	out["Successful"] = slices.DeleteFunc(done, func(e any) bool {
		m, _ := e.(map[string]any)
		return fails[idOf(m)]
	})
	before, _ := out["Failed"].([]any)
	out["Failed"] = append(before, failed...)
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_, _ = w.Write(marshal(out)) // the client may have gone
}
