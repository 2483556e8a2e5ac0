package console

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/redeliver/redeliver"
	"github.com/redeliver/redeliver/internal/check"
)

// Auth identifies the user of a request. Create one with [Basic], [BehindProxy] or [Custom].
//
// The zero Auth serves only this machine, with the role Operator. The console must then listen on a loopback address. The
// host name in the request must be a local one, so that no web page can reach the console under another name. Requests
// that came through a proxy are refused, because their sender may not be on this machine.
type Auth struct {
	kind     authKind
	identify func(*http.Request) (Actor, error)
	hasUser  func(name string) bool // reports whether a user has the name; only for Basic
	problems []redeliver.Problem
}

type authKind uint8

const (
	authLocal authKind = iota
	authBasic
	authProxy
	authCustom
)

// Errors of an [Auth]. The function of [Custom] may return them, too.
var (
	// ErrLogin asks for a name and a password.
	ErrLogin = errors.New("a name and a password are required")
	// ErrUnknownUser refuses the request of an unknown user.
	ErrUnknownUser = errors.New("the user is not known here")
	// ErrProxied refuses a request whose headers show that it came through a proxy, if no authentication is configured.
	ErrProxied = errors.New("the request came through a proxy, and no authentication is configured")
)

func (a *Auth) check(ps *check.Problems) { *ps = append(*ps, a.problems...) }

// authenticate returns the user of a request.
func (a *Auth) authenticate(r *http.Request) (Actor, error) {
	identify := a.identify
	if identify == nil {
		identify = localActor
	}
	actor, err := identify(r)
	if err != nil {
		return Actor{}, err
	}
	if !actor.isValid() {
		return Actor{}, ErrUnknownUser
	}
	actor.remoteAddr = r.RemoteAddr
	return actor, nil
}

// proxySign returns the sign that a request came through a proxy, or "". Such a sign is a header that proxies add, an
// Origin or Referer whose host is not local, or HTTP/1.0, which no browser uses. A cross-site Referer is no sign: the
// browser followed a link from another site.
func proxySign(r *http.Request) string {
	for name := range r.Header {
		switch lower := strings.ToLower(name); lower {
		case "forwarded", "via", "x-real-ip", "true-client-ip", "x-client-ip", "x-cluster-client-ip":
			return "the header " + name
		default:
			for _, prefix := range []string{"x-forwarded-", "x-original-", "x-envoy-", "cf-", "tailscale-"} {
				if strings.HasPrefix(lower, prefix) {
					return "the header " + name
				}
			}
		}
	}
	for _, name := range []string{"Origin", "Referer"} {
		from := r.Header.Get(name)
		if from == "" || name == "Referer" && r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			continue
		}
		if at, err := url.Parse(from); err != nil || !isLoopback(at.Host) {
			return "another name of this console in the header " + name
		}
	}
	if !r.ProtoAtLeast(1, 1) {
		return "the version HTTP/1.0"
	}
	return ""
}

// isLoopback reports whether a host, with or without a port, is localhost or a loopback address.
func isLoopback(host string) bool {
	host = withoutPort(host)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// localActor accepts requests from this machine.
func localActor(r *http.Request) (Actor, error) {
	if sign := proxySign(r); sign != "" {
		return Actor{}, fmt.Errorf("%w: it has %s, so every user of the proxy would be an operator. Configure who may do what: "+
			"redeliver console takes --behind-proxy CIDR with --grant, or --basic-auth FILE; a service sets Config.Auth", ErrProxied, sign)
	}
	at, ok := remoteAddress(r)
	if !ok || !at.IsLoopback() {
		return Actor{}, fmt.Errorf("%w: without Auth the console serves only this machine", ErrUnknownUser)
	}
	if !isLoopback(r.Host) {
		return Actor{}, fmt.Errorf("%w: without Auth the console accepts only local host names", ErrUnknownUser)
	}
	return Actor{Name: "local", Role: RoleOperator}, nil
}

// remoteAddress returns the remote address of the connection.
func remoteAddress(r *http.Request) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}, false
	}
	return at.Addr().Unmap(), true
}

