package cli

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/redeliver/redeliver/console"
)

// envUsers has the users of the console, as the file of --basic-auth has them.
const envUsers = "REDELIVER_CONSOLE_USERS"

// accessFlags say who may do what in the console.
type accessFlags struct {
	basic  string
	proxy  []string
	user   string
	groups string
	grants []string
}

func (f *accessFlags) flags(flags *pflag.FlagSet) {
	flags.StringVar(&f.basic, "basic-auth", "", "`file` of users, NAME:ROLE:PASSWORD in each line; a role is viewer, reader or operator (default $"+envUsers+" has the lines themselves)")
	flags.StringSliceVar(&f.proxy, "behind-proxy", nil, "`CIDR,...` of the proxy that has authenticated whoever asks, and removes these headers from what it is sent")
	flags.StringVar(&f.user, "user-header", "", "`header` in which the proxy says who asks (default X-Forwarded-User)")
	flags.StringVar(&f.groups, "groups-header", "", "`header` with the groups, commas between (default X-Forwarded-Groups)")
	flags.StringArrayVar(&f.grants, "grant", nil, "`ROLE=WHO,...` gives a role to users, to @GROUPS, or to * for all whom the proxy lets in; of several the highest counts")
}

// auth is who may do what. The zero one serves this machine alone.
func (f *accessFlags) auth(env func(string) string) (console.Auth, error) {
	lines, from := env(envUsers), envUsers
	if f.basic != "" {
		text, err := os.ReadFile(f.basic)
		if err != nil {
			return console.Auth{}, usagef("reading the users: %w", err)
		}
		if lines, from = string(text), f.basic; strings.TrimSpace(lines) == "" {
			return console.Auth{}, usagef("there are no users in %s", from)
		}
	}
	switch {
	case lines != "" && len(f.proxy) > 0:
		return console.Auth{}, usagef("--behind-proxy, and users in %s: who authenticates? leave one out", from)
	case lines != "" && len(f.grants) > 0:
		return console.Auth{}, usagef("--grant is for --behind-proxy; the roles of users stand in %s", from)
	case lines != "":
		users, err := readUsers(lines, from)
		if err != nil {
			return console.Auth{}, err
		}
		return console.Basic(users...), nil
	case len(f.proxy) > 0:
		return f.behindProxy()
	case len(f.grants) > 0 || f.user != "" || f.groups != "":
		return console.Auth{}, usagef("--grant, --user-header and --groups-header are for --behind-proxy")
	default:
		return console.Auth{}, nil
	}
}

// open reports whether the console has no authentication.
func (f *accessFlags) open(env func(string) string) bool {
	return f.basic == "" && env(envUsers) == "" && len(f.proxy) == 0
}

// readUsers reads NAME:ROLE:PASSWORD lines. Its errors repeat none: where a colon is
// missing anything may be the password.
func readUsers(lines, from string) (users []console.User, err error) {
	n := 0
	for line := range strings.Lines(lines) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.SplitN(line, ":", 3)
		if len(parts) < 3 {
			return nil, usagef("line %d of %s is no NAME:ROLE:PASSWORD", n, from)
		}
		role, err := console.ParseRole(parts[1])
		if err != nil {
			return nil, usagef("line %d of %s: the role must be viewer, reader or operator", n, from)
		}
		users = append(users, console.User{Name: parts[0], Role: role, Password: parts[2]})
	}
	if len(users) == 0 {
		return nil, usagef("there are no users in %s", from)
	}
	return users, nil
}

func (f *accessFlags) behindProxy() (console.Auth, error) {
	cfg := console.ProxyConfig{User: f.user, Groups: f.groups}
	for _, text := range f.proxy {
		prefix, err := readPrefix(text)
		if err != nil {
			return console.Auth{}, err
		}
		cfg.From = append(cfg.From, prefix)
	}
	if len(f.grants) == 0 {
		return console.Auth{}, usagef("--behind-proxy without --grant: nobody may do anything; --grant viewer=* lets all look whom the proxy lets in")
	}
	var all grants
	for _, text := range f.grants {
		name, list, ok := strings.Cut(text, "=")
		role, err := console.ParseRole(strings.TrimSpace(name))
		who := strings.Split(list, ",")
		for i := range who {
			who[i] = strings.TrimSpace(who[i])
		}
		if err != nil || !ok || slices.Contains(who, "") || slices.Contains(who, "@") {
			return console.Auth{}, usagef("--grant %q is no ROLE=WHO: operator=@ops,ann", text)
		}
		all = append(all, grant{role, who})
	}
	cfg.Role = all.role
	return console.BehindProxy(cfg), nil
}

func readPrefix(text string) (netip.Prefix, error) {
	if at, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(at, at.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, usagef("--behind-proxy: %w", err)
	}
	if prefix.Bits() == 0 {
		return prefix, usagef("--behind-proxy %s is everybody: then anybody may say who they are", text)
	}
	return prefix, nil
}

// grant is a role and who has it.
type grant struct {
	role console.Role
	who  []string
}

type grants []grant

// role is the highest that somebody has; 0 for none.
func (g grants) role(user string, groups []string) (role console.Role) {
	for _, one := range g {
		has := func(who string) bool {
			group, isGroup := strings.CutPrefix(who, "@")
			return who == "*" || isGroup && slices.Contains(groups, group) || !isGroup && who == user
		}
		if slices.ContainsFunc(one.who, has) {
			role = max(role, one.role)
		}
	}
	return role
}
