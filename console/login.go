package console

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/limits"
)

const (
	// maxFailures is the maximum number of failed logins of one user from one network within failureTime. Later logins are
	// refused unchecked, and not recorded.
	maxFailures = 10
	failureTime = time.Minute
	// maxNetworkFailures is the same for all names that a network tries. Otherwise one that tries many names could make the counts
	// of the others be forgotten.
	maxNetworkFailures = 100
	// maxFailureKeys is the maximum number of users and networks whose failures are counted.
	maxFailureKeys = 1000
)

// loginFailures counts refused requests. The zero value is ready to use.
type loginFailures struct {
	mu   sync.Mutex
	seen map[failureKey]failureCount
}

// failureKey identifies the user and the network of a failed login.
type failureKey struct {
	name string     // a hash of the name as it was sent, also of an unknown one; empty for all names
	from netip.Addr // see remoteNetwork
}

type failureCount struct {
	n     int
	since time.Time
}

// keyOf returns the key of a name that a network tries. It must not depend on whether a user has the name.
func keyOf(name string, from netip.Addr) failureKey {
	sum := sha256.Sum256([]byte(name))
	return failureKey{string(sum[:]), from}
}

// isFull reports whether there were too many failures of this name, or of its network, within failureTime.
func (f *loginFailures) isFull(of failureKey) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	full := func(of failureKey, most int) bool {
		c, ok := f.seen[of]
		return ok && c.n >= most && time.Since(c.since) < failureTime
	}
	return full(of, maxFailures) || full(failureKey{from: of.from}, maxNetworkFailures)
}

// add counts a failure and returns the number of this name's within failureTime.
func (f *loginFailures) add(of failureKey) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.addLocked(failureKey{from: of.from})
	return f.addLocked(of)
}

func (f *loginFailures) addLocked(of failureKey) int {
	c, ok := f.seen[of]
	if !ok || time.Since(c.since) >= failureTime {
		c = failureCount{since: time.Now()}
	}
	if f.seen == nil || !ok && len(f.seen) >= maxFailureKeys {
		f.seen = make(map[failureKey]failureCount)
	}
	c.n++
	f.seen[of] = c
	return c.n
}

// remoteNetwork returns the network that a request came from: its address, or its /64 for IPv6, where one host can have
// any number of addresses.
func remoteNetwork(r *http.Request) netip.Addr {
	at, _ := remoteAddress(r)
	if at.Is6() {
		return netip.PrefixFrom(at, 64).Masked().Addr()
	}
	return at
}

// recordRefusal records a request that was refused, with the name of a known user.
func (c *Console) recordRefusal(r *http.Request, of failureKey, user string, err error) {
	n := c.failures.add(of)
	if n > maxFailures {
		return
	}
	rec := Record{Who: user, From: r.RemoteAddr, Action: ActionLogin, Result: denied, Error: limits.Cut(redeliver.Redact(err.Error()), limits.MaxErrorText)}
	if n == maxFailures {
		rec.Error += fmt.Sprintf("; %d failed within %s, and no more are recorded until that is over", n, failureTime)
	}
	_ = c.svc.audit.write(rec) // the request is refused in any case
}

// authenticate returns the user of a request. If ok is false, the request was refused and answered.
func (c *Console) authenticate(w http.ResponseWriter, r *http.Request) (who Actor, ok bool) {
	auth := &c.cfg.Auth
	name, _, tried := r.BasicAuth()
	of, user := keyOf(name, remoteNetwork(r)), ""
	if auth.hasUser != nil && auth.hasUser(name) { // an unknown name may be a password in the wrong field
		user = name
	}
	if tried && auth.kind == authBasic && c.failures.isFull(of) {
		w.Header().Set("Retry-After", strconv.Itoa(int(failureTime.Seconds())))
		c.showProblem(w, r, http.StatusTooManyRequests, "Too many passwords were wrong", "Try again in a minute.")
		return Actor{}, false
	}
	who, err := auth.authenticate(r)
	if err == nil {
		return who, true
	}
	if auth.kind != authLocal && (tried || !errors.Is(err, ErrLogin)) { // browsers try without a password first
		c.recordRefusal(r, of, user, err)
	}
	switch {
	case errors.Is(err, ErrLogin):
		w.Header().Set("WWW-Authenticate", `Basic realm="dead letters", charset="UTF-8"`)
		c.showProblem(w, r, http.StatusUnauthorized, "Who are you?", "A name and a password are required.")
	case errors.Is(err, ErrProxied):
		c.showProblem(w, r, http.StatusForbidden, "There is a proxy in front of this console", err.Error()+".")
	case auth.kind == authCustom: // the error may name the service's hosts and credentials
		c.showProblem(w, r, http.StatusForbidden, "No access", "You have no access to this console. The audit log says why.")
	default:
		c.showProblem(w, r, http.StatusForbidden, "No access", err.Error())
	}
	return Actor{}, false
}