// User is a user with a password.
type User struct {
	Name, Password string
	Role           Role
	// Rights are as in [Actor]. Default: none.
	Rights []Right
}

// Basic uses HTTP basic authentication. Passwords must have at least 8 bytes. After 10 wrong passwords for one name
// from one address (for IPv6: one /64 network) within a minute, it refuses that pair until the minute is over.
func Basic(users ...User) Auth {
	a := Auth{kind: authBasic}
	type entry struct {
		actor Actor
		sum   [sha256.Size]byte
	}
	var ps check.Problems
	known := make(map[string]entry)
	for i, u := range users {
		field := fmt.Sprintf("Auth: user %d", i+1)
		actor := Actor{Name: u.Name, Role: u.Role, Rights: u.Rights}
		switch _, twice := known[u.Name]; {
		case !actor.isValid() || strings.Contains(u.Name, ":"):
			ps.Add(field, fmt.Sprintf("%q, %s", u.Name, u.Role), "must have a name without colons and a role, or rights with patterns that can be read")
		case twice:
			ps.Add(field, u.Name, "is listed twice")
		case len(u.Password) < 8:
			ps.Add(field, u.Name, "must have a password of at least 8 bytes")
		}
		known[u.Name] = entry{actor, sha256.Sum256([]byte(u.Password))}
	}
	if len(users) == 0 {
		ps.Add("Auth", "no users", "must have at least one")
	}
	a.problems = ps
	a.hasUser = func(name string) bool { _, ok := known[name]; return ok }
	a.identify = func(r *http.Request) (Actor, error) {
		name, password, ok := r.BasicAuth()
		if !ok {
			return Actor{}, ErrLogin
		}
		e, ok := known[name] // for an unknown name the zero entry, which takes as long to compare and never matches
		sum := sha256.Sum256([]byte(password))
		if subtle.ConstantTimeCompare(sum[:], e.sum[:]) != 1 || !ok {
			return Actor{}, ErrLogin
		}
		return e.actor, nil
	}
	return a
}

// ProxyConfig configures which proxy is trusted. From and Role are required.
type ProxyConfig struct {
	// From are the addresses of the proxy. A request from any other address is refused. Required.
	From []netip.Prefix
	// User is the header with the user's name. Default X-Forwarded-User.
	User string
	// Groups is the header with the groups, separated by commas. If users can name their own groups, the proxy must
	// refuse a name with a comma. Default X-Forwarded-Groups.
	Groups string
	// Secret is the value that the proxy adds to each request in SecretHeader, so that no other program at its
	// addresses is trusted. At least 16 bytes. Required if From has a loopback address, which every process of this
	// machine can use. Default: none.
	Secret string
	// SecretHeader is the header with the secret. Default X-Proxy-Secret.
	SecretHeader string
	// Role returns the role of a user for all DLQs. Role and Rights must be safe for concurrent use. A user with
	// neither is refused. Required if Rights is nil.
	Role func(user string, groups []string) Role
	// Rights returns the rights of a user, as in [Actor]. Default: none.
	Rights func(user string, groups []string) []Right
}

// BehindProxy trusts a proxy that authenticates its users. The proxy must remove the headers that cfg names from the
// requests of its clients.
func BehindProxy(cfg ProxyConfig) Auth {
	cfg.User = cmp.Or(cfg.User, "X-Forwarded-User")
	cfg.Groups = cmp.Or(cfg.Groups, "X-Forwarded-Groups")
	cfg.SecretHeader = cmp.Or(cfg.SecretHeader, "X-Proxy-Secret")
	a := Auth{kind: authProxy}
	var ps check.Problems
	cfg.check(&ps)
	a.problems = ps
	secret := sha256.Sum256([]byte(cfg.Secret))
	a.identify = func(r *http.Request) (Actor, error) {
		if err := cfg.checkSender(r, secret); err != nil {
			return Actor{}, err
		}
		return cfg.actor(r)
	}
	return a
}

// check adds the problems of the configuration.
func (cfg *ProxyConfig) check(ps *check.Problems) {
	switch {
	case cfg.Secret == "" && slices.ContainsFunc(cfg.From, hasLoopback):
		ps.Add("Auth: Secret", "empty", "it is required where From has a loopback address: every process of this machine has one")
	case cfg.Secret != "" && (len(cfg.Secret) < minSecret || strings.ContainsFunc(cfg.Secret, func(r rune) bool { return r <= ' ' || r > '~' })):
		ps.Add("Auth: Secret", "a secret", fmt.Sprintf("must have at least %d bytes, letters, digits and signs of ASCII without spaces", minSecret))
	}
	if len(cfg.From) == 0 {
		ps.Add("Auth: From", "empty", "must have the addresses of the proxy")
	}
	if cfg.Role == nil && cfg.Rights == nil {
		ps.Add("Auth: Role", nil, "it is required, or Rights: they say who may do what")
	}
}

// checkSender returns an error unless the proxy has sent a request. secret is the hash of Secret.
func (cfg *ProxyConfig) checkSender(r *http.Request, secret [sha256.Size]byte) error {
	at, ok := remoteAddress(r)
	if !ok || !slices.ContainsFunc(cfg.From, func(p netip.Prefix) bool { return p.Contains(at) }) {
		return fmt.Errorf("%w: the request did not come through the proxy", ErrUnknownUser)
	}
	if cfg.Secret == "" {
		return nil
	}
	sent := r.Header.Values(cfg.SecretHeader)
	sum := sha256.Sum256([]byte(strings.Join(sent, "")))
	if len(sent) != 1 || subtle.ConstantTimeCompare(sum[:], secret[:]) != 1 {
		return fmt.Errorf("%w: the request does not have the proxy's secret", ErrUnknownUser)
	}
	return nil
}

// actor returns the user that the proxy names.
func (cfg *ProxyConfig) actor(r *http.Request) (Actor, error) {
	users, groups := r.Header.Values(cfg.User), r.Header.Values(cfg.Groups)
	if len(users) != 1 || len(groups) > 1 { // a repeated header has passed a proxy that only adds headers
		return Actor{}, fmt.Errorf("%w: the proxy must set the header of the user once, and that of the groups at most once", ErrUnknownUser)
	}
	var in []string
	for _, list := range groups {
		for group := range strings.SplitSeq(list, ",") {
			in = append(in, strings.TrimSpace(group))
		}
	}
	who := Actor{Name: users[0], forwardedFor: truncate(escapeInvisible(strings.Join(r.Header.Values("X-Forwarded-For"), ", ")), maxForwardedFor)}
	if cfg.Role != nil {
		who.Role = cfg.Role(who.Name, in)
	}
	if cfg.Rights != nil {
		who.Rights = cfg.Rights(who.Name, in)
	}
	return who, nil
}

const (
	minSecret       = 16  // bytes
	maxForwardedFor = 100 // bytes of X-Forwarded-For in the record
)

// hasLoopback reports whether a prefix includes a loopback address.
func hasLoopback(p netip.Prefix) bool {
	for _, loopback := range []string{"127.0.0.0/8", "::1/128", "::ffff:127.0.0.0/104"} {
		if p.Overlaps(netip.MustParsePrefix(loopback)) {
			return true
		}
	}
	return false
}

// Custom calls a function of a service that has its own login. If the function returns an error, the request is
// refused; the error is recorded but not shown. ErrLogin asks for a name and a password. The function must be safe for
// concurrent use.
func Custom(ask func(*http.Request) (Actor, error)) Auth {
	a := Auth{kind: authCustom, identify: ask}
	if ask == nil {
		a.problems = []redeliver.Problem{{Field: "Auth", Value: nil, Rule: "must have a function"}}
	}
	return a
}
